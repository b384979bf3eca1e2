"""The log of one replica of this node: whether it can be used, and what has to happen before that.

Responsible for the state of the log, opening it on first use, the callbacks that wait for its recovery, and notifying
its user. Not responsible for the directory and the way in which a log is opened (logs.py), the recovery itself
(recovery.py), nor moves between directories (moves.py). Leaders and followers matter only to its user.

Invariants:
* There is an open log (`log`) in the state OPEN and in no other.
* A state changes only as `_FOLLOWS` allows.
* A handle that was released never creates the folder of its log again.
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
    #: an unclean stop left the log, and it is not checked yet
    RECOVERING = auto()
    OPEN = auto()
    #: a thread cuts records off, so the log takes no appends and answers no reads
    TRUNCATING = auto()
    #: the directory failed: each access answers KAFKA_STORAGE_ERROR until the next start
    OFFLINE = auto()
    #: the replica was deleted, or belongs to another broker now
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
    """The user of a log: it is notified of changes."""

    @property
    def promises_flush(self) -> bool:
        """True if records are flushed before they are acknowledged."""

    def log_opened(self, log: PartitionLog) -> None:
        """The log can be used from now on."""

    def log_moved(self, log: PartitionLog) -> None:
        """The same records are in another directory from now on."""

    def log_truncated(self) -> None:
        """A truncation has ended, with success or not. The log can be used again."""

    def log_lost(self) -> None:
        """The directory of the log failed."""


class LogOpener(Protocol):
    """Opens logs (logs.py)."""

    def open_log(self, handle: LogHandle) -> PartitionLog:
        """Open the log of a handle. Raises KafkaError, and takes the handle offline if its directory is offline."""


class LogHandle:
    """`Logs.add` makes it. A user has to attach itself before any other call."""

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
        #: True if it was made after this node's start
        self.is_new = is_new
        self.state = LogState.UNOPENED
        #: the log, while it is open
        self.log: PartitionLog | None = None
        self._opener = opener
        self._user: LogUser | None = None
        # Callbacks that wait for the recovery.
        self._waiting: tuple[Callable[[], None], ...] = ()
        # Batches of producers that only the recovery has read. The log gets them when it is opened.
        self._batches: Mapping[int, list[BatchMetadata]] | None = None

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def attach(self, user: LogUser) -> None:
        """Let `user` be notified of changes of the log. There is one user."""
        assert self._user is None, self
        self._user = user

    @property
    def user(self) -> LogUser:
        assert self._user is not None, self
        return self._user

    # -- use ----------------------------------------------------------------------------------------------------------

    def open(self) -> PartitionLog:
        """Return the log, opened on first use. Raises KAFKA_STORAGE_ERROR. Raises NOT_LEADER_OR_FOLLOWER while the log
        is being recovered or truncated, and if the replica is gone."""
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
                # A write of the user in `log_opened` has met a directory that fails.
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: its log directory is offline")
        return log

    @property
    def can_be_opened(self) -> bool:
        """True if the log is not open and `open` would open it."""
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
        """True if the log cannot be used now but will be without further action."""
        return self.state in (LogState.RECOVERING, LogState.TRUNCATING)

    # -- what happens to it -------------------------------------------------------------------------------------------

    def await_recovery(self) -> None:
        """Refuse to open the log before `recovered`."""
        self._enter(LogState.RECOVERING)

    def when_recovered(self, callback: Callable[[], None]) -> None:
        """Call back once the log can be opened or is known to be lost, at once if it can be opened now. A handle that
        is released before that never calls back."""
        if self.recovering:
            self._waiting += (callback,)
        else:
            callback()

    def recovered(self, batches: Mapping[int, list[BatchMetadata]] | None = None) -> None:
        """Mark the log as clean after its recovery. `batches` of producers, which only the recovery has read, are kept
        until the log is opened, because a worker finishes with many logs in one turn."""
        self._enter(LogState.UNOPENED)
        self._batches = batches
        self._call_back()

    def begin_truncation(self) -> None:
        """Give the log to a truncation, which alone uses it from now on (truncation_threads.py)."""
        self._enter(LogState.TRUNCATING)
        self.log = None

    def end_truncation(self, log: PartitionLog) -> None:
        """Take the log back, unless its directory failed or the replica was removed in the meantime."""
        if self.truncating:
            self._enter(LogState.OPEN)
            self.log = log
            self.user.log_truncated()

    def moved(self, log: PartitionLog) -> None:
        """Note that the log is in another directory now."""
        assert self.state is LogState.OPEN, self
        self.log = log
        self.user.log_moved(log)

    def take_offline(self) -> None:
        """Mark the log as lost because its directory failed. Reads that were handed out stay valid. The log is not
        opened again."""
        self._enter(LogState.OFFLINE)
        self.log = None
        self._call_back()
        self.user.log_lost()

    def release(self) -> PartitionLog | None:
        """Note that the replica is no longer this node's. Returns the log if it can be used, and the caller closes
        it."""
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
