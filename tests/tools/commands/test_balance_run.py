"""`pykbroker balance run`, `watch` and `cancel` on a cluster of four nodes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pykbroker.__main__ import main
from pykbroker.testing import Cluster
from pykbroker.tools.cluster import reassignments, run_marks
from pykbroker.tools.commands import left_throttles
from pykbroker.tools.commands.client_options import ClientOptions
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow
PARTITIONS = 8
#: A copy takes longer than any test.
SLOW = ["--throttle", "1000"]

Begun = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=4, config={"min.insync.replicas": 1}) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic on brokers 1 and 2, with more in each partition than one fetch takes, because the first fetch is not
    throttled."""
    cluster.wait_until_in_sync()
    name = request.node.name.replace("[", "-").replace("]", "")[:60]
    rows = [CreatableReplicaAssignment(partition_index=number, broker_ids=[1, 2]) for number in range(PARTITIONS)]
    new = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=rows)
    with Wire(cluster.address(1)) as wire:
        (made,) = wire.call(CreateTopicsRequest(topics=[new], timeout_ms=30_000)).topics
        assert made.error_code == ErrorCode.NONE
    cluster.wait_until_in_sync(name)
    with Wire(cluster.address(1)) as wire:
        for number in range(PARTITIONS):
            for _ in range(3):
                assert wire.produce(name, batch(b"x" * 700_000), partition=number).error_code == ErrorCode.NONE
    yield name
    cluster.start()
    with ClientOptions(cluster.bootstrap_servers, {}).cluster() as asked:
        try:
            # Not at once, because the broker that answers may have older metadata than the one that the test has asked.
            until(lambda: not run_marks.found(asked).topics and not run_marks.rates(asked))
        except AssertionError:
            # A test that fails must not make the next ones fail.
            main(["balance", "cancel", "-b", cluster.bootstrap_servers])
            raise


def replicas(cluster: Cluster, topic: str) -> list[list[int]]:
    with Wire(cluster.address(1)) as wire:
        return [list(row.replica_nodes) for row in wire.metadata(topic).topics[0].partitions]


def leaders(cluster: Cluster, topic: str) -> list[int]:
    with Wire(cluster.address(1)) as wire:
        return [row.leader_id for row in wire.metadata(topic).topics[0].partitions]


def plan_file(
    cluster: Cluster, folder: Path, topic: str, wanted: Mapping[int, list[int]], *, bytes_in: float = 0, **more: Any
) -> str:
    with Wire(cluster.address(1)) as wire:
        cluster_id = wire.metadata(topic).cluster_id
    rows = [
        {"topic": topic, "partition": number, "replicas": row, "now": [1, 2], "bytes_in": bytes_in}
        for number, row in sorted(wanted.items())
    ]
    file = folder / "plan.json"
    file.write_text(json.dumps({"version": 1, "cluster_id": cluster_id, "coverage": 1.0, "partitions": rows} | more))
    return str(file)


def everywhere() -> dict[int, list[int]]:
    return {number: [3 + number % 2, 1 + number % 2] for number in range(PARTITIONS)}


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def moving(cluster: Cluster) -> int:
    with ClientOptions(cluster.bootstrap_servers, {}).cluster() as asked:
        return len(reassignments.ongoing(asked))


@pytest.fixture
def begun(cluster: Cluster, topic: str) -> Iterator[Begun]:
    """`begun(plan, *words)` starts a run in a process of its own, and returns once it moves something. The run ends
    with the test."""
    processes: list[subprocess.Popen[str]] = []

    def begin(plan: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pykbroker", "balance", "run", plan, "-b", cluster.bootstrap_servers, *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        until(lambda: moving(cluster) or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def test_a_run_carries_a_plan_out(
    cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = everywhere() | {0: [2, 1]}
    plan = plan_file(cluster, tmp_path, topic, wanted)
    at = ["-b", cluster.bootstrap_servers]
    assert main(["balance", "run", plan, "--throttle", "50000000", "--moves-per-broker", "2", *at]) == 0
    assert capsys.readouterr().out == "8 partitions are as planned; 0 are left.\n"
    until(lambda: replicas(cluster, topic) == [wanted[number] for number in range(PARTITIONS)])
    until(lambda: leaders(cluster, topic) == [wanted[number][0] for number in range(PARTITIONS)])
    # Once more: nothing is left to do.
    assert main(["balance", "run", plan, "-o", "json", *at]) == 0
    assert json.loads(capsys.readouterr().out) == {"done": 8, "directories": 0, "left": []}
    assert main(["balance", "watch", *at]) == 0
    assert capsys.readouterr().out == "No run is under way.\n"
    assert main(["balance", "cancel", "--back", plan, *at]) == 0
    assert capsys.readouterr().out == "No run was under way. 8 partitions are as before.\n"
    until(lambda: replicas(cluster, topic) == [[1, 2]] * PARTITIONS)


def test_a_run_that_is_terminated_calls_back_what_is_under_way(
    cluster: Cluster, topic: str, begun: Begun, tmp_path: Path
) -> None:
    process = begun(plan_file(cluster, tmp_path, topic, everywhere(), bytes_in=600), *SLOW)
    with ClientOptions(cluster.bootstrap_servers, {}).cluster() as asked:
        until(lambda: len(run_marks.rates(asked)) == 2)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "called back: the run was interrupted: " in said
    assert "a throttle of 1,000 bytes/s is too low: the partitions that broker 1 copies at once" in said
    assert moving(cluster) == 0
    until(lambda: replicas(cluster, topic) == [[1, 2]] * PARTITIONS)


@pytest.mark.parametrize("then", ["run", "watch", "cancel", "reassign"])
def test_the_throttle_of_a_run_that_was_killed(
    cluster: Cluster,
    topic: str,
    begun: Begun,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    then: str,
) -> None:
    plan, at = plan_file(cluster, tmp_path, topic, everywhere()), ["-b", cluster.bootstrap_servers]
    process = begun(plan, *SLOW, "--moves", "3")
    with ClientOptions(cluster.bootstrap_servers, {}).cluster() as asked:
        until(lambda: len(run_marks.rates(asked)) == 2)
        process.kill()
        process.communicate()
        # Nothing removes it by itself.
        assert len(run_marks.rates(asked)) == 2
        under_way = moving(cluster)
        assert 0 < under_way <= 3
        left = f"a run of `balance` is under way, or was killed: topic {topic} has throttled replicas"
        capsys.readouterr()
        for words in (["balance", "plan", "--window", "0.1"], ["reassign", "verify", plan]):
            main([*words, *at])
            assert left in capsys.readouterr().err
            assert run_marks.found(asked).topics, "verify has left the marks, by which the rate is found"
        if then == "watch":
            run_marks.set_rates(asked, 10**9, None)
    if then == "run":
        assert main(["balance", "run", plan, *at]) == 0
        out, err = capsys.readouterr()
        assert out == "8 partitions are as planned; 0 are left.\n"
        assert "a run that was killed left its throttle: it is taken away" in err
    elif then == "watch":
        assert main(["balance", "watch", "--interval", "0.1", "--settle", "0.5", *at]) == 0
        out = capsys.readouterr().out
        assert "replicas are copied.\nTOPIC " in out
        assert out.endswith("A run was killed: its moves are done, its throttle is gone.\n")
        assert sum(row != [1, 2] for row in replicas(cluster, topic)) == under_way
    elif then != "cancel":
        monkeypatch.setattr(left_throttles, "at_terminal", lambda: True)
        monkeypatch.setattr("click.confirm", lambda text, **more: True)
        assert main(["reassign", "verify", plan, *at]) == 1
        assert f"It is ended; {under_way} partitions were called back." in capsys.readouterr().err
    else:
        assert main(["balance", "cancel", *at]) == 0
        assert capsys.readouterr().out == f"{under_way} partitions were called back.\n"
        until(lambda: replicas(cluster, topic) == [[1, 2]] * PARTITIONS)
    assert moving(cluster) == 0


def test_a_run_without_a_throttle_leaves_that_of_the_operator(
    cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, at = plan_file(cluster, tmp_path, topic, everywhere()), ["-b", cluster.bootstrap_servers]
    with ClientOptions(cluster.bootstrap_servers, {}).cluster() as asked:
        run_marks.set_rates(asked, 10**9, None)
        until(lambda: len(run_marks.rates(asked)) == 2)
        assert main(["balance", "run", plan, "--throttle", "1000000", *at]) == 1
        assert "Run without a throttle, and that one applies" in capsys.readouterr().err
        assert main(["balance", "run", plan, *at]) == 0
        # A killed run of that kind has not set it either.
        run_marks.put(asked, run_marks.RunMarks(), [topic])
        assert main(["balance", "cancel", *at]) == 0
        until(lambda: not run_marks.found(asked).topics)
        assert set(run_marks.rates(asked).values()) == {str(10**9)}
        run_marks.clear(asked, run_marks.RunMarks(has_rate=True))
        until(lambda: not run_marks.rates(asked))


def test_cancel_ends_a_run(cluster: Cluster, topic: str, begun: Begun, tmp_path: Path) -> None:
    process = begun(plan_file(cluster, tmp_path, topic, everywhere()), *SLOW)
    assert main(["balance", "cancel", "-b", cluster.bootstrap_servers]) == 0
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "another command has ended this run: `balance cancel`" in said
    until(lambda: replicas(cluster, topic) == [[1, 2]] * PARTITIONS)


def test_plans_that_are_refused(
    cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["-b", cluster.bootstrap_servers]
    for words, said in (
        ({"cluster_id": "other"}, "the plan is for cluster other, and this is cluster "),
        ({"coverage": 0.9}, "the plan knows the load of 90.0% of the partitions, and 95% are needed"),
        ({"coverage": None}, "the plan knows the load of an unknown share of the partitions"),
        ({"cluster_id": None}, "only a file of `pykbroker balance plan` can be run"),
    ):
        assert main(["balance", "run", plan_file(cluster, tmp_path, topic, everywhere(), **words), *at]) == 1
        assert said in capsys.readouterr().err
    plan = plan_file(cluster, tmp_path, topic, everywhere())
    other = tmp_path / "other.json"
    other.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 1, "replicas": [2, 3]}]}),
    )
    assert main(["reassign", "execute", str(other), "--wait", *at]) == 0
    capsys.readouterr()
    assert main(["balance", "run", plan, *at]) == 1
    said = capsys.readouterr().err
    assert f"the cluster has changed since the plan: {topic}-1 was on [1, 2] and is on [2, 3]. Plan again" in said
    assert replicas(cluster, topic)[0] == [1, 2]


def test_a_broker_that_dies_while_its_partitions_move(
    cluster: Cluster, topic: str, begun: Begun, tmp_path: Path
) -> None:
    process = begun(plan_file(cluster, tmp_path, topic, everywhere()), *SLOW, "--patience", "2")
    until(lambda: moving(cluster) == 5)
    cluster.kill(4)
    with ClientOptions(cluster.bootstrap_servers, {}).cluster() as asked:
        until(lambda: all(4 not in move.adding for move in reassignments.ongoing(asked).values()))
        run_marks.set_rates(asked, 10**9, None)
        # A later batch sets the plan's throttle again.
        while process.poll() is None:
            run_marks.set_rates(asked, 10**9, None)
            time.sleep(0.2)
        run_marks.set_rates(asked, 10**9, None)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1, said
    assert "called back: broker 4 is gone: " in said
    assert f"left: {topic}-1: broker 4 is gone" in said
    found = replicas(cluster, topic)
    assert [row for number, row in enumerate(found) if number % 2] == [[1, 2]] * 4
    assert [row for number, row in enumerate(found) if number % 2 == 0] == [[3, 1]] * 4
    with ClientOptions(cluster.bootstrap_servers, {}).cluster() as asked:
        run_marks.clear(asked, run_marks.RunMarks({topic}, has_rate=True))


def test_healing_replaces_the_replicas_of_a_broker_that_is_gone(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """Nothing else moves, and nothing moves before the time is over."""
    at = ["-b", cluster.bootstrap_servers]
    wanted = {number: [1, 4] if number % 2 else [1, 2] for number in range(PARTITIONS)}
    assert main(["balance", "run", plan_file(cluster, tmp_path, topic, wanted), *at]) == 0
    cluster.kill(4)
    command = [sys.executable, "-m", "pykbroker", "balance", "watch", "--heal-after", "1s", "--interval", "0.2", *at]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: all(4 not in row for row in replicas(cluster, topic)) or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate(timeout=30)
    assert process.returncode in (130, -signal.SIGTERM), said
    assert "No run is under way." in out
    assert "broker 4 is gone for too long: its replicas are replaced" in said
    found = replicas(cluster, topic)
    assert [row for number, row in enumerate(found) if number % 2 == 0] == [[1, 2]] * 4
    assert all(len(row) == 2 and 1 in row for row in found)
