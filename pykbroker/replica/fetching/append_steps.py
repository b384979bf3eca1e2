"""Appends the records of one answer for one partition to the log, step by step.

Responsible for appending the records piece by piece, and for noting a gap before the first piece that has one. If the
first batch begins before the leader's log start, a log without records after this start begins at the base offset of
that batch. When all pieces are appended, the log takes over the leader's high watermark and log start, and waits for a
flush that flush.messages promises. Not responsible for turns of the loop (runner.py), nor for the reaction to the
outcome (fetcher.py).

Invariant: it calls `ended` once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from pykbroker.replica.fetching.fetcher import AppendRecords
from pykbroker.replica.fetching.partition_fetch import FetchedLog
from pykbroker.replica.fetching.pieces import BatchPiece, pieces
from pykbroker.runtime.later import OnOutcome
from pykbroker_wire.errors import ErrorCode, KafkaError


class FollowerLog(FetchedLog, Protocol):
    """The changes to the replica's log (see replica/follower.py). Each call raises KafkaError if it fails, or calls
    back with the error."""

    def append(self, records: memoryview, *, now_ms: int) -> object: ...

    def agree(self, high_watermark: int, log_start_offset: int) -> None: ...

    def note_gaps(self, then: OnOutcome) -> None: ...

    def when_flushed(self, then: OnOutcome) -> None: ...

    def truncate_to(self, offset: int, then: OnOutcome) -> None: ...

    def start_over(self, offset: int, then: OnOutcome) -> None: ...


class AppendSteps:
    """Call `step` until it returns 0. Then the append has ended, or it waits and calls `resume` later."""

    __slots__ = ("_effect", "_ended", "_follower", "_next", "_now_ms", "_pieces", "_resume", "fetch")

    def __init__(
        self,
        effect: AppendRecords,
        follower: FollowerLog,
        now_ms: Callable[[], int],
        ended: Callable[[KafkaError | None], None],
        resume: Callable[[AppendSteps], None],
    ) -> None:
        """`ended` is called with the error, or with None. `resume` is called when there are steps to do again."""
        fetch = self.fetch = effect.fetch
        self._effect = effect
        self._follower = follower
        self._now_ms = now_ms
        self._ended = ended
        self._resume = resume
        self._pieces: Iterator[BatchPiece] = pieces(effect.records, fetch.fetch_offset, fetch.leader_epoch)
        self._next: BatchPiece | None = None

    def step(self) -> int:
        """Append a piece. Return its cost (pieces.py), or 0 if there is nothing to do now."""
        try:
            piece = self._next or next(self._pieces, None)
            self._next = piece
            if piece is None:
                return self._finish()
            if self._must_wait(piece):
                return 0
            self._follower.append(piece.records, now_ms=self._now_ms())
        except KafkaError as error:
            self._ended(error)
            return 0
        self._next = None
        return piece.cost

    def _finish(self) -> int:
        self._follower.agree(self._effect.high_watermark, self._effect.log_start_offset)
        self._follower.when_flushed(self._flushed)
        return 0

    def _flushed(self, code: ErrorCode) -> None:
        self._ended(None if code == ErrorCode.NONE else KafkaError(code, "the appended records could not be flushed"))

    def _must_wait(self, piece: BatchPiece) -> bool:
        """Return True if the piece has to wait for something else first. Raises KafkaError."""
        follower = self._follower
        end = follower.log_end_offset
        has_nothing_left = end in (follower.log_start_offset, self._effect.log_start_offset)
        if piece.base_offset < end <= piece.last_offset and has_nothing_left:
            # The leader's log starts within this batch, and this log is empty, or all its records are before the
            # leader's start. As in Apache Kafka, an empty log begins with the whole batch. Apache Kafka fails in the
            # other case, in which this log may have records that no other log had.
            return self._waits_for(lambda then: follower.start_over(piece.base_offset, then))
        return piece.has_gap and self._waits_for(follower.note_gaps)

    def _waits_for(self, begin: Callable[[OnOutcome], None]) -> bool:
        """Call `begin`, which calls back now or later. Return True if it has not called back yet. Raises KafkaError if
        it called back with an error."""
        told: list[ErrorCode] = []
        has_begun = False

        def then(code: ErrorCode) -> None:
            told.append(code)
            if not has_begun:
                return
            if code == ErrorCode.NONE:
                self._resume(self)
            else:
                self._ended(_not_ready(code))

        begin(then)
        has_begun = True
        if told and told[0] != ErrorCode.NONE:
            raise _not_ready(told[0])
        return not told


def _not_ready(code: ErrorCode) -> KafkaError:
    return KafkaError(code, "the log could not be prepared for the fetched records")
