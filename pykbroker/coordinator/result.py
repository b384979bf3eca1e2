"""What an operation of a coordinator decides: records to write, answers to give, timers to move. Values only.

An operation is a function `(shard, token, now_ms) -> Result` and touches neither futures, sockets nor the clock. Not
responsible for doing any of it: `machine.py` appends, replays and answers.

What a Result says happens in this order: records are appended as one batch (unless `atomic` is off) and replayed;
timers move; answers, then effects, leave when everything appended so far is committed. If the append is refused,
nothing is replayed, every answer of the Result becomes that request's error answer, its effects and its lines for the
log are forgotten, timers still move (they belong to soft state), and `append_failed` says how soft state follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import TopLevel

#: Names one parked request. An operation is given one; it may answer it now, or any operation later.
Token = int

#: A timer's name: setting it again moves it. The first element names the kind.
TimerKey = tuple[str, ...]


class CoordinatorRecord(NamedTuple):
    """A record of the internal topic, as messages; a value that no code looks into as bytes. No value: a tombstone."""

    key: TopLevel
    value: TopLevel | bytes | None
    value_version: int = 0


class Timer(NamedTuple):
    """`delay_ms` None cancels. `event` is handed back when it fires."""

    key: TimerKey
    delay_ms: int | None
    event: Any = None


class Result:
    """Grows while an operation decides; read by the runtime once."""

    __slots__ = (
        "append_failed",
        "atomic",
        "collectable",
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
        #: what the world is to do once this is committed, however late that is (`CoordinatorRuntime.on_effect`)
        self.effects: list[Any] = []
        #: what happened once the records are written, for the log
        self.lines: list[tuple[logging.Logger, str, tuple[object, ...]]] = []
        #: (producer id, epoch): the records are one batch of that producer's transaction; its marker decides them
        self.transaction: tuple[int, int] | None = None
        #: (error, now_ms) -> Result: soft state after a refused append
        self.append_failed: Callable[[ErrorCode, int], Result] | None = None
        #: False: the records may be written in several batches, and some of them only
        self.atomic = True
        #: False: what comes next must see the records, whatever was said when it was submitted
        self.collectable = True

    def reply(self, token: Token, answer: Any) -> None:
        self.replies.append((token, answer))

    def tell(self, logger: logging.Logger, line: str, *args: object) -> None:
        """Have a line written into the log if the records are. A client that is refused tries again at once."""
        self.lines.append((logger, line, args))

    def set_timer(self, key: TimerKey, delay_ms: int, event: Any = None) -> None:
        self.timers.append(Timer(key, delay_ms, event))

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers.append(Timer(key, None))
