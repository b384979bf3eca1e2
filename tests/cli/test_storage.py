"""`pykbroker storage`, by itself; compat_tests/on_disk/test_storage_tool.py compares it with kafka-storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker.cli.main import main

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAg"


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://localhost:19092,CONTROLLER://localhost:19093\n"
        f"controller.quorum.bootstrap.servers=localhost:19093\nlog.dirs={tmp_path}/data\n"
    )
    return str(file)


def test_format_and_info(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert main(["storage", "info", "-c", config]) == 1
    assert capsys.readouterr().out == f"Found problem:\n  {data} does not exist\n\n"
    words = ["storage", "format", "-c", config, "-t", CLUSTER_ID]
    assert main(words) == 1
    assert "you must specify one of the following: --standalone" in capsys.readouterr().err
    assert main([*words, "--standalone"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Bootstrap metadata: BootstrapMetadata(records=[ApiMessageAndVersion(FeatureLevelRecord(")
    assert said[1:] == [f"Formatting dynamic metadata voter directory {data} with metadata.version 4.3-IV0."]
    assert main(["storage", "info", "-c", config]) == 0
    assert f"Found metadata: {{cluster.id={CLUSTER_ID}, directory.id=" in capsys.readouterr().out
    assert main([*words, "-s"]) == 1
    assert "is already formatted" in capsys.readouterr().err
    assert main([*words, "-s", "-g"]) == 0
    assert capsys.readouterr().out == "All of the log directories are already formatted.\n"


def test_scram_is_refused(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "format", "-c", config, "-t", CLUSTER_ID, "-s", "-S", "SCRAM-SHA-256=[name=a]"]) == 1
    assert capsys.readouterr().err.startswith("--add-scram: this version serves no SCRAM")
    assert not (tmp_path / "data").exists()


def test_features(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "version-mapping", "-r", "4.0-IV1"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["metadata.version=23 (4.0-IV1)", "kraft.version=1"]
    assert main(["storage", "feature-dependencies", "-f", "eligible.leader.replicas.version=1"]) == 0
    assert capsys.readouterr().out == (
        "eligible.leader.replicas.version=1 requires:\n    metadata.version=23 (4.0-IV1)\n"
    )
    assert main(["storage", "feature-dependencies", "-f", "nope=1"]) == 1
    assert capsys.readouterr().err == "Unknown feature: nope\n"


def test_words_that_are_not_known_end_as_kafka_storage_does() -> None:
    for words in (["info"], ["nonsense"], ["random-uuid", "-x"]):
        with pytest.raises(SystemExit) as ended:
            main(["storage", *words])
        assert ended.value.code == 1
    with pytest.raises(SystemExit) as ended:
        main(["random-uuid", "-x"])
    assert ended.value.code == 2
