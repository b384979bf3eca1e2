"""A group of VerifiableConsumers under SIGKILL of its members and of the broker: every record at least once.

Further conditions hold. While a member has a partition its positions go up by one record at a time. A member that gets
a partition starts at or after every offset that was committed before. Each acknowledged commit of a member is in the
log of the group, where the offsets of a partition never go back.

The order of commits is that of this log, and not that of the members' output. A member prints a commit when it has the
answer, and on a busy machine it may have left the group by then, while another one has continued.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.exactly_once import reading
from compat_tests.exactly_once.kills import Kills
from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from pykbroker.coordinator.group.records import decode, decode_offset
from pykbroker_wire.stored.group.offset_commit import OffsetCommitKey
from testkit.clients import wait_until
from testkit.oracle.kafka import kafka_libs, tool_command
from testkit.programs import Event, Slot

# Each start of a broker takes 20 s on a busy machine.
pytestmark = pytest.mark.timeout(900)

TOOLS = "org.apache.kafka.tools"
PARTITIONS = 4
#: The Java consumer of KIP-848 ends with this error when its background thread begins to validate a position, after a
#: broker came back, while the application's thread moves the same position. The program then leaves the group.
DEFECT = "IllegalStateException: Cannot set a new position without a valid current position"


class Group:
    def __init__(self, node: Node, protocol: str, folder: Path) -> None:
        self.node = node
        self.topic = Topics(node.bootstrap).create(partitions=PARTITIONS)
        self.name = f"group-{self.topic}"
        writing, reads = folder / "producer.properties", folder / "consumer.properties"
        # The partitioner changes the partition after batch.size bytes, so that all partitions get records.
        writing.write_text(
            "retries=2147483647\nenable.idempotence=true\nlinger.ms=5\nreconnect.backoff.max.ms=200\nbatch.size=200\n"
        )
        quick = "" if protocol == "consumer" else "heartbeat.interval.ms=300\n"
        reads.write_text(f"reconnect.backoff.max.ms=200\nmax.poll.records=50\n{quick}")
        at = ["--bootstrap-server", node.bootstrap, "--topic", self.topic]
        fed = [*at, "--throughput", "250", "--command-config", str(writing)]
        self.feeder = Slot("feeder", tool_command(f"{TOOLS}.VerifiableProducer", fed), folder, may_end=False)
        session = [] if protocol == "consumer" else ["--session-timeout", "2000"]
        member = [*at, "--group-id", self.name, "--group-protocol", protocol, *session, "--command-config", str(reads)]
        command = tool_command(f"{TOOLS}.VerifiableConsumer", member)
        defect = DEFECT if protocol == "consumer" else ""
        self.slots = [Slot(f"member-{number}", command, folder, may_end=False, excused=defect) for number in range(3)]

    def events(self) -> list[Event]:
        """Return the events of all members, in the order of their own clocks, which are one clock."""
        return sorted((e for slot in self.slots for e in list(slot.events)), key=lambda e: int(e["timestamp"]))

    def progress(self) -> int:
        return sum(e["count"] for slot in self.slots for e in list(slot.events) if e["name"] == "records_consumed")

    def delivered(self) -> set[tuple[int, int]]:
        consumed = [e for e in self.events() if e["name"] == "records_consumed"]
        ranges = [part for event in consumed for part in event["partitions"]]
        return {(p["partition"], offset) for p in ranges for offset in range(p["minOffset"], p["maxOffset"] + 1)}

    def finish(self) -> None:
        assert self.feeder.worker.alive(), "the feeder has ended by itself"
        self.feeder.worker.terminate()
        self.feeder.worker.wait()
        written = {
            (number, offset)
            for number, records in reading.placed(self.node.bootstrap, self.topic).items()
            for offset, _ in records
        }
        sent = [event for event in self.feeder.events if event["name"] == "producer_send_success"]
        lost = {(event["partition"], event["offset"]) for event in sent} - written
        assert not lost, f"acknowledged, and not in the topic: {_some(lost)}"
        assert {number for number, _ in written} == set(range(PARTITIONS)), "a partition has no records"
        _wait_while(lambda: self._misses(written), f"all {len(written)} records are delivered")
        ends = [max(offset for number, offset in written if number == which) + 1 for which in range(PARTITIONS)]
        _wait_while(lambda: self._lacks(ends), f"the offsets behind them are committed: {ends}")
        self.check_committed()
        for slot in self.slots:
            check_positions(slot)
        print(f"{len(written)} records, {self.progress()} deliveries")

    def _misses(self, written: set[tuple[int, int]]) -> str:
        for slot in self.slots:
            slot.tend()
        missing = written - self.delivered()
        return f"{len(missing)} are not: {_some(missing)}" if missing else ""

    def _lacks(self, ends: list[int]) -> str:
        for slot in self.slots:
            slot.tend()
        committed = self.committed()
        return "" if committed == ends else f"{committed} are"

    def committed(self) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.node.bootstrap, "group.id": self.name})
        try:
            parts = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
            return [part.offset for part in consumer.committed(parts, timeout=30)]
        finally:
            consumer.close()

    def check_committed(self) -> None:
        """Check that offsets go up, and that a member does not begin to read a partition before a committed offset."""
        logged = self._logged_commits()
        highest: dict[int, int] = defaultdict(int)
        for number, offset in logged:
            assert offset >= highest[number], f"{offset} is committed for partition {number} after {highest[number]}"
            highest[number] = offset
        acknowledged = {
            (part["partition"], part["offset"])
            for slot in self.slots
            for event in slot.events
            if event["name"] == "offsets_committed" and event["success"]
            for part in event["offsets"]
        }
        lost = acknowledged - set(logged)
        assert not lost, f"acknowledged, and not in the log of the group (partition, offset): {_some(lost)}"
        for slot in self.slots:
            self._check_starts(slot)

    def _logged_commits(self) -> list[tuple[int, int]]:
        """Return (partition, offset) of each commit of this group, in the order in which the coordinator accepted
        them."""
        commits: list[tuple[int, int]] = []
        for record in ConfluentClient().consume(self.node.bootstrap, "__consumer_offsets"):
            found = decode(record.key, record.value)
            if found is None or not isinstance(found.key, OffsetCommitKey) or found.key.group != self.name:
                continue
            if found.key.topic == self.topic and isinstance(found.value, bytes):
                commits.append((found.key.partition, decode_offset(found.value).offset))
        return commits

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
                # A commit is printed after it was made, so a commit printed before the assignment was made before it.
                before = max(self._commits(part["partition"], when), default=0)
                assert part["minOffset"] >= before, (
                    f"{slot.name} got the partition at {when} and began at {part}, and {before} was committed before"
                )

    def _commits(self, partition: int, before_ms: int) -> Iterator[int]:
        for slot in self.slots:
            for event in slot.events:
                if event["name"] == "offsets_committed" and event["success"] and int(event["timestamp"]) < before_ms:
                    yield from (part["offset"] for part in event["offsets"] if part["partition"] == partition)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Add the last events of every process to a failure, because there is no other source about it."""
        try:
            yield
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}\n{self._story()}") from error

    def _story(self) -> str:
        lines: list[str] = []
        for slot in [*self.slots, self.feeder]:
            state = "runs" if slot.worker.alive() else "has ended"
            refused = [event for event in slot.events if event.get("success") is False]
            lines.append(f"-- {slot.name} {state}, {slot.kills} kills, {len(refused)} commits refused: {refused[-3:]}")
            moves = ("startup_complete", "partitions_assigned", "partitions_revoked")
            lines += [f"   {event}" for event in slot.events if event["name"] in moves][-12:]
            lines += [f"   last: {event}" for event in slot.events[-3:]]
            lines.append(slot.worker.tail(1500))
        log = self.node.tail(400).splitlines()
        lines += ["-- the node", *[line for line in log if "checked 0 batches" not in line][-80:]]
        return "\n".join(lines)

    def close(self) -> None:
        for slot in [self.feeder, *self.slots]:
            slot.close()


def _wait_while(lacks: Callable[[], str], why: str) -> None:
    """Wait until `lacks` returns ""; its last text is in the error."""
    said = [""]

    def is_done() -> bool:
        said[0] = lacks()
        return not said[0]

    try:
        wait_until(is_done, why, every_s=reading.EVERY_S)
    except AssertionError as error:
        raise AssertionError(f"{error}; {said[0]}") from None


def _some(places: set[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(places)[:20]


def check_positions(slot: Slot) -> None:
    """Check that a member with a partition gets one record after the other."""
    following: dict[int, int] = {}
    for event in slot.events:
        if event["name"] in ("partitions_assigned", "partitions_revoked"):
            for part in event["partitions"]:
                following.pop(part["partition"], None)
        elif event["name"] == "startup_complete":
            following.clear()
        elif event["name"] == "records_consumed":
            for part in event["partitions"]:
                expected = following.get(part["partition"], part["minOffset"])
                assert part["minOffset"] == expected, f"{slot.name}: {expected} was next, and came {event}"
                assert part["count"] == part["maxOffset"] - part["minOffset"] + 1, f"{slot.name}: gaps in {event}"
                following[part["partition"]] = part["maxOffset"] + 1


@pytest.fixture
def group(killable: Node, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Group]:
    kafka_libs()
    made = Group(killable, request.param, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("group", ["classic", "consumer"], indirect=True)
@pytest.mark.parametrize(
    "rounds", [3, pytest.param(100, marks=[pytest.mark.long(amount="100 kills"), pytest.mark.timeout(3600)])]
)
def test_every_record_is_delivered_under_kills(group: Group, rounds: int) -> None:
    with group.told():
        Kills(group.node, group.slots, broker_share=0.4).run(rounds, group.progress, least=100)
        group.finish()
