"""The log of one replica of this node: whether it can be used, and what has to happen before it can.

Responsible for: the state of the log, opening it on first use, the callbacks that wait for its recovery, and telling
its user what happened to it. Not responsible for: the directory and how a log is opened (logs.py), the recovery itself
(recovery.py), moves between directories (moves.py). It knows nothing of leaders and followers: the user does.

Invariants:
* There is an open log (`log`) in the state OPEN and in no other.
* A state changes only as `_FOLLOWS` says.
* A handle that was released never brings the folder of its log back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Protocol

from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import BatchMetadata
from pykbroker_wire.errors import ErrorCode, KafkaError


class LogState(Enum):
    #: the first use opens the log
    UNOPENED = auto()
    #: an unclean stop has left the log, and it is not checked yet
    RECOVERING = auto()
    OPEN = auto()
    #: a thread cuts records off: the log takes no appends and answers no reads
    TRUNCATING = auto()
    #: its directory failed: every access answers KAFKA_STORAGE_ERROR until the next start
    OFFLINE = auto()
    #: the replica was deleted, or is another broker's now
    RELEASED = auto()


_FOLLOWS: dict[LogState, frozenset[LogState]] = {
    LogState.UNOPENED: frozenset({LogState.RECOVERING, LogState.OPEN, LogState.OFFLINE, LogState.RELEASED}),
    LogState.RECOVERING: frozenset({LogState.UNOPENED, LogState.OFFLINE, LogState.RELEASED}),
    LogState.OPEN: frozenset({LogState.TRUNCATING, LogState.OFFLINE, LogState.RELEASED}),
    LogState.TRUNCATING: frozenset({LogState.OPEN, LogState.OFFLINE, LogState.RELEASED}),
    LogState.OFFLINE: frozenset({LogState.OFFLINE, LogState.RELEASED}),
    LogState.RELEASED: frozenset(),
}


class LogUser(Protocol):
    """What a log is opened for."""

    @property
    def promises_flush(self) -> bool:
        """Records are flushed before they are acknowledged."""

    def log_opened(self, log: PartitionLog) -> None:
        """The log can be used from now on."""

    def log_moved(self, log: PartitionLog) -> None:
        """The same records are in another directory from now on."""

    def log_truncated(self) -> None:
        """A truncation has ended, well or not: the log can be used again."""

    def log_lost(self) -> None:
        """The directory of the log failed."""


class LogOpener(Protocol):
    """What opens logs."""

    def open_log(self, handle: LogHandle) -> PartitionLog:
        """Open the log of a handle. Raises KafkaError, after it has taken the handle offline if that is the reason."""


class LogHandle:
    """Made by `Logs.add`; a user attaches itself before anything else is asked."""

    __slots__ = ("_batches", "_opener", "_user", "_waiting", "index", "is_new", "log", "state", "topic", "topic_id")

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        opener: LogOpener,
        *,
        is_new: bool = False,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        #: made after this node's start
        self.is_new = is_new
        self.state = LogState.UNOPENED
        #: the log, while it is open
        self.log: PartitionLog | None = None
        self._opener = opener
        self._user: LogUser | None = None
        # Callbacks that wait for the recovery.
        self._waiting: tuple[Callable[[], None], ...] = ()
        # Batches of producers that only the recovery has read, for the log when it is opened.
        self._batches: Mapping[int, list[BatchMetadata]] | None = None

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def attach(self, user: LogUser) -> None:
        """The user is told what happens to the log. There is one user."""
        assert self._user is None, self
        self._user = user

    @property
    def user(self) -> LogUser:
        assert self._user is not None, self
        return self._user

    # -- use ----------------------------------------------------------------------------------------------------------

    def open(self) -> PartitionLog:
        """Return the log, opened on first use. Raises KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER while the log is
        being recovered or truncated, and when the replica is gone."""
        log = self.log
        if log is None:
            match self.state:
                case LogState.OFFLINE:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: its log directory is offline")
                case LogState.RECOVERING:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: its log is being recovered")
                case LogState.TRUNCATING:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: its log is being truncated")
                case LogState.RELEASED:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: this node no longer has it")
            log = self._opener.open_log(self)
            self._enter(LogState.OPEN)
            self.log = log
            if self._batches:
                log.producers.remember(self._batches)
                self._batches = None
            self.user.log_opened(log)
            if self.log is None:
                # What the user wrote at once has met a directory that fails.
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: its log directory is offline")
        return log

    @property
    def can_be_opened(self) -> bool:
        """The log is not open, and `open` would open it."""
        return self.state is LogState.UNOPENED

    @property
    def offline(self) -> bool:
        return self.state is LogState.OFFLINE

    @property
    def recovering(self) -> bool:
        return self.state is LogState.RECOVERING

    @property
    def truncating(self) -> bool:
        return self.state is LogState.TRUNCATING

    @property
    def comes_back(self) -> bool:
        """The log cannot be used now, and will be by itself."""
        return self.state in (LogState.RECOVERING, LogState.TRUNCATING)

    # -- what happens to it -------------------------------------------------------------------------------------------

    def await_recovery(self) -> None:
        """Refuse to open the log before `recovered`."""
        self._enter(LogState.RECOVERING)

    def when_recovered(self, callback: Callable[[], None]) -> None:
        """Call back once the log can be opened, or is known to be lost; at once if it can. A handle that is released
        meanwhile calls nothing back."""
        if self.recovering:
            self._waiting += (callback,)
        else:
            callback()

    def recovered(self, batches: Mapping[int, list[BatchMetadata]] | None = None) -> None:
        """The log is as a clean stop leaves one. `batches` of producers, which only the recovery has read, are kept
        until the log is opened: a worker finishes with many logs in one turn."""
        self._enter(LogState.UNOPENED)
        self._batches = batches
        self._call_back()

    def begin_truncation(self) -> None:
        """The log is left to a truncation (truncation_threads.py)."""
        self._enter(LogState.TRUNCATING)
        self.log = None

    def end_truncation(self, log: PartitionLog) -> None:
        """The log is back, unless its directory failed or the replica went meanwhile."""
        if self.truncating:
            self._enter(LogState.OPEN)
            self.log = log
            self.user.log_truncated()

    def moved(self, log: PartitionLog) -> None:
        """The log has a new place, in another directory."""
        assert self.state is LogState.OPEN, self
        self.log = log
        self.user.log_moved(log)

    def take_offline(self) -> None:
        """The directory failed. Reads that were handed out stay valid; the log is not opened again."""
        self._enter(LogState.OFFLINE)
        self.log = None
        self._call_back()
        self.user.log_lost()

    def release(self) -> PartitionLog | None:
        """The replica is no longer this node's. Returns the log if it can be used: the caller closes it."""
        self._enter(LogState.RELEASED)
        log, self.log = self.log, None
        self._waiting = ()
        return log

    def _call_back(self) -> None:
        waiting, self._waiting = self._waiting, ()
        for callback in waiting:
            callback()

    def _enter(self, state: LogState) -> None:
        assert state in _FOLLOWS[self.state], f"{self}: {state.name} after {self.state.name}"
        self.state = state
