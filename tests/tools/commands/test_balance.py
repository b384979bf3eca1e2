"""`pykbroker balance` on a cluster of four nodes: a plan, its file, and its execution by `reassign execute`."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.__main__ import main
from pykbroker.testing import Cluster
from pykbroker.tools.cluster import partition_load
from pykbroker.tools.cluster.partition_load import PlacedReplicas
from pykbroker.tools.commands import balance
from pykbroker.tools.commands.client_options import ClientOptions
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow
PARTITIONS = 24


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four brokers, of which the first two have all replicas."""
    with Cluster(nodes=4, config={"min.insync.replicas": 1}) as cluster:
        for name in ("moved", "excluded"):
            assignments = [
                CreatableReplicaAssignment(partition_index=number, broker_ids=[1, 2]) for number in range(PARTITIONS)
            ]
            topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
            with Wire(cluster.address(1)) as wire:
                (made,) = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics
                assert made.error_code == ErrorCode.NONE
        cluster.wait_until_in_sync("moved", "excluded")
        with Wire(cluster.address(1)) as wire:
            for number in range(PARTITIONS):
                assert wire.produce("moved", batch(b"x" * 1000), partition=number).error_code == ErrorCode.NONE
        yield cluster


def placed(cluster: Cluster, topic: str) -> list[list[int]]:
    with Wire(cluster.address(1)) as wire:
        return [list(row.replica_nodes) for row in wire.metadata(topic).topics[0].partitions]


def brokers(cluster: Cluster) -> set[int]:
    with Wire(cluster.address(1)) as wire:
        return {broker.node_id for broker in wire.metadata().brokers}


def test_a_plan_is_made_and_carried_out(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, at = tmp_path / "plan.json", ["-b", cluster.bootstrap_servers]
    words = ["balance", "plan", "--window", "0.1", "--exclude", "excluded", "--file", str(file), "-o", "json", *at]
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    planned = json.loads(file.read_text())
    assert said["unmet"] == []
    assert {each["topic"] for each in planned["partitions"]} == {"moved"}
    spread = {each["resource"]: (each["now"], each["planned"]) for each in said["spread"]}
    assert spread["disk"][0] == 1.0
    assert spread["disk"][1] < 0.2
    # Nothing has moved yet.
    assert placed(cluster, "moved") == [[1, 2]] * PARTITIONS
    assert main(["reassign", "execute", str(file), "--wait", *at]) == 0
    capsys.readouterr()
    wanted = {each["partition"]: each["replicas"] for each in planned["partitions"]}
    eventually(
        "broker 1 knows where all is",
        lambda: all(placed(cluster, "moved")[each] == row for each, row in wanted.items()),
    )
    found = Counter(broker for replicas in placed(cluster, "moved") for broker in replicas)
    assert set(found) == {1, 2, 3, 4}
    assert max(found.values()) <= 15
    assert placed(cluster, "excluded") == [[1, 2]] * PARTITIONS
    assert main(["balance", "plan", "--window", "0.1", *at]) == 0
    table = capsys.readouterr().out
    assert "RESOURCE" in table
    assert "Loads are as if the preferred replicas led." in table


def test_what_cannot_be_planned_is_one_line(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--window", "0.1", "-b", cluster.bootstrap_servers]
    assert main(["balance", "plan", "--leaving", "9", *at]) == 1
    assert capsys.readouterr().err == "pykbroker: broker 9 is not in the cluster\n"
    limits = tmp_path / "limits.toml"
    limits.write_text("[default]\ndisks = 1\n")
    assert main(["balance", "plan", "--capacities", str(limits), *at]) == 1
    assert "[default] disks is no resource" in capsys.readouterr().err
    limits.write_text("[default]\ndisk = 1\n")
    assert main(["balance", "plan", "--capacities", str(limits), *at]) == 1
    said = capsys.readouterr().err
    assert "not met: capacity of DISK: broker 1 has " in said
    assert ", and its limit is 1\n" in said


def test_loads_from_a_file_limit_what_consumers_read(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Consumers read 48,000 bytes per second from broker 1, and a limit of 20,000 leaves less there."""
    loads, limits, at = tmp_path / "loads.jsonl", tmp_path / "limits.toml", ["-b", cluster.bootstrap_servers]
    rows = [
        {"topic": name, "partition": number, "bytes_in": 1, "bytes_out": 1000}
        for name in ("moved", "excluded")
        for number in range(PARTITIONS)
    ]
    loads.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    limits.write_text("[1]\nbytes_out = 20000\n")
    words = ["balance", "plan", "--capacities", str(limits), "-o", "json", *at]
    assert main([*words, "--window", "0.1"]) == 1
    assert "[1] bytes_out cannot be limited: " in capsys.readouterr().err
    assert main([*words, "--loads", str(loads)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["unmet"] == []
    found = {each["broker"]: each for each in said["brokers"] if each["resource"] == "bytes_out"}
    assert found[1]["planned"] <= 20_000 < found[1]["now"]
    limits.write_text("[1]\ncpu = 0.5\n")
    assert main([*words, "--loads", str(loads)]) == 1
    assert "[1] cpu cannot be limited: " in capsys.readouterr().err

    # Loads of the CPU are printed as shares of a core.
    costly = [{**row, "leader_cpu": 0.0131, "follower_cpu": 0.0001} for row in rows]
    loads.write_text("".join(f"{json.dumps(row)}\n" for row in costly))
    limits.write_text("[default]\ncpu = 0.005\n")
    assert main([*words, "--loads", str(loads)]) == 1
    said = json.loads(capsys.readouterr().out)
    cores = [each["now"] for each in said["brokers"] if each["resource"] == "cpu"]
    assert sum(cores) == pytest.approx(2 * PARTITIONS * 0.0132)
    assert {each["goal"] for each in said["unmet"]} == {"capacity of CPU"}
    assert all(re.fullmatch(r"has 0\.\d+, and its limit is 0\.005", each["text"]) for each in said["unmet"])


def test_wrong_words_do_not_cost_a_window(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def waited(*_: object) -> None:
        raise AssertionError("the window has begun")

    monkeypatch.setattr(partition_load, "seen", waited)
    missing, limits = tmp_path / "missing" / "file", tmp_path / "limits.toml"
    limits.write_text(f"[default]\nreplicas = {2**40}\n")
    for words, said in {
        ("--exclude", "absent"): "topic absent is not in the cluster",
        ("--leaving", "9"): "broker 9 is not in the cluster",
        ("--capacities", str(missing)): f"{missing}: No such file or directory",
        ("--capacities", str(limits)): "[default] replicas is above 2147483647",
        ("--file", str(missing)): f"{missing}: No such file or directory",
    }.items():
        assert main(["balance", "plan", *words, "-b", cluster.bootstrap_servers]) == 1
        assert capsys.readouterr().err == f"pykbroker: {said}\n"
    monkeypatch.setitem(sys.modules, "pykbroker.tools.balance.load_arrays", None)
    assert main(["balance", "plan", "-b", cluster.bootstrap_servers]) == 1
    said = capsys.readouterr().err
    assert "`balance` needs pykbroker.tools.balance.load_arrays: pip install '" in said
    assert "'numpy" in said
    assert "pykbroker[" not in said, "no index of packages need have it"


def test_nothing_to_move_is_said_and_no_file_is_written(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    every = ["--exclude", "moved", "--exclude", "excluded"]
    at = ["--window", "0.1", "-b", cluster.bootstrap_servers]
    assert main(["balance", "plan", *every, "--file", str(file), *at]) == 0
    out, err = capsys.readouterr()
    assert "nothing to move\n" in out
    assert err == f"nothing to move: {file} is not written\n"
    assert not file.exists()


def test_the_goals_that_are_not_met_are_not_all_printed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance, "_SHOWN", 1)
    words = ["--exclude", "excluded", "--leaving", "1", "--leaving", "2", "--most-moves", "1", "--window", "0.1"]
    assert main(["balance", "plan", *words, "-b", cluster.bootstrap_servers]) == 1
    first, rest = capsys.readouterr().err.splitlines()
    assert first.startswith("not met: leaves: broker 1 leaves and keeps ")
    assert rest == "not met: and 1 more"


def test_what_moved_during_the_window_is_on_its_way(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, at = tmp_path / "one.json", ["-b", cluster.bootstrap_servers]
    (first, second), *_ = placed(cluster, "moved")
    wanted = [third := next(each for each in (1, 2, 3, 4) if each not in (first, second)), second]
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": wanted}]}))
    with ClientOptions(cluster.bootstrap_servers, {}).cluster() as asked:
        before = partition_load.placed(asked)
        named = PlacedReplicas(before.racks, before.topics, {("moved", 3)})
        assert main(["reassign", "execute", str(file), "--wait", *at]) == 0
        seen, partitions = partition_load.seen(asked, named, 0.1)
    capsys.readouterr()
    assert {(each.topic, each.number) for each in partitions if each.is_moving} == {("moved", 0), ("moved", 3)}
    found = {(each.topic, each.number): each for each in partitions}["moved", 0]
    assert found.replicas == (third, second)
    assert found.has_leader
    assert [each.id for each in seen if each.is_alive] == [1, 2, 3, 4]


def test_a_broker_that_is_gone(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last test, because broker 4 does not come back. Its partitions are held, or moved if it is to be emptied."""
    rows = [[1, 4] if number % 2 else [1, 2] for number in range(PARTITIONS)]
    file, plan = tmp_path / "rows.json", tmp_path / "plan.json"
    moves = [{"topic": "moved", "partition": number, "replicas": row} for number, row in enumerate(rows)]
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    assert main(["reassign", "execute", str(file), "--wait", "-b", cluster.bootstrap_servers]) == 0
    eventually("broker 1 knows where all is", lambda: placed(cluster, "moved") == rows)
    cluster.stop(4)
    eventually("broker 1 knows that broker 4 is gone", lambda: 4 not in brokers(cluster))
    at = ["-b", cluster.address(1)]
    words = ["balance", "plan", "--window", "0.1", "--exclude", "excluded", "--file", str(plan), *at]
    assert main(words) == 0
    planned = json.loads(plan.read_text())["partitions"]
    assert planned
    assert {each["partition"] % 2 for each in planned} == {0}
    assert main([*words, "--leaving", "4"]) == 0
    assert main(["reassign", "execute", str(plan), "--wait", *at]) == 0
    capsys.readouterr()
    eventually(
        "its replicas are elsewhere", lambda: 4 not in {each for row in placed(cluster, "moved") for each in row}
    )
