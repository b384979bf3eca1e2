"""Apache Kafka's TransactionalMessageCopier under SIGKILL of the broker and of the copiers.

At the same time VerifiableProducer writes the input and VerifiableConsumer reads the output; the copier itself aborts
every third transaction. At the end each partition of the output, with read_committed, is the input: every record once,
in its order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.exactly_once import reading
from compat_tests.exactly_once.hanging import wait_with_mending
from compat_tests.exactly_once.kills import Kills
from compat_tests.node import Node
from compat_tests.topics import Topics
from testkit.clients import PATIENCE_S, wait_until
from testkit.oracle.kafka import kafka_libs, tool_command
from testkit.programs import Event, Slot

# Each start of a broker takes 20 s on a machine with other work.
pytestmark = pytest.mark.timeout(900)

TOOLS = "org.apache.kafka.tools"
PARTITIONS = 2
#: A transaction that a killed copier left open ends after its timeout: a copier asks for its committed offsets before
#: it starts its producer, and they are not stable until then.
TRANSACTION_TIMEOUT_MS = 3000


def copied(events: list[Event]) -> int:
    """Return the records in committed transactions; each worker in a slot begins to count again."""
    total = last = 0
    for event in list(events):
        now = int(event["totalProcessed"])
        total += max(0, now - last) if now >= last else now
        last = now
    return total


class Copy:
    """Input, output, and all programs that run with them."""

    def __init__(self, node: Node, folder: Path, *, in_groups: bool) -> None:
        self.node = node
        topics = Topics(node.bootstrap)
        self.source = topics.create(partitions=PARTITIONS)
        self.target = topics.create(partitions=PARTITIONS)
        self._folder = folder
        idempotent, committed = folder / "producer.properties", folder / "consumer.properties"
        # The partitioner changes the partition after batch.size bytes, so that all partitions get records.
        idempotent.write_text(
            "retries=2147483647\nenable.idempotence=true\nlinger.ms=5\nreconnect.backoff.max.ms=200\nbatch.size=200\n"
        )
        committed.write_text("isolation.level=read_committed\nreconnect.backoff.max.ms=200\nmax.poll.records=5000\n")
        self.feeder = self._slot(
            "feeder", "VerifiableProducer", "--bootstrap-server", node.bootstrap, "--topic", self.source,
            "--throughput", "250", "--command-config", str(idempotent),
        )  # fmt: skip
        self.watcher = self._slot(
            "watcher", "VerifiableConsumer", "--bootstrap-server", node.bootstrap, "--topic", self.target,
            "--group-id", f"watch-{self.target}", "--verbose", "--command-config", str(committed),
        )  # fmt: skip
        wait_until(lambda: self._fed() == set(range(PARTITIONS)), "each partition has input")
        how = ["--group-mode", "--use-group-metadata"] if in_groups else []
        self.copiers = [
            self._slot(
                f"copier-{number}", "TransactionalMessageCopier", "--broker-list", node.bootstrap,
                "--input-topic", self.source, "--input-partition", str(number), "--output-topic", self.target,
                "--consumer-group", f"copy-{self.source}", "--transactional-id", f"copier-{self.source}-{number}",
                "--transaction-size", "25", "--transaction-timeout", str(TRANSACTION_TIMEOUT_MS),
                "--enable-random-aborts", *how, may_end=True,
            )
            for number in range(PARTITIONS)
        ]  # fmt: skip

    def _slot(self, name: str, main: str, *args: str, may_end: bool = False) -> Slot:
        return Slot(name, tool_command(f"{TOOLS}.{main}", args), self._folder, may_end=may_end)

    def _fed(self) -> set[int]:
        return {e["partition"] for e in list(self.feeder.events) if e["name"] == "producer_send_success"}

    def progress(self) -> int:
        return sum(copied(slot.events) for slot in self.copiers)

    def finish(self) -> None:
        """Stop the input, and wait until the copiers have copied everything."""
        self.feeder.worker.terminate()
        self.feeder.worker.wait()
        source = reading.values(self.node.bootstrap, self.source)
        total = sum(map(len, source.values()))

        def whole() -> bool:
            for slot in self.copiers:
                slot.tend()
            now = reading.values(self.node.bootstrap, self.target)
            return sum(map(len, now.values())) >= total

        wait_with_mending(
            self.node, whole, f"all {total} records are copied", timeout_s=PATIENCE_S, every_s=reading.EVERY_S
        )
        for slot in self.copiers:
            slot.close()
        target = reading.placed(self.node.bootstrap, self.target)
        for number in range(PARTITIONS):
            found = [value for _, value in target[number]]
            assert found == source[number], f"partition {number}: {different(source[number], found)}"
        acked = {
            (e["partition"], e["value"].encode()) for e in self.feeder.events if e["name"] == "producer_send_success"
        }
        assert acked <= {(number, value) for number in source for value in source[number]}, "what was acked is there"

        everything = {(number, offset): value for number in target for offset, value in target[number]}

        def watched() -> dict[tuple[int, int], bytes]:
            read = [event for event in list(self.watcher.events) if event["name"] == "record_data"]
            return {(e["partition"], e["offset"]): e["value"].encode() for e in read}

        why = "the consumer beside it has seen the whole output"
        wait_with_mending(
            self.node, lambda: len(watched()) >= total, why, timeout_s=PATIENCE_S, every_s=reading.EVERY_S
        )
        assert watched() == everything
        print(
            f"{total} records copied; copiers ended by themselves {sum(len(slot.ends) for slot in self.copiers)} times"
        )

    def close(self) -> None:
        for slot in [self.feeder, self.watcher, *self.copiers]:
            slot.close()


def different(wanted: list[bytes], found: list[bytes]) -> str:
    missing, extra = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    first = next((i for i, pair in enumerate(zip(wanted, found, strict=False)) if pair[0] != pair[1]), -1)
    return (
        f"{len(wanted)} in, {len(found)} out, {len(found) - len(set(found))} twice, missing {missing[:10]}, "
        f"unknown {extra[:10]}, first difference at {first}: {wanted[first : first + 3]} {found[first : first + 3]}"
    )


@pytest.fixture
def copy(killable: Node, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Copy]:
    kafka_libs()
    made = Copy(killable, tmp_path, in_groups=request.param)
    yield made
    made.close()


@pytest.mark.parametrize("copy", [False], indirect=True, ids=["assigned"])
@pytest.mark.parametrize(
    "rounds", [3, pytest.param(200, marks=[pytest.mark.long(amount="200 kills"), pytest.mark.timeout(3600)])]
)
def test_every_record_is_copied_once_under_kills(copy: Copy, rounds: int) -> None:
    """Each copier has its own partition."""
    Kills(copy.node, copy.copiers).run(rounds, copy.progress, least=100)
    copy.finish()


@pytest.mark.parametrize("copy", [True], indirect=True, ids=["group"])
@pytest.mark.parametrize(
    "rounds", [2, pytest.param(60, marks=[pytest.mark.long(amount="60 kills"), pytest.mark.timeout(3600)])]
)
def test_every_record_is_copied_once_by_a_group_under_kills(copy: Copy, rounds: int) -> None:
    """The copiers are members of a group and commit with its metadata (KIP-447); a killed one is removed after 10 s."""
    Kills(copy.node, copy.copiers, broker_share=0.75).run(rounds, copy.progress, least=100)
    copy.finish()
