"""The entry: tools by name, --help and --version without a client, one line for an unknown tool."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pykbroker.tools.kafka import topics
from pykbroker.tools.kafka.__main__ import TOOLS, main
from tests.parsed import parsed

ROOT = Path(__file__).parents[3]


def test_an_unknown_tool_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("there is no tool nothing; there are: topics, ")
    assert said.count("\n") == 1
    assert main([]) == 1


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_import_no_client(word: str) -> None:
    """The client takes most of the time of a start, so --help and --version answer without it."""
    code = (
        "import sys\n"
        "from pykbroker.tools.kafka.__main__ import main\n"
        f"for name in {TOOLS!r}:\n"
        "    try:\n"
        f"        main([name, {word!r}])\n"
        "    except SystemExit:\n"
        "        pass\n"
        "    late = {'kafka', 'asyncio', 'ssl'} & sys.modules.keys()\n"
        "    assert not late, (name, late)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "wire")])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]


def test_no_tool_imports_a_client_before_it_has_read_its_options() -> None:
    heads = [ROOT / f"pykbroker/tools/kafka/{name.replace('-', '_')}.py" for name in TOOLS]
    assert len(heads) >= 3
    late = ("kafka", "pykbroker.tools.cluster.asked_cluster", "pykbroker.tools.cluster.client_properties")
    for path in heads:
        top = [node for node in parsed(path).body if type(node).__name__ == "ImportFrom"]
        assert not [node for node in top if getattr(node, "module", "") in late], path.name


def test_a_full_disk_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "run", lambda words: print("a line"))
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["topics"]) == 1
    assert capsys.readouterr().err == "standard output cannot be written: No space left on device\n"


def test_another_failure_of_the_system_keeps_the_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(words: Sequence[str]) -> int:
        print("a line")
        raise FileNotFoundError(2, "No such file or directory", "plan.json")

    monkeypatch.setattr(topics, "run", run)
    assert main(["topics"]) == 1
    assert capsys.readouterr() == ("a line\n", "plan.json\n")


@pytest.mark.parametrize(
    ("bootstrap", "said"),
    [
        ("localhost", "Invalid url in bootstrap.servers: localhost"),
        ("a:1,b:c", "Invalid url in bootstrap.servers: b:c"),
        ("a:65536", "Invalid port in bootstrap.servers: a:65536"),
        (" , ", "No resolvable bootstrap urls given in bootstrap.servers"),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        "topics --list",
        "consumer-groups --list",
        "share-groups --list",
        "groups --list",
        "client-metrics --list",
        "configs --describe --entity-type topics",
        "acls --list",
        "log-dirs --describe",
        "broker-api-versions",
        "cluster cluster-id",
        "leader-election --election-type preferred --all-topic-partitions",
        "reassign-partitions --list",
    ],
)
def test_an_address_that_is_none_is_named(
    words: str, bootstrap: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No tool ends with a traceback, and none waits for a cluster that it has no address of."""
    assert main([*words.split(), "--bootstrap-server", bootstrap]) == 1
    # Like Apache Kafka's tool, acls prints its failures on standard output.
    assert said in "".join(capsys.readouterr())
