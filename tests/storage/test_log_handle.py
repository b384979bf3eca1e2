"""The handle of one log: its states, the opening of the log, and the calls to its user."""

from __future__ import annotations

from typing import cast

import pytest

from pykbroker.storage.log_handle import LogHandle, LogState
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import BatchMetadata
from pykbroker_wire.errors import ErrorCode, KafkaError


class Producers:
    def __init__(self) -> None:
        self.remembered: list[object] = []

    def remember(self, batches: object) -> None:
        self.remembered.append(batches)


class Log:
    def __init__(self) -> None:
        self.producers = Producers()


class User:
    promises_flush = False

    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []

    def log_opened(self, log: PartitionLog) -> None:
        self.heard.append(("opened", log))

    def log_moved(self, log: PartitionLog) -> None:
        self.heard.append(("moved", log))

    def log_truncated(self) -> None:
        self.heard.append(("truncated", None))

    def log_lost(self) -> None:
        self.heard.append(("lost", None))


class Opened:
    """Opens logs, and counts how often."""

    def __init__(self) -> None:
        self.log = cast(PartitionLog, Log())
        self.count = 0
        self.error: KafkaError | None = None

    def open_log(self, handle: LogHandle) -> PartitionLog:
        self.count += 1
        if self.error is not None:
            raise self.error
        return self.log


@pytest.fixture
def opened() -> Opened:
    return Opened()


@pytest.fixture
def user() -> User:
    return User()


@pytest.fixture
def handle(opened: Opened, user: User) -> LogHandle:
    made = LogHandle("t", 0, bytes(16), opened)
    made.attach(user)
    return made


def refusal(handle: LogHandle) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        handle.open()
    return caught.value.code


def test_the_first_use_opens_the_log_once(handle: LogHandle, opened: Opened, user: User) -> None:
    assert (handle.log, handle.can_be_opened) == (None, True)
    assert handle.open() is opened.log
    assert handle.open() is handle.log is opened.log
    assert (opened.count, user.heard, handle.can_be_opened) == (1, [("opened", opened.log)], False)


def test_a_log_that_could_not_be_opened_is_tried_again(handle: LogHandle, opened: Opened, user: User) -> None:
    opened.error = KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
    assert refusal(handle) == ErrorCode.INCONSISTENT_TOPIC_ID
    opened.error = None
    assert (handle.can_be_opened, user.heard) == (True, [])
    assert handle.open() is opened.log


def test_a_log_is_not_opened_before_it_is_recovered(handle: LogHandle, opened: Opened) -> None:
    told: list[str] = []
    handle.await_recovery()
    handle.when_recovered(lambda: told.append("first"))
    handle.when_recovered(lambda: told.append("second"))
    assert (refusal(handle), handle.can_be_opened, told) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, False, [])
    handle.recovered()
    assert told == ["first", "second"]
    handle.when_recovered(lambda: told.append("third"))
    assert told[2:] == ["third"]
    assert handle.open() is opened.log


def test_batches_that_only_the_recovery_has_read_go_to_the_log_when_it_is_opened(
    handle: LogHandle, opened: Opened
) -> None:
    batches: dict[int, list[BatchMetadata]] = {7: []}
    handle.await_recovery()
    handle.recovered(batches)
    handle.open()
    handle.open()
    assert cast(Log, opened.log).producers.remembered == [batches]


@pytest.mark.parametrize("state", [LogState.UNOPENED, LogState.RECOVERING, LogState.OPEN])
def test_a_directory_that_fails_is_the_end_of_its_logs(
    handle: LogHandle, opened: Opened, user: User, state: LogState
) -> None:
    told: list[str] = []
    if state is LogState.RECOVERING:
        handle.await_recovery()
        handle.when_recovered(lambda: told.append("recovered"))
    elif state is LogState.OPEN:
        handle.open()
    handle.take_offline()
    assert (handle.log, handle.offline, handle.can_be_opened, user.heard[-1]) == (None, True, False, ("lost", None))
    assert told == (["recovered"] if state is LogState.RECOVERING else [])
    assert refusal(handle) == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("state", list(LogState)[:-1])
def test_a_handle_that_was_released_never_opens_its_log_again(
    handle: LogHandle, opened: Opened, state: LogState
) -> None:
    told: list[str] = []
    if state is LogState.RECOVERING:
        handle.await_recovery()
        handle.when_recovered(lambda: told.append("recovered"))
    elif state is LogState.OPEN:
        handle.open()
    elif state is LogState.OFFLINE:
        handle.take_offline()
    assert handle.release() is (opened.log if state is LogState.OPEN else None)
    assert refusal(handle) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (handle.log, handle.recovering, handle.can_be_opened, told) == (None, False, False, [])


def test_a_log_that_moved_is_the_users_at_once(handle: LogHandle, user: User) -> None:
    handle.open()
    copy = cast(PartitionLog, Log())
    handle.moved(copy)
    assert (handle.open(), user.heard[-1]) == (copy, ("moved", copy))


def test_what_the_table_of_states_does_not_have_is_a_bug(handle: LogHandle) -> None:
    with pytest.raises(AssertionError, match="UNOPENED after UNOPENED"):
        handle.recovered()
    handle.open()
    with pytest.raises(AssertionError, match="RECOVERING after OPEN"):
        handle.await_recovery()
    handle.release()
    with pytest.raises(AssertionError, match="OFFLINE after RELEASED"):
        handle.take_offline()


def test_a_handle_has_one_user(handle: LogHandle, user: User) -> None:
    with pytest.raises(AssertionError):
        handle.attach(user)


def test_a_directory_that_fails_while_its_user_is_told_gives_no_log(handle: LogHandle, user: User) -> None:
    def fails(log: PartitionLog) -> None:
        handle.take_offline()

    user.log_opened = fails  # type: ignore[method-assign]
    assert refusal(handle) == ErrorCode.KAFKA_STORAGE_ERROR
    assert handle.offline
    assert handle.log is None
