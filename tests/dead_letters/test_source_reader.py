"""Reads of the source log that fail: each has an end, because the writer waits for it."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pykbroker.dead_letters import source_reader
from pykbroker.dead_letters.source_reader import SourceReader
from pykbroker.dead_letters.source_records import CopiedRecords, NotReadable, SourceOutcome
from pykbroker_log.results import ReadResult
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import build_batch
from tests.replica.world import NODE, World, batch

if TYPE_CHECKING:
    from pykbroker.replica.batch_checks import BatchChecks
    from pykbroker.replica.partition import Partition
    from pykbroker.runtime.cold_reads import ColdReads

BATCH = build_batch([(b"k", b"v", (), 0)], base_offset=4)


def raises(*args: Any, **kwargs: Any) -> Any:
    raise MemoryError("a bug")


def whole(*args: Any, **kwargs: Any) -> ReadResult:
    return ReadResult([BATCH], len(BATCH), 4, 5, 0)


def copied(
    read: Any, times: int = 1, high_watermark: int = 5, end: int = 5, *, recovering: bool = False
) -> SourceOutcome:
    """Read offset 4 of a partition whose method `read` is this. `end`: the offset after the last of its log."""

    async def scenario() -> SourceOutcome:
        log = SimpleNamespace(high_watermark=high_watermark, log_end_offset=end)
        partition = cast("Partition", SimpleNamespace(recovering=recovering, read=read, log=log))
        nothing = SimpleNamespace()
        reader = SourceReader(
            asyncio.get_running_loop(), lambda *_: partition, cast("ColdReads", nothing), cast("BatchChecks", nothing)
        )
        for _ in range(times):
            found = await asyncio.wait_for(reader.read(b"s" * 16, 0, 4, 4, 1_000), 5)
        return found

    return asyncio.run(scenario())


def test_a_record_is_copied() -> None:
    assert copied(whole) == CopiedRecords({4: (b"k", b"v")}, 4)


def test_records_that_the_log_has_lost_are_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    def lost(*args: Any, **kwargs: Any) -> ReadResult:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    with caplog.at_level(logging.INFO):
        assert copied(lost, times=3) is NotReadable.LOST
    assert caplog.text.count("offset 4 cannot be read for a dead letter") == 1


def test_a_read_with_an_unexpected_error_ends_without_copies(caplog: pytest.LogCaptureFixture) -> None:
    assert copied(raises) is NotReadable.LOST
    assert "Offset 4 cannot be read for a dead letter" in caplog.text


@pytest.mark.parametrize("step", ["takes_long", "copy_records"])
def test_a_copy_with_an_unexpected_error_ends_too(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source_reader, step, raises)
    assert copied(whole) is NotReadable.LOST
    assert "Offset 4 cannot be copied to a dead letter" in caplog.text


@pytest.mark.parametrize(
    ("high_watermark", "end", "found"),
    [
        (4, 5, NotReadable.NOT_YET),
        (0, 9, NotReadable.NOT_YET),
        (5, 9, CopiedRecords({4: (b"k", b"v")}, 4)),
    ],
)
def test_a_record_from_the_high_watermark_on_cannot_be_read_yet(
    high_watermark: int, end: int, found: SourceOutcome
) -> None:
    """A new leader has a high watermark that may be too low."""
    assert copied(whole, high_watermark=high_watermark, end=end) == found


def test_a_log_that_ends_before_the_record_has_lost_it() -> None:
    def lost(*args: Any, **kwargs: Any) -> ReadResult:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    assert copied(lost, high_watermark=3, end=4) is NotReadable.LOST


def test_a_log_that_is_being_recovered_cannot_be_read_yet() -> None:
    assert copied(raises, recovering=True) is NotReadable.NOT_YET


def test_the_record_of_a_leader_whose_high_watermark_is_behind_comes_once_it_has_moved() -> None:
    """A real partition: it moves the high watermark only when its follower has fetched the record."""
    world = World()
    world.register(NODE, 2)
    partition = world.create("t", replicas=(NODE, 2))
    partition.append(batch(b"a", b"b"), required_acks=1, now_ms=world.runtime.now_ms())
    world.loop.settle()
    nothing = SimpleNamespace()
    reader = SourceReader(
        world.runtime.loop, lambda *_: partition, cast("ColdReads", nothing), cast("BatchChecks", nothing)
    )

    def read() -> SourceOutcome:
        return reader.read(partition.topic_id, 0, 1, 1, 1_000).result()

    assert (partition.high_watermark, partition.log.log_end_offset) == (0, 2)
    assert read() is NotReadable.NOT_YET
    partition.note_fetched(2, 2)
    assert partition.high_watermark == 2
    assert read() == CopiedRecords({1: (None, b"b")}, 1)
