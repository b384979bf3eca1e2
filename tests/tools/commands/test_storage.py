"""`pykbroker storage`, by itself; compat_tests/on_disk/test_storage_tool.py compares it with kafka-storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker.__main__ import main
from pykbroker.config.load import load
from pykbroker.config.properties import parse
from pykbroker.sasl.scram import SHA_256, salted_password, stored_keys
from pykbroker.storage.format import bootstrap_records
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_wire.stored.metadata import UserScramCredentialRecord

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


def test_users_that_the_cluster_begins_with(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["storage", "format", "-c", config, "-t", CLUSTER_ID, "-s"]
    assert main([*words, "-S", "SCRAM-SHA-256=[name=a]"]) == 1
    assert capsys.readouterr().err == "You must supply one of 'password' or 'saltedpassword' to add-scram\n"
    assert not (tmp_path / "data").exists()
    credentials = ("SCRAM-SHA-256=[name=alice,password=alice-secret]", "SCRAM-SHA-512=[name=bob,password=x]")
    assert main([*words, "-S", credentials[0], "--add-scram", credentials[1]]) == 0
    said = capsys.readouterr().out
    assert "UserScramCredentialRecord(name='alice', mechanism=1, salt=[hidden], storedKey=[hidden]" in said
    written = bootstrap_records(OsDisk(), load(parse(Path(config).read_text())))
    assert written is not None
    found = [one for one in written if isinstance(one, UserScramCredentialRecord)]
    assert [(one.name, one.mechanism, one.iterations) for one in found] == [("alice", 1, 4096), ("bob", 2, 4096)]
    alice = found[0]
    salted = salted_password(SHA_256, "alice-secret", alice.salt, 4096)
    keys = stored_keys(SHA_256, salted, alice.salt, 4096)
    assert (alice.stored_key, alice.server_key) == (keys.stored_key, keys.server_key)
    assert alice.salt != found[1].salt


def test_the_other_format_takes_users_too(config: str, tmp_path: Path) -> None:
    assert main(["format", config, "--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]"]) == 0
    assert b"alice" in (tmp_path / "data" / "bootstrap.checkpoint").read_bytes()


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
    for words in (["info"], ["nonsense"], ["random-uuid", "-x"], [], ["info", "-c", "a", "b"]):
        assert main(["storage", *words]) == 1
    assert main(["random-uuid", "-x"]) == 2


def test_the_beginning_of_an_option_is_enough(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As with kafka-storage, unless it is the beginning of two options."""
    assert main(["storage", "format", "--conf", config, f"--cluster={CLUSTER_ID}", "--stand", "--ig"]) == 0
    assert "Formatting dynamic metadata voter directory" in capsys.readouterr().out
    assert main(["storage", "version-mapping", "--release-v", "4.0-IV1"]) == 0
    capsys.readouterr()
    assert main(["storage", "format", "--c", config, "-t", CLUSTER_ID, "-s"]) == 1
    assert capsys.readouterr().err.startswith("pykbroker: No such option '--c'.")


def test_options_that_exclude_each_other(config: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for command in (["format", config], ["storage", "format", "-c", config]):
        assert main([*command, "-t", CLUSTER_ID, "-s", "-N"]) in (1, 2)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("pykbroker: --standalone does not go with --no-initial-controllers.")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("words", [["info"], ["format", "-t", CLUSTER_ID]])
def test_a_file_that_is_not_there_is_named_with_the_reason(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Java prints only the path."""
    assert main(["storage", *words, "-c", "/nonexistent"]) == 1
    assert capsys.readouterr().err == "/nonexistent: No such file or directory\n"
