"""Each node writes the load of its replicas to `__pykbroker_metrics`, with the numbers of its clients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pykbroker.load_reports.load_records import METRICS_TOPIC, MOST_PARTITIONS
from pykbroker.testing import Broker, Cluster, SecureBroker
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.records.batch import CODEC_MASK, iter_batches
from pykbroker_wire.records.compression import Codec
from testkit.acting import acts
from testkit.nodes.nodes import eventually
from testkit.nodes.secured_trio import SecuredTrio
from testkit.nodes.told_loads import REPORTING, reports, sums
from testkit.nodes.trio import NUMBERS
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow


def fetched(wire: Wire, topic: str, partition: int) -> int:
    """Read everything, and count the bytes."""
    answer = wire.fetch(topic, partition=partition)
    return len(answer.records)


def replica_count(wire: Wire) -> int:
    """Return it for the first partition of the topic of the reports; 0 without such a topic."""
    topic = wire.metadata(METRICS_TOPIC).topics[0]
    return len(topic.partitions[0].replica_nodes) if topic.partitions else 0


@acts(broker=("pykbroker.load.reporter.enable", "pykbroker.load.reporter.interval.ms"))
def test_the_counts_are_those_of_the_clients() -> None:
    with Broker(REPORTING) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("t", 2)
        sent = [batch(*[b"v" * size] * count) for size, count in ((10, 1), (1000, 3), (200, 7))]
        for records in sent:
            wire.produce("t", records, partition=0)
        again = batch(b"once", producer_id=5, producer_epoch=0, base_sequence=0)
        wire.produce("t", again, partition=1)
        wire.produce("t", again, partition=1)
        read = fetched(wire, "t", 0) + fetched(wire, "t", 0)
        written = sum(map(len, sent))
        assert read == 2 * written

        def look() -> list[dict[str, Any]] | None:
            found = reports([wire])
            counted = sums(found, "t").get((1, 0))
            return found if counted is not None and counted["bytes_out"] >= read else None

        found = eventually("the reports have everything", look)
        assert sums(found, "t") == {
            (1, 0): {
                "bytes_in": written,
                "messages_in": 11,
                "produce_requests": 3,
                "bytes_out": read,
                "replication_bytes_in": 0,
                "replication_bytes_out": 0,
            },
            # The second time it is a repetition, and nothing was appended.
            (1, 1): {
                "bytes_in": len(again),
                "messages_in": 1,
                "produce_requests": 1,
                "bytes_out": 0,
                "replication_bytes_in": 0,
                "replication_bytes_out": 0,
            },
        }
        last = found[-1]
        assert (last["schema"], last["broker"], last["parts"], last["interval_ms"]) == (1, 1, 1, 200)
        assert [one["sequence"] for one in found] == list(range(len(found)))
        row = next(one for one in last["partitions"] if (one["topic"], one["partition"]) == ("t", 0))
        assert (row["leader"], row["replicas"], row["size"], row["follower_lag"]) == (True, [1], written, None)
        busy = next(one for one in found if any(row["cpu_share"] for row in one["partitions"]))
        charged = sum(row["cpu_share"] for row in busy["partitions"])
        assert charged == pytest.approx(busy["cpu_ms"] / busy["duration_ms"], rel=0.02)
        topic = wire.metadata(METRICS_TOPIC).topics[0]
        assert (len(topic.partitions), len(topic.partitions[0].replica_nodes)) == (8, 1)


def test_three_nodes_tell_what_is_replicated() -> None:
    with Cluster(config=REPORTING) as cluster:
        with Wire(cluster.address(1)) as wire:
            wire.create("t", 1, 3)
        cluster.wait_until_in_sync("t")
        leader = cluster.leader("t")
        assert leader is not None
        records = [batch(b"%d" % number * 100) for number in range(20)]
        size = sum(map(len, records))
        wires = {number: Wire(cluster.address(number)) for number in cluster.nodes}
        try:
            for one in records:
                wires[leader].produce("t", one)
            assert fetched(wires[leader], "t", 0) == size

            def look() -> dict[tuple[int, int], Any] | None:
                found = sums(reports(wires.values()), "t")

                def has(number: int, what: str) -> bool:
                    counted = found.get((number, 0))
                    return counted is not None and counted[what] >= size

                whole = all(has(number, "replication_bytes_in") for number in followers)
                return found if whole and has(leader, "bytes_out") else None

            followers = [number for number in cluster.nodes if number != leader]
            found = eventually("every node has reported", look)
            for number in followers:
                assert found[number, 0]["replication_bytes_in"] == size
                assert found[number, 0]["bytes_in"] == found[number, 0]["bytes_out"] == 0
            assert found[leader, 0]["bytes_in"] == found[leader, 0]["bytes_out"] == size
            assert found[leader, 0]["messages_in"] == 20
            assert found[leader, 0]["replication_bytes_out"] == 2 * size
            assert found[leader, 0]["replication_bytes_in"] == 0
            lags = [
                row["follower_lag"]
                for one in reports(wires.values())
                for row in one["partitions"]
                if row["topic"] == "t" and row["leader"]
            ]
            assert lags
            assert lags[-1] == 0
            # Once more when all nodes are there, because the first report may come before the last node.
            doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name=METRICS_TOPIC)], timeout_ms=30_000)
            assert not wires[1].call(doomed).responses[0].error_code
            eventually("the topic has three replicas", lambda: replica_count(wires[1]) == 3)
        finally:
            for each in wires.values():
                each.close()


def test_a_leader_that_stands_still_costs_reports_and_nothing_else() -> None:
    with Cluster(config=REPORTING) as cluster:

        def counts(number: int) -> tuple[float, float]:
            found = cluster.metrics(number)
            name = "pykbroker:type=LoadReporter,name="
            return found[name + "WrittenCount"], found[name + "DroppedCount"]

        eventually("every node has reported", lambda: all(counts(number)[0] for number in cluster.nodes))
        writer = 3
        # A node writes to the partition of its id. A node that was stopped leads no partition when it starts again.
        cluster.stop(writer)
        cluster.start(writer)
        cluster.wait_until_in_sync(METRICS_TOPIC)
        leader = cluster.leader(METRICS_TOPIC, writer)
        assert leader is not None
        assert leader != writer
        eventually("it reports again", lambda: counts(writer)[0])
        dropped = counts(writer)[1]
        cluster.pause(leader)
        eventually("reports are dropped", lambda: counts(writer)[1] > dropped + 2)
        cluster.resume(leader)
        written = counts(writer)[0]
        eventually("reports are written again", lambda: counts(writer)[0] > written + 2)


def test_a_secured_node_reports_as_itself() -> None:
    """A single node: its own log takes the records, and its controller the CreateTopics."""
    with SecureBroker({"alice": "secret-of-alice"}, acls=True, config=REPORTING) as broker:
        eventually(
            "reports are written",
            lambda: broker.metrics().get("pykbroker:type=LoadReporter,name=WrittenCount", 0) > 2 or None,
        )


def test_secured_nodes_report_to_each_other_as_their_principal(tmp_path: Path) -> None:
    with SecuredTrio(tmp_path, "PLAIN", REPORTING) as trio:
        trio.serving(*NUMBERS)

        def look() -> set[int] | None:
            brokers = {one["broker"] for _, wire in trio.wires() for one in reports([wire])}
            return brokers if len(brokers) == len(NUMBERS) else None

        assert eventually("every node has reported", look) == set(NUMBERS)


def test_a_topic_that_cannot_be_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The counts wait for it, and their memory does not grow with time."""
    policy = {"create.topic.policy.class.name": "python:testkit.nodes.told_loads.NoTopics"}
    with Broker({**REPORTING, **policy}) as broker:
        eventually(
            "reports are dropped",
            lambda: broker.metrics().get("pykbroker:type=LoadReporter,name=DroppedCount", 0) > 3 or None,
        )
    lines = [line for line in caplog.messages if "load report" in line]
    assert len(lines) == 1
    assert f"topic {METRICS_TOPIC} is not created: " in lines[0]


def test_many_partitions_are_several_records() -> None:
    settings = {**REPORTING, "pykbroker.load.reporter.interval.ms": 1000}
    with Broker(settings) as broker, Wire(broker.bootstrap_servers, timeout=60) as wire:
        count = 2 * MOST_PARTITIONS + 10
        wire.create("n" * 200, count)

        def look() -> list[dict[str, Any]] | None:
            # A slow node may drop the rest of a report, so a report counts only once its last record is there.
            found = [one for one in reports([wire]) if one["parts"] == 3]
            last = next((one["sequence"] for one in found if one["part"] == 2), None)
            return [one for one in found if one["sequence"] == last] or None

        first = eventually("a report of three records", look)
        assert [one["part"] for one in first] == [0, 1, 2]
        assert len({(one["end_ms"], one["duration_ms"]) for one in first}) == 1
        assert len([row for one in first for row in one["partitions"] if row["topic"][0] == "n"]) == count
        assert all(len(json.dumps(one)) < 200_000 for one in first)


def test_a_node_that_does_not_report_loads_and_keeps_nothing() -> None:
    code = (
        "import sys\nfrom pykbroker.testing import Broker\n"
        "with Broker() as broker:\n"
        "    partitions = list(broker._node.broker.services.replicas)\n"
        "    assert all(one.traffic is None for one in partitions)\n"
        "    print([name for name in sys.modules if 'replica_traffic' in name or 'load_reports' in name])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "[]\n", done.stderr


def test_batches_are_compressed() -> None:
    with Broker(REPORTING) as broker, Wire(broker.bootstrap_servers) as wire:
        eventually("a report", lambda: reports([wire]) or None)
        index = 1 % len(wire.call(MetadataRequest(topics=None)).topics[0].partitions)
        records = wire.fetch(METRICS_TOPIC, partition=index).records
        assert {header.attributes & CODEC_MASK for _, header in iter_batches(records)} == {Codec.GZIP}
