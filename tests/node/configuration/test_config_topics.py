"""Every topic key that has an effect, and the broker keys for it, in each way of setting them. These are: with the
topic, later, in the properties file, as the default of the cluster, for one broker. The effect must differ from that of
the default."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pykbroker.metadata.features import ELR_VERSION
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.compression import Codec
from testkit.acting import acts
from testkit.nodes.sim import BROKER, TOPIC, Sim, open_sims

COMPRESSIBLE = b"".join(b"%d,%d;" % (number, number * number) for number in range(2_000))


@dataclass(frozen=True)
class Case:
    topic_key: str
    value: str
    broker_key: str | None
    observe: Callable[[Sim], Awaitable[Any]]
    #: True for the result of `observe` if the key has an effect
    expected: Callable[[Any], bool]
    #: further keys in all runs, which make the effect quick to see
    beside: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.topic_key}-{self.broker_key or 'topic only'}"


# Effects that a client or the disk shows. The topic is always called `t`.


async def two_large_batches(sim: Sim) -> int:
    for _ in range(2):
        await sim.send("t", b"x" * 700_000)
    return len(sim.files("t"))


async def two_small_batches(sim: Sim) -> int:
    for _ in range(2):
        await sim.send("t", b"x" * 700)
    return len(sim.files("t"))


async def bytes_of_a_new_segment(sim: Sim) -> int:
    """The first segment may have begun before the change."""
    for _ in range(2):
        await sim.send("t", b"x" * 700)
    return sim.disk.open(f"/data/t-0/{sim.files('t')[-1]}").size()


async def second_segment_after(sim: Sim) -> int:
    """Return the seconds until the second segment begins, at most 90."""
    await sim.send("t", b"first")
    for second in range(1, 91):
        await asyncio.sleep(1)
        await sim.send("t", b"more")
        if len(sim.files("t")) > 1:
            return second
    return 1_000


async def segments_of_forty_batches(sim: Sim) -> int:
    for number in range(40):
        await sim.send("t", b"%d" % number)
    return len(sim.files("t"))


async def bytes_of_the_second_index(sim: Sim) -> int:
    """The first segment may have begun before the change."""
    await sim.send("t", b"first")
    sim.log("t").roll(sim.world.now_ms())
    for number in range(20):
        await sim.send("t", b"%d" % number * 500)
    sim.log("t").roll(sim.world.now_ms())
    return len(sim.disk.open("/data/t-0/00000000000000000001.index").pread(1 << 20, 0))


async def first_offset_after_a_minute(sim: Sim) -> int:
    for _ in range(3):
        await sim.send("t", b"x" * 40_000)
        await asyncio.sleep(20)
    await asyncio.sleep(10)
    return sim.log("t").log_start_offset


async def renamed_files_after_retention(sim: Sim) -> int:
    """Return the files of a segment that retention has deleted and that are still on disk."""
    await sim.send("t", b"x")
    await asyncio.sleep(12)
    await sim.send("t", b"y")
    for _ in range(20):
        await asyncio.sleep(1)
        if sim.log("t").log_start_offset:
            break
    await asyncio.sleep(8)
    assert sim.log("t").log_start_offset == 1
    return len(sim.files("t", ".deleted"))


async def unflushed_at_once(sim: Sim) -> int:
    """Return the number of records that a power loss right after the response would destroy."""
    await sim.send("t", b"one", b"two")
    return sim.log("t").log_end_offset - sim.log("t").recovery_point


async def unflushed_after_five_seconds(sim: Sim) -> int:
    await sim.send("t", b"one", b"two")
    await asyncio.sleep(5)
    return sim.log("t").log_end_offset - sim.log("t").recovery_point


async def error_of_a_large_batch(sim: Sim) -> int:
    code: int = (await sim.produce("t", sim.batch(b"x" * 5_000))).error_code
    return code


async def error_of_a_large_record(sim: Sim) -> int:
    """The batch is small, as it is compressed."""
    code: int = (await sim.produce("t", sim.batch(b"x" * 5_000, codec=Codec.GZIP))).error_code
    return code


async def error_of_an_old_batch(sim: Sim) -> int:
    code: int = (await sim.produce("t", sim.batch(b"x", age_ms=10_000))).error_code
    return code


async def error_of_a_future_batch(sim: Sim) -> int:
    code: int = (await sim.produce("t", sim.batch(b"x", age_ms=-10_000))).error_code
    return code


async def time_in_the_answer(sim: Sim) -> int:
    time_ms: int = (await sim.produce("t", sim.batch(b"x", age_ms=10_000))).log_append_time_ms
    return time_ms


async def stored_codec(sim: Sim) -> int:
    await sim.send("t", COMPRESSIBLE)
    return int((await sim.stored("t"))[0].compression)


async def stored_bytes(sim: Sim) -> int:
    await sim.send("t", COMPRESSIBLE)
    return (await sim.stored("t"))[0].size_in_bytes


async def error_of_acks_all(sim: Sim) -> int:
    """The topic has two replicas, and one is in sync."""
    sim.lose_a_replica("t")
    code: int = (await sim.produce("t", sim.batch(b"x"), acks=-1)).error_code
    return code


async def first_offset_and_error_without_key(sim: Sim) -> tuple[int, int]:
    for number in range(3):
        answer = await sim.produce("t", sim.batch(b"%d" % number, key=b"k"))
        assert answer.error_code == ErrorCode.NONE
        await asyncio.sleep(20)
    keyless = (await sim.produce("t", sim.batch(b"x"))).error_code
    return sim.log("t").log_start_offset, keyless


QUICK = (("segment.ms", "10000"),)
SMALL = (("internal.segment.bytes", "50000"),)


async def records_left_of_one_key(sim: Sim) -> int:
    for number in range(9):
        await sim.produce("t", sim.batch(b"%d" % number * 100, key=b"k"))
    await asyncio.sleep(60)
    return sum(header.record_count for header in await sim.everything("t"))


async def tombstones_after_two_cleanings(sim: Sim) -> int:
    await sim.produce("t", sim.batch(None, key=b"gone"))
    for _ in range(2):
        for number in range(4):
            await sim.produce("t", sim.batch(b"%d" % number * 100, key=b"k"))
        await asyncio.sleep(30)
    return sum(header.base_offset == 0 and header.record_count > 0 for header in await sim.everything("t"))


COMPACTED = (("cleanup.policy", "compact"), ("internal.segment.bytes", "250"))

CASES = [
    Case("segment.bytes", "1048576", "log.segment.bytes", two_large_batches, lambda found: found == 2),
    Case("internal.segment.bytes", "1000", None, two_small_batches, lambda found: found == 2),
    Case(
        "preallocate",
        "true",
        "log.preallocate",
        bytes_of_a_new_segment,
        lambda found: found == 1_000,
        (("internal.segment.bytes", "1000"),),
    ),
    Case("segment.ms", "30000", "log.roll.ms", second_segment_after, lambda found: 30 <= found <= 32),
    Case(
        "segment.jitter.ms",
        "25000",
        "log.roll.jitter.ms",
        second_segment_after,
        lambda found: 5 <= found <= 29,
        (("segment.ms", "30000"),),
    ),
    Case(
        "segment.index.bytes",
        "80",
        "log.index.size.max.bytes",
        segments_of_forty_batches,
        lambda found: found > 2,
        (("index.interval.bytes", "0"),),
    ),
    Case(
        "index.interval.bytes",
        "100",
        "log.index.interval.bytes",
        bytes_of_the_second_index,
        lambda found: found == 8 * 19,
    ),
    Case("retention.ms", "15000", "log.retention.ms", first_offset_after_a_minute, lambda found: found > 0, QUICK),
    Case(
        "retention.bytes", "50000", "log.retention.bytes", first_offset_after_a_minute, lambda found: found == 1, SMALL
    ),
    Case(
        "file.delete.delay.ms",
        "5000",
        "log.segment.delete.delay.ms",
        renamed_files_after_retention,
        lambda found: found == 0,
        (("retention.ms", "12000"), *QUICK),
    ),
    Case("flush.messages", "2", "log.flush.interval.messages", unflushed_at_once, lambda found: found == 0),
    Case("flush.ms", "2000", "log.flush.interval.ms", unflushed_after_five_seconds, lambda found: found == 0),
    Case(
        "max.message.bytes",
        "1000",
        "message.max.bytes",
        error_of_a_large_batch,
        lambda found: found == ErrorCode.MESSAGE_TOO_LARGE,
    ),
    Case(
        "max.decompressed.message.bytes",
        "1000",
        "max.decompressed.message.bytes",
        error_of_a_large_record,
        lambda found: found == ErrorCode.INVALID_RECORD,
    ),
    Case(
        "message.timestamp.before.max.ms",
        "1000",
        "log.message.timestamp.before.max.ms",
        error_of_an_old_batch,
        lambda found: found == ErrorCode.INVALID_TIMESTAMP,
    ),
    Case(
        "message.timestamp.after.max.ms",
        "1000",
        "log.message.timestamp.after.max.ms",
        error_of_a_future_batch,
        lambda found: found == ErrorCode.INVALID_TIMESTAMP,
    ),
    Case(
        "message.timestamp.type",
        "LogAppendTime",
        "log.message.timestamp.type",
        time_in_the_answer,
        lambda found: found > 0,
    ),
    Case("compression.type", "lz4", "compression.type", stored_codec, lambda found: found == Codec.LZ4),
    *(
        Case(
            f"compression.{codec}.level",
            level,
            f"compression.{codec}.level",
            stored_bytes,
            lambda found: found > 0,
            (("compression.type", codec),),
        )
        for codec, level in (("gzip", "1"), ("lz4", "1"), ("zstd", "19"))
    ),
    Case(
        "min.insync.replicas",
        "2",
        "min.insync.replicas",
        error_of_acks_all,
        lambda found: found == ErrorCode.NOT_ENOUGH_REPLICAS,
    ),
    Case(
        "cleanup.policy",
        "compact",
        "log.cleanup.policy",
        first_offset_and_error_without_key,
        lambda found: found == (0, ErrorCode.INVALID_RECORD),
        (("retention.ms", "15000"), *QUICK),
    ),
    Case(
        "min.cleanable.dirty.ratio",
        "1",
        "log.cleaner.min.cleanable.ratio",
        records_left_of_one_key,
        lambda found: found == 9,
        COMPACTED,
    ),
    Case(
        "min.compaction.lag.ms",
        "1000000",
        "log.cleaner.min.compaction.lag.ms",
        records_left_of_one_key,
        lambda found: found == 9,
        COMPACTED,
    ),
    Case(
        "max.compaction.lag.ms",
        "20000",
        "log.cleaner.max.compaction.lag.ms",
        records_left_of_one_key,
        lambda found: found < 9,
        (("min.cleanable.dirty.ratio", "1"), *COMPACTED),
    ),
    Case(
        "delete.retention.ms",
        "1000",
        "log.cleaner.delete.retention.ms",
        tombstones_after_two_cleanings,
        lambda found: found == 0,
        (("min.cleanable.dirty.ratio", "0.01"), *COMPACTED),
    ),
]


@pytest.fixture
def sims() -> Iterator[Callable[..., Sim]]:
    with open_sims() as make:
        yield make


WAYS = ("created with", "altered", "file", "cluster default", "this broker")


def play(sim: Sim, case: Case, way: str) -> Any:
    async def scenario(sim: Sim) -> Any:
        own = {case.topic_key: case.value} if way == "created with" else {}
        await sim.create("t", {**dict(case.beside), **own})
        # Open the log, so that a change must reach it.
        _ = sim.log("t")
        if way == "altered":
            await sim.alter(TOPIC, "t", {case.topic_key: case.value})
        elif way in ("cluster default", "this broker"):
            assert case.broker_key is not None
            if (way, case.broker_key) == ("this broker", "min.insync.replicas"):
                # With eligible leader replicas it is refused, because all brokers must have the same value.
                await sim.lower(ELR_VERSION)
            await sim.alter(BROKER, "" if way == "cluster default" else "1", {case.broker_key: case.value})
        return await case.observe(sim)

    return sim.run(scenario)


def _keys_of(run: Mapping[str, object]) -> list[str]:
    case = run["case"]
    assert isinstance(case, Case)
    return [key for key in (case.topic_key, case.broker_key) if key is not None]


@pytest.mark.slow
@acts(
    topic=(
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "internal.segment.bytes",
        "max.compaction.lag.ms",
        "max.decompressed.message.bytes",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    ),
    broker=(
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleanup.policy",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type",
        "log.preallocate",
        "log.retention.bytes",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "log.segment.delete.delay.ms",
        "max.decompressed.message.bytes",
        "message.max.bytes",
        "min.insync.replicas",
    ),
    run_shows=_keys_of,
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_way_of_setting_it_acts(case: Case, sims: Callable[..., Sim]) -> None:
    untouched = play(sims(), case, "default")
    for way in WAYS:
        if case.broker_key is None and way not in ("created with", "altered"):
            continue
        sim = sims({case.broker_key: case.value} if way == "file" and case.broker_key is not None else None)
        found = play(sim, case, way)
        assert case.expected(found), f"{way}: {found}"
        assert found != untouched, way


@pytest.mark.slow
def test_the_cases_are_all_claimed() -> None:
    """The literals above and CASES must be equal."""
    from tests.config.test_acting import claims

    mine = test_each_way_of_setting_it_acts.__name__
    assert {key for key, test in claims("topic") if test == mine} == {case.topic_key for case in CASES}
    assert {key for key, test in claims("broker") if test == mine} == {
        case.broker_key for case in CASES if case.broker_key
    }
