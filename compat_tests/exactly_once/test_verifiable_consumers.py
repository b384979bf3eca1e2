"""A group of VerifiableConsumers under SIGKILL of its members and of the broker: every record at least once.

What the consumers print says more than that: while a member has a partition its positions go up by one record at a
time; a member that gets a partition starts at or after every offset that was committed before; committed offsets never
go back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.clients import wait_until
from compat_tests.exactly_once import reading
from compat_tests.exactly_once.kills import Kills
from compat_tests.exactly_once.workers import Event, Slot
from compat_tests.node import Node
from compat_tests.oracle.kafka import kafka_libs, tool_command
from compat_tests.topics import Topics

TOOLS = "org.apache.kafka.tools"
PARTITIONS = 4


class Group:
    def __init__(self, node: Node, protocol: str, folder: Path) -> None:
        self.node = node
        self.topic = Topics(node.bootstrap).create(partitions=PARTITIONS)
        self.name = f"group-{self.topic}"
        writing, reads = folder / "producer.properties", folder / "consumer.properties"
        # The partitioner goes to another partition after batch.size bytes: all of them shall have records.
        writing.write_text(
            "retries=2147483647\nenable.idempotence=true\nlinger.ms=5\nreconnect.backoff.max.ms=200\nbatch.size=200\n"
        )
        quick = "" if protocol == "consumer" else "heartbeat.interval.ms=300\n"
        reads.write_text(f"reconnect.backoff.max.ms=200\nmax.poll.records=50\n{quick}")
        at = ["--bootstrap-server", node.bootstrap, "--topic", self.topic]
        fed = [*at, "--throughput", "500", "--command-config", str(writing)]
        self.feeder = Slot("feeder", tool_command(f"{TOOLS}.VerifiableProducer", fed), folder, may_end=False)
        session = [] if protocol == "consumer" else ["--session-timeout", "2000"]
        member = [*at, "--group-id", self.name, "--group-protocol", protocol, *session, "--command-config", str(reads)]
        command = tool_command(f"{TOOLS}.VerifiableConsumer", member)
        self.slots = [Slot(f"member-{number}", command, folder, may_end=False) for number in range(3)]

    def events(self) -> list[Event]:
        """Of all members, in the order of their own clocks, which are one clock."""
        return sorted((e for slot in self.slots for e in list(slot.events)), key=lambda e: int(e["timestamp"]))

    def progress(self) -> int:
        return sum(e["count"] for slot in self.slots for e in list(slot.events) if e["name"] == "records_consumed")

    def delivered(self) -> set[tuple[int, int]]:
        consumed = [e for e in self.events() if e["name"] == "records_consumed"]
        ranges = [part for event in consumed for part in event["partitions"]]
        return {(p["partition"], offset) for p in ranges for offset in range(p["minOffset"], p["maxOffset"] + 1)}

    def finish(self) -> None:
        self.feeder.worker.terminate()
        self.feeder.worker.wait()
        written = {
            (number, offset)
            for number, records in reading.placed(self.node.bootstrap, self.topic).items()
            for offset, _ in records
        }
        sent = [event for event in self.feeder.events if event["name"] == "producer_send_success"]
        assert {(event["partition"], event["offset"]) for event in sent} <= written
        assert {number for number, _ in written} == set(range(PARTITIONS))
        wait_until(lambda: self.delivered() >= written, f"all {len(written)} records are delivered")
        ends = [max(offset for number, offset in written if number == which) + 1 for which in range(PARTITIONS)]
        wait_until(lambda: self.committed() == ends, "the offsets behind them are committed")
        self.check_committed()
        for slot in self.slots:
            check_positions(slot.events)
        print(f"{len(written)} records, {self.progress()} deliveries")

    def committed(self) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.node.bootstrap, "group.id": self.name})
        try:
            parts = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
            return [part.offset for part in consumer.committed(parts, timeout=30)]
        finally:
            consumer.close()

    def check_committed(self) -> None:
        """Offsets go up, and who begins to read a partition does not begin before what was committed."""
        highest: dict[int, int] = defaultdict(int)
        for event in self.events():
            if event["name"] == "offsets_committed" and event["success"]:
                for part in event["offsets"]:
                    assert part["offset"] >= highest[part["partition"]], f"a committed offset went back: {event}"
                    highest[part["partition"]] = part["offset"]
        for slot in self.slots:
            self._check_starts(slot)

    def _check_starts(self, slot: Slot) -> None:
        since: dict[int, int] = {}
        for event in slot.events:
            if event["name"] == "partitions_assigned":
                since.update({part["partition"]: int(event["timestamp"]) for part in event["partitions"]})
            if event["name"] != "records_consumed":
                continue
            for part in event["partitions"]:
                when = since.pop(part["partition"], None)
                if when is None:
                    continue
                before = max(self._commits(part["partition"], when), default=0)
                assert part["minOffset"] >= before, f"{slot.name} began at {part}, and {before} was committed"

    def _commits(self, partition: int, before_ms: int) -> Iterator[int]:
        for slot in self.slots:
            for event in slot.events:
                if event["name"] == "offsets_committed" and event["success"] and int(event["timestamp"]) < before_ms:
                    yield from (part["offset"] for part in event["offsets"] if part["partition"] == partition)

    def close(self) -> None:
        for slot in [self.feeder, *self.slots]:
            slot.close()


def check_positions(events: list[Event]) -> None:
    """While a member has a partition it gets one record after the other."""
    following: dict[int, int] = {}
    for event in events:
        if event["name"] in ("partitions_assigned", "partitions_revoked"):
            for part in event["partitions"]:
                following.pop(part["partition"], None)
        elif event["name"] == "startup_complete":
            following.clear()
        elif event["name"] == "records_consumed":
            for part in event["partitions"]:
                expected = following.get(part["partition"], part["minOffset"])
                assert part["minOffset"] == expected, f"{part} where {expected} was next"
                assert part["count"] == part["maxOffset"] - part["minOffset"] + 1
                following[part["partition"]] = part["maxOffset"] + 1


@pytest.fixture
def group(killable: Node, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Group]:
    kafka_libs()
    made = Group(killable, request.param, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("group", ["classic", "consumer"], indirect=True)
@pytest.mark.parametrize(
    "rounds", [6, pytest.param(100, marks=[pytest.mark.long(amount="100 kills"), pytest.mark.timeout(3600)])]
)
def test_every_record_is_delivered_under_kills(group: Group, rounds: int) -> None:
    Kills(group.node, group.slots, broker_share=0.4).run(rounds, group.progress, least=200)
    group.finish()
