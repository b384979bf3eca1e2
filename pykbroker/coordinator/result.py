"""The decision of an operation of a coordinator: records to write, answers to send, timers to move. Values only.

An operation is a function `(shard, token, now_ms) -> Result` and touches neither futures, sockets nor the clock. Not
responsible for carrying a decision out: `machine.py` appends, replays and answers.

A Result is carried out in this order: records are appended as one batch (unless `atomic` is off) and replayed; timers
move; when everything appended so far is committed, answers are sent and effects start. If the append is refused,
nothing is replayed. Each answer of the Result becomes that request's error answer, and its effects and log lines are
dropped, and its events are not counted. Timers still move (they belong to soft state), and `append_failed` updates the
soft state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pykbroker.coordinator.measures import CountedEvent
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import TopLevel

#: Names one waiting request. An operation gets a token and may answer it now, or a later operation answers it.
Token = int

#: A timer's name. Setting a timer with the same name moves it. The first element names the kind.
TimerKey = tuple[str, ...]
#: The kinds of timers that wait for a request of a member.
WAITS_FOR_MEMBER: Final = frozenset({"session", "sync", "rebalance", "rejoin", "resync"})


class CoordinatorRecord(NamedTuple):
    """A record of the internal topic. Key and value are messages, or bytes for a value that no code looks into. A
    record without a value is a tombstone."""

    key: TopLevel
    value: TopLevel | bytes | None
    value_version: int = 0


class Timer(NamedTuple):
    """`delay_ms` None cancels the timer. `event` is passed back when it fires. `repeats` is True for work that sets its
    timer again and again, whether a client is there or not."""

    key: TimerKey
    delay_ms: int | None
    event: Any = None
    repeats: bool = False


class Result:
    """Filled while an operation decides, then read by the runtime once."""

    __slots__ = (
        "append_failed",
        "atomic",
        "collectable",
        "counts",
        "effects",
        "lines",
        "records",
        "replies",
        "timers",
        "transaction",
    )

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.replies: list[tuple[Token, Any]] = []
        self.timers: list[Timer] = []
        #: actions outside the shard once this is committed, however late that is (`CoordinatorRuntime.on_effect`)
        self.effects: list[Any] = []
        #: lines that are logged once the records are written
        self.lines: list[tuple[logging.Logger, str, tuple[object, ...]]] = []
        #: events that are counted once the records are written; None if there are none
        self.counts: dict[CountedEvent, int] | None = None
        #: (producer id, epoch): the records are one batch of that producer's transaction; its marker decides them
        self.transaction: tuple[int, int] | None = None
        #: the soft state after a refused append
        self.append_failed: AppendFailed | None = None
        #: False if the records may be written in several batches, and possibly only some of them
        self.atomic = True
        #: False if the next operation must see the records, whatever `barrier` it was submitted with
        self.collectable = True

    def reply(self, token: Token, answer: Any) -> None:
        self.replies.append((token, answer))

    def tell(self, logger: logging.Logger, line: str, *args: object) -> None:
        """Log a line if the records are written. A refused client tries again at once, which would repeat the line."""
        self.lines.append((logger, line, args))

    def count(self, event: CountedEvent, number: int = 1) -> None:
        """Count an event `number` times if the records are written."""
        if self.counts is None:
            self.counts = {}
        self.counts[event] = self.counts.get(event, 0) + number

    def set_timer(self, key: TimerKey, delay_ms: int, event: Any = None, *, repeats: bool = False) -> None:
        self.timers.append(Timer(key, delay_ms, event, repeats))

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers.append(Timer(key, None))


#: Takes the error and the time of a refused append, and returns the soft state after it.
AppendFailed = Callable[[ErrorCode, int], Result]
