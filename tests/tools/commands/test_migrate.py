"""`pykbroker migrate`: its exit status, its two shapes of output, and when it asks a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pykbroker.__main__ import main
from pykbroker.config.load import development_profile
from pykbroker.testing import Cluster
from pykbroker.tools.commands.client_options import BOOTSTRAP_VARIABLE
from testkit.nodes.processes import write_properties
from testkit.ports import steady_port
from tests.tools.node_migration.nodes_to_check import files, unpacked

pytestmark = pytest.mark.slow
SECRET = "s3cr3t-that-none-may-see"


@pytest.fixture
def properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(BOOTSTRAP_VARIABLE, raising=False)
    data = unpacked(tmp_path)
    return write_properties(tmp_path / "server.properties", development_profile(str(data), 0))


def test_a_node_without_a_stop(properties: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(properties.parent)
    assert main(["migrate", "check", "-c", str(properties)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0].split() == ["LEVEL", "WHAT", "WHERE", "WHAT", "TO", "DO"]
    assert said.err == ""
    assert files(properties.parent) == before


def test_stops_come_first_and_set_the_exit_status(properties: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with properties.open("a") as file:
        file.write(f"\ndelegation.token.secret.key={SECRET}\nclient.quota.callback.class=com.example.One\n")
    assert main(["migrate", "check", "-c", str(properties), "-o", "json"]) == 1
    said = capsys.readouterr()
    rows = json.loads(said.out)
    stops = [row["what"] for row in rows if row["level"] == "stop"]
    assert len(stops) == 2, stops
    assert [row["level"] for row in rows[:3]] == ["stop", "stop", "warn"]
    assert all(row["to_do"] for row in rows if row["level"] == "stop")
    assert rows[0].keys() == {"level", "what", "where", "to_do"}
    assert SECRET not in said.out + said.err


def test_a_cluster_that_is_named_and_not_there(properties: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"localhost:{steady_port()}"
    assert main(["migrate", "check", "-c", str(properties), "-b", address]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert address in said.err


def test_a_node_of_another_cluster_and_the_plan(properties: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster() as cluster:
        assert main(["migrate", "check", "-c", str(properties), "-b", cluster.bootstrap_servers, "-o", "json"]) == 1
        stops = [row["what"] for row in json.loads(capsys.readouterr().out) if row["level"] == "stop"]
        assert len(stops) == 1
        assert stops[0].startswith("The directories belong to cluster ")
        assert main(["migrate", "plan", "-b", cluster.bootstrap_servers, "-o", "json"]) == 0
        steps = json.loads(capsys.readouterr().out)
        assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
        moved = list(dict.fromkeys(step["node"] for step in steps if step["node"] is not None))
        assert sorted(moved) == [1, 2, 3]
        assert main(["quorum", "describe", "-b", cluster.bootstrap_servers, "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["leader"] == moved[-1]
