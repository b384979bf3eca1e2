"""A whole node whose disk is full or fails: the responses to clients, and the records afterwards."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.nodes.sim import Sim, playing

T = TypeVar("T")
Play = Callable[..., Any]
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
TWO_DIRS = {"log.dirs": "/one,/two", "metadata.log.dir": "/meta"}


@pytest.fixture
def play() -> Iterator[Play]:
    with playing() as run:
        yield run


async def values(sim: Sim, topic: str) -> list[bytes]:
    """All values that a consumer gets, one for each offset."""
    found: list[bytes] = []
    while True:
        answer = (await sim.fetch(topic, len(found))).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE, answer
        if not answer.records:
            return found
        for position, header in iter_batches(answer.records):
            assert header.base_offset == len(found)
            found += [bytes(record.value or b"") for record in iter_records(answer.records, position, header)]


async def log_dirs(sim: Sim) -> dict[str, Any]:
    return {result.log_dir: result for result in (await sim.call(DescribeLogDirsRequest(topics=None))).results}


async def in_two_dirs(sim: Sim) -> tuple[str, str]:
    """Create a topic with a record in /one and one in /two."""
    for name in ("a", "b"):
        await sim.create(name)
        await sim.send(name, b"before")
    one = next(name for name in ("a", "b") if f"{name}-0" in sim.disk.list("/one"))
    two = next(name for name in ("a", "b") if f"{name}-0" in sim.disk.list("/two"))
    return one, two


# -- a full disk -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_full_disk_takes_no_writes_and_loses_none(play: Play, idempotent: bool) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t")
        await sim.create("other")
        await sim.send("other", b"kept")
        sequence = 0

        async def produce(value: bytes) -> Any:
            fields: dict[str, Any] = (
                {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if idempotent else {}
            )
            return await sim.produce("t", sim.batch(value, **fields))

        acknowledged: list[bytes] = []
        for number in range(3):
            answer = await produce(b"%d" % number * 1_000)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
            acknowledged.append(b"%d" % number * 1_000)
            sequence += 1
        sim.disk.capacity_bytes = sim.disk.used_bytes + 500
        for _ in range(5):
            answer = await produce(b"refused" * 1_000)
            assert (answer.error_code, answer.base_offset) == (STORAGE, -1)
            assert await values(sim, "t") == acknowledged
            assert await values(sim, "other") == [b"kept"]
            await asyncio.sleep(5)
        # The directory is still in use.
        assert [result.error_code for result in (await log_dirs(sim)).values()] == [ErrorCode.NONE]
        assert (await sim.call(MetadataRequest(topics=None))).topics[0].partitions[0].offline_replicas == []
        sim.disk.capacity_bytes = 1 << 40
        answer = await produce(b"after")
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 3)
        again = await produce(b"after")
        assert again.error_code == ErrorCode.NONE
        acknowledged += [b"after"] if idempotent else [b"after", b"after"]
        assert again.base_offset == len(acknowledged) - 1
        assert await values(sim, "t") == acknowledged
        assert sim.node.fatal is None
        # No refused record comes back with a restart either.
        await sim.sim_node.stop()
        await sim.sim_node.start()
        assert await values(sim, "t") == acknowledged
        assert await values(sim, "other") == [b"kept"]

    play(scenario)


def test_a_disk_that_fills_at_the_end_of_a_segment(play: Play) -> None:
    """The new segment's files do not fit, or its first batch does not."""

    async def scenario(sim: Sim) -> None:
        await sim.create("t", {"internal.segment.bytes": "3000"})
        acknowledged: list[bytes] = []
        refused = 0
        sim.disk.capacity_bytes = sim.disk.used_bytes + 10_000
        for number in range(30):
            answer = await sim.produce("t", sim.batch(b"%03d" % number * 300))
            assert answer.error_code in (ErrorCode.NONE, STORAGE)
            if answer.error_code == ErrorCode.NONE:
                assert answer.base_offset == len(acknowledged)
                acknowledged.append(b"%03d" % number * 300)
            else:
                refused += 1
                if refused % 3 == 0:
                    sim.disk.capacity_bytes += 2_500
            assert await values(sim, "t") == acknowledged
        assert refused > 3 < len(acknowledged)
        sim.disk.capacity_bytes = 1 << 40
        await sim.sim_node.stop()
        await sim.sim_node.start()
        assert await values(sim, "t") == acknowledged

    play(scenario)


# -- a directory that fails --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["pwritev", "fsync"])
def test_a_directory_that_fails_goes_alone(play: Play, operation: str) -> None:
    async def scenario(sim: Sim) -> None:
        lost, kept = await in_two_dirs(sim)
        sim.disk.fail_next(operation, errno.EIO, path_contains="/one/", count=None)
        answer = await sim.produce(lost, sim.batch(b"never"))
        assert (answer.error_code, answer.base_offset) == (STORAGE, -1)
        assert (await sim.produce(kept, sim.batch(b"goes on"))).error_code == ErrorCode.NONE
        assert await values(sim, kept) == [b"before", b"goes on"]
        found = await log_dirs(sim)
        assert {path: result.error_code for path, result in found.items()} == {"/one": STORAGE, "/two": ErrorCode.NONE}
        assert [topic.name for topic in found["/two"].topics] == [kept]
        await asyncio.sleep(5)
        # The controller was notified: no broker leads the lost partitions.
        answer = await sim.call(MetadataRequest(topics=None))
        leaders = {topic.name: topic.partitions[0].leader_id for topic in answer.topics}
        assert leaders == {lost: -1, kept: 1}
        answer = (await sim.fetch(lost)).responses[0].partitions[0]
        assert answer.error_code in (STORAGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        answer = await sim.produce(lost, sim.batch(b"never"))
        assert answer.error_code in (STORAGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # New topics go to a directory that works.
        await sim.create("new", partitions=3)
        assert sorted(name for name in sim.disk.list("/two") if name.startswith("new-")) == ["new-0", "new-1", "new-2"]
        await sim.send("new", b"x")
        assert sim.node.fatal is None
        # After the repair and a restart, all acknowledged records are there.
        await sim.sim_node.stop()
        sim.disk.heal()
        await sim.sim_node.start()
        assert (await values(sim, lost))[:1] == [b"before"]
        assert await values(sim, kept) == [b"before", b"goes on"]

    # Every batch is flushed before it is acknowledged, so that a failing fsync affects a request.
    play(scenario, {**TWO_DIRS, "log.flush.interval.messages": "1"})


def test_a_directory_that_fails_before_the_controller_knows_what_is_in_it(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        assignments = sim.node.broker.assignments
        channel, asked = assignments._sender._channel, []

        class Unheard:
            def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
                asked.append(request)
                future: asyncio.Future[Any] = sim.world.loop.create_future()
                future.set_exception(ConnectionError("nobody"))
                return future

        assignments._sender._channel = Unheard()
        lost, kept = await in_two_dirs(sim)
        sim.disk.fail_next("pwritev", errno.EIO, path_contains="/one/", count=None)
        assert (await sim.produce(lost, sim.batch(b"never"))).error_code == STORAGE
        await asyncio.sleep(60)
        # It asks less and less often.
        assert 5 < len(asked) < 16
        assignments._sender._channel = channel
        await asyncio.sleep(15)
        answer = await sim.call(MetadataRequest(topics=None))
        assert {topic.name: topic.partitions[0].leader_id for topic in answer.topics} == {lost: -1, kept: 1}
        assert not assignments._untold

    play(scenario, TWO_DIRS)


def test_a_flush_in_the_background_that_fails(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        lost, kept = await in_two_dirs(sim)
        sim.disk.fail_next("fsync", errno.EIO, path_contains="/one/", count=None)
        await sim.send(lost, b"acknowledged")
        await asyncio.sleep(10)
        found = await log_dirs(sim)
        assert {path: result.error_code for path, result in found.items()} == {"/one": STORAGE, "/two": ErrorCode.NONE}
        assert await values(sim, kept) == [b"before"]
        assert sim.node.fatal is None

    play(scenario, {**TWO_DIRS, "log.flush.interval.ms": "1000", "log.flush.scheduler.interval.ms": "1000"})


@pytest.mark.parametrize(
    ("operation", "error"),
    # An append without room changes nothing; a failed fsync is final whatever its reason.
    [("pwritev", errno.EIO), ("fsync", errno.EIO), ("fsync", errno.ENOSPC)],
)
def test_a_node_whose_metadata_log_fails_stops(play: Play, operation: str, error: int) -> None:
    async def scenario(sim: Sim) -> None:
        lost, _ = await in_two_dirs(sim)
        told: list[BaseException | None] = []
        sim.node.on_fatal(lambda: told.append(sim.node.fatal))
        sim.disk.fail_next(operation, error, path_contains="/meta/", count=None)
        creating = asyncio.ensure_future(sim.try_create("new"))
        await asyncio.sleep(2)
        assert len(told) == 1
        assert "/meta" in str(told[0])
        creating.cancel()
        # It can be stopped, and its records are there when the disk works again.
        await asyncio.wait_for(sim.sim_node.stop(), 60)
        sim.disk.heal()
        await sim.sim_node.start()
        assert await values(sim, lost) == [b"before"]
        assert "new" not in await sim.topics() or operation == "fsync"

    play(scenario, TWO_DIRS)


def test_a_full_disk_with_the_metadata_log_on_it_stops_no_node(play: Play) -> None:
    """Apache Kafka stops. Here the metadata has reserved room, and the node waits for more."""

    async def scenario(sim: Sim) -> None:
        await sim.create("t")
        await sim.send("t", b"kept")
        sim.disk.capacity_bytes = sim.disk.used_bytes + 100
        assert (await sim.try_create("in-the-reserve")).error_code in (ErrorCode.NONE, STORAGE)
        await asyncio.sleep(10)
        assert sim.node.fatal is None
        assert await values(sim, "t") == [b"kept"]
        assert (await sim.try_create("another")).error_code == STORAGE
        sim.disk.capacity_bytes = 1 << 40
        await asyncio.sleep(5)
        assert (await sim.try_create("another")).error_code == ErrorCode.NONE
        await sim.send("t", b"more")
        assert await values(sim, "t") == [b"kept", b"more"]

    # The controller also writes when there is no change.
    play(scenario, {"metadata.max.idle.interval.ms": "500"})
