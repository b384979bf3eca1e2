"""Share sessions: epochs, partitions of answers, limits, and what is released when one ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pykbroker.share_partitions import share_sessions
from pykbroker.share_partitions.share_sessions import (
    FINAL_EPOCH,
    LAST_EPOCH,
    EndedSession,
    SessionMember,
    SessionPartitionId,
    ShareSession,
    ShareSessions,
)
from pykbroker_wire.errors import ErrorCode, KafkaError
from testkit.bug_search import search

KEY = SessionMember("g", "m")
OTHER = SessionMember("g", "n")
A, B, C = ((b"t" * 16, index) for index in range(3))
LED = [A, B, C]
UNLED = [(b"u" * 16, index) for index in range(3)]


def opened(
    sessions: ShareSessions,
    key: SessionMember = KEY,
    connection: str = "c",
    partitions: tuple[SessionPartitionId, ...] = (A, B),
) -> ShareSession:
    return sessions.open(key, connection, partitions, has_acknowledgements=False)[0]


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions(2, lambda group, partition: partition in LED)


def test_epochs_count_over_fetches_and_acknowledgements(sessions: ShareSessions) -> None:
    opened(sessions)
    sessions.fetch(KEY, 1, (), ())
    sessions.acknowledge(KEY, 2)
    session = sessions.fetch(KEY, 3, (), ())
    assert session.epoch == 4
    session.epoch = LAST_EPOCH
    assert sessions.fetch(KEY, LAST_EPOCH, (), ()).epoch == 1


@pytest.mark.parametrize("epoch", [2, LAST_EPOCH, -2])
def test_another_epoch_is_refused_and_changes_nothing(sessions: ShareSessions, epoch: int) -> None:
    session = opened(sessions)
    attempts: list[Callable[[], ShareSession]] = [
        lambda: sessions.fetch(KEY, epoch, (C,), (A,)),
        lambda: sessions.acknowledge(KEY, epoch),
    ]
    for attempt in attempts:
        with pytest.raises(KafkaError) as refused:
            attempt()
        assert refused.value.code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (session.epoch, list(session.partitions)) == (1, [A, B])


def test_requests_without_a_session_are_refused(sessions: ShareSessions) -> None:
    attempts: list[Callable[[], ShareSession]] = [
        lambda: sessions.fetch(KEY, 1, (), ()),
        lambda: sessions.acknowledge(KEY, 1),
        lambda: sessions.acknowledge(KEY, FINAL_EPOCH),
        lambda: sessions.final(KEY),
    ]
    for attempt in attempts:
        with pytest.raises(KafkaError) as refused:
            attempt()
        assert refused.value.code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sessions.close(KEY) is None


def test_an_acknowledgement_opens_no_session(sessions: ShareSessions) -> None:
    with pytest.raises(KafkaError) as refused:
        sessions.acknowledge(KEY, 0)
    assert refused.value.code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    with pytest.raises(KafkaError) as refused:
        sessions.open(KEY, "c", (A,), has_acknowledgements=True)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert len(sessions) == 0


def test_the_number_of_sessions_is_limited_and_a_member_may_replace_its_own(sessions: ShareSessions) -> None:
    opened(sessions)
    opened(sessions, OTHER)
    with pytest.raises(KafkaError) as refused:
        opened(sessions, SessionMember("h", "m"))
    assert refused.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert opened(sessions).epoch == 1
    sessions.close(OTHER)
    opened(sessions, SessionMember("h", "m"))


def test_remembered_partitions_are_limited(sessions: ShareSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_sessions, "MOST_REMEMBERED", 3)
    session = opened(sessions)
    with pytest.raises(KafkaError) as refused:
        opened(sessions, OTHER)
    assert refused.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.fetch(KEY, 1, (C,), (A,))
    with pytest.raises(KafkaError):
        sessions.fetch(KEY, 2, UNLED[:1], ())
    assert session.epoch == 2
    sessions.fetch(KEY, 2, (A,), ())
    assert session.remembered == 3, "it comes again"


def test_one_session_does_not_take_the_room_of_all(sessions: ShareSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_sessions, "MOST_OF_SESSION", 2)
    opened(sessions, KEY, "c", (A, B))
    attempts: list[Callable[[], ShareSession]] = [
        lambda: sessions.fetch(KEY, 1, (C,), ()),
        lambda: opened(sessions, OTHER, "c", (A, B, C)),
    ]
    for attempt in attempts:
        with pytest.raises(KafkaError) as error:
            attempt()
        assert error.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    opened(sessions, OTHER, "c", (A, B))


def test_a_forgotten_partition_without_a_leader_is_not_remembered(sessions: ShareSessions) -> None:
    """No member holds locks there. A member could otherwise fill the room of all with topic ids that it makes up."""
    session = opened(sessions, KEY, "c", (A, UNLED[0]))
    sessions.fetch(KEY, 1, UNLED[1:], (A, UNLED[0], UNLED[1]))
    assert session.all_partitions() == (UNLED[2], A)
    assert session.remembered == 2


def test_an_incremental_answer_has_what_is_new_has_records_or_an_error() -> None:
    session = ShareSession(KEY, "c", (A, B))
    ok = ErrorCode.NONE
    assert not session.belongs_in_answer(A, ok, has_records=False), "the answer that opened the session had it"
    assert session.belongs_in_answer(A, ok, has_records=True)
    assert list(session.partitions) == [B, A], "its turn comes last"
    assert session.belongs_in_answer(B, ErrorCode.NOT_LEADER_OR_FOLLOWER, has_records=False)
    assert session.belongs_in_answer(B, ok, has_records=False), "the error has ended"
    assert not session.belongs_in_answer(B, ok, has_records=False)
    session.update((C,), (), lambda _: True)
    assert session.belongs_in_answer(C, ok, has_records=False)
    assert not session.belongs_in_answer(C, ok, has_records=False)
    session.update((), (C,), lambda _: True)
    assert not session.belongs_in_answer(C, ok, has_records=False)
    assert session.belongs_in_answer(C, ErrorCode.UNKNOWN_TOPIC_ID, has_records=False)


def test_the_end_of_a_session_releases_forgotten_partitions_too(sessions: ShareSessions) -> None:
    """Apache Kafka 4.3 leaves their records locked until their time is over."""
    opened(sessions)
    sessions.fetch(KEY, 1, (C,), (A,))
    assert sessions.close(KEY) == EndedSession(KEY, (B, C, A))
    assert not sessions.has_group("g")


def test_two_members_on_one_connection_both_end_with_it(sessions: ShareSessions) -> None:
    """Apache Kafka 4.3 remembers the second only, and leaves the session of the first for ever."""
    opened(sessions, KEY, "c", (A,))
    opened(sessions, OTHER, "c", (B,))
    assert sessions.disconnected("c") == [EndedSession(KEY, (A,)), EndedSession(OTHER, (B,))]
    assert (len(sessions), sessions.partition_count, sessions.evicted) == (0, 0, 2)
    assert sessions.disconnected("c") == []


def test_a_session_that_was_opened_anew_outlives_the_old_connection(sessions: ShareSessions) -> None:
    opened(sessions, KEY, "old", (A, B))
    _, ended = sessions.open(KEY, "new", (B, C), has_acknowledgements=False)
    assert ended == EndedSession(KEY, (A,)), "locks in partitions that it still reads stay with the member"
    assert sessions.disconnected("old") == []
    assert sessions.disconnected("new") == [EndedSession(KEY, (B, C))]


def test_all_end_together(sessions: ShareSessions) -> None:
    opened(sessions, KEY, "c", (A,))
    opened(sessions, OTHER, "d", (B,))
    assert sessions.end_all() == [EndedSession(KEY, (A,)), EndedSession(OTHER, (B,))]
    assert len(sessions) == 0


class SessionEvents(RuleBasedStateMachine):
    """Members may hold locks where they ever fetched while their group had a leader there. No partition is left without
    a session that will release it."""

    def __init__(self) -> None:
        super().__init__()
        #: groups and partitions that have a leader
        self.leaders = {(group, partition) for group in "gh" for partition in (A, B, C)}
        self.sessions = ShareSessions(3, lambda group, partition: (group, partition) in self.leaders)
        self.may_hold: dict[SessionMember, set[SessionPartitionId]] = {}
        self.connections: dict[SessionMember, str] = {}

    keys = st.builds(SessionMember, st.sampled_from("gh"), st.sampled_from("mno"))
    partitions = st.lists(st.sampled_from([A, B, C]), unique=True)

    def _ended(self, ended: EndedSession) -> None:
        self.may_hold[ended.key] -= set(ended.partitions)

    def _fetched(self, key: SessionMember, partitions: Iterable[SessionPartitionId]) -> None:
        held = self.may_hold.setdefault(key, set())
        held.update(each for each in partitions if (key.group, each) in self.leaders)

    @rule(group=st.sampled_from("gh"), partition=st.sampled_from([A, B, C]))
    def lead_or_no_longer_lead(self, group: str, partition: SessionPartitionId) -> None:
        if (group, partition) in self.leaders:
            self.leaders.remove((group, partition))
            for key, held in self.may_hold.items():
                if key.group == group:
                    held.discard(partition)
            return
        self.leaders.add((group, partition))
        for key in self.connections:
            session = self.sessions.peek(key)
            assert session is not None
            self._fetched(key, session.partitions)

    @rule(key=keys, connection=st.sampled_from("cd"), partitions=partitions)
    def open(self, key: SessionMember, connection: str, partitions: list[SessionPartitionId]) -> None:
        is_full = len(self.connections) >= 3 and key not in self.connections
        try:
            _, ended = self.sessions.open(key, connection, partitions, has_acknowledgements=False)
        except KafkaError:
            assert is_full
            return
        assert not is_full
        if ended is not None:
            self._ended(ended)
        self.connections[key] = connection
        self._fetched(key, partitions)

    @rule(key=keys, wanted=partitions, forgotten=partitions)
    def fetch(self, key: SessionMember, wanted: list[SessionPartitionId], forgotten: list[SessionPartitionId]) -> None:
        session = self.sessions.peek(key)
        assert (session is not None) == (key in self.connections)
        if session is not None:
            self.sessions.fetch(key, session.epoch, wanted, forgotten)
            self._fetched(key, wanted)

    @rule(key=keys)
    def close(self, key: SessionMember) -> None:
        ended = self.sessions.close(key)
        assert (ended is not None) == (self.connections.pop(key, None) is not None)
        if ended is not None:
            self._ended(ended)
            assert not self.may_hold[key]

    @rule(connection=st.sampled_from("cd"))
    def disconnect(self, connection: str) -> None:
        expected = {key for key, known in self.connections.items() if known == connection}
        ended = self.sessions.disconnected(connection)
        assert {each.key for each in ended} == expected
        for each in ended:
            del self.connections[each.key]
            self._ended(each)
            assert not self.may_hold[each.key]

    @invariant()
    def every_lock_has_a_session_that_will_release_it(self) -> None:
        for key, held in self.may_hold.items():
            session = self.sessions.peek(key)
            assert held <= set(() if session is None else session.all_partitions())
        assert len(self.sessions) == len(self.connections)
        assert {group for group in "gh" if self.sessions.has_group(group)} == {key.group for key in self.connections}


@pytest.mark.slow
def test_random_events() -> None:
    run_state_machine_as_test(SessionEvents, settings=settings(max_examples=60, deadline=None))


def forgets_at_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka 4.3 releases only the partitions that the session still reads."""
    monkeypatch.setattr(ShareSession, "all_partitions", lambda self: tuple(self.partitions))


def replaces_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka 4.3 replaces a session without releasing anything."""
    whole = ShareSessions.open
    monkeypatch.setattr(ShareSessions, "open", lambda *given, **named: (whole(*given, **named)[0], None))


def remembers_one_on_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka 4.3 does that: the second member displaces the first."""
    whole = ShareSessions.disconnected

    def of_the_last(self: ShareSessions, connection: str) -> list[EndedSession]:
        known = self._by_connection.get(connection, {})
        for key in list(known)[:-1]:
            del known[key]
        return whole(self, connection)

    monkeypatch.setattr(ShareSessions, "disconnected", of_the_last)


def stays_with_the_old_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ShareSessions.open

    def on_the_old(
        self: ShareSessions,
        key: SessionMember,
        connection: str,
        partitions: list[SessionPartitionId],
        *,
        has_acknowledgements: bool,
    ) -> tuple[ShareSession, EndedSession | None]:
        before = self.peek(key)
        first = connection if before is None else before.connection
        return whole(self, key, first, partitions, has_acknowledgements=has_acknowledgements)

    monkeypatch.setattr(ShareSessions, "open", on_the_old)


def drops_what_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is wanted again goes neither to those that are read, nor stays with those that were."""
    whole = ShareSession.update

    def update(
        self: ShareSession,
        wanted: list[SessionPartitionId],
        forgotten: list[SessionPartitionId],
        may_hold: Callable[[SessionPartitionId], bool],
    ) -> None:
        again = [each for each in wanted if each in self._touched]
        whole(self, wanted, forgotten, may_hold)
        for each in again:
            self.partitions.pop(each, None)

    monkeypatch.setattr(ShareSession, "update", update)


def asks_for_the_leader_of_another_group(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ShareSessions.__init__

    def init(self: ShareSessions, most: int, has_leader: Callable[[str, SessionPartitionId], bool]) -> None:
        whole(self, most, lambda group, partition: has_leader("g", partition))

    monkeypatch.setattr(ShareSessions, "__init__", init)


#: Where the search for a bug begins, if it finds nothing with the first seed.
SEEDS: Final[dict[Callable[[pytest.MonkeyPatch], None], int]] = {
    asks_for_the_leader_of_another_group: 5,
    drops_what_comes_again: 15,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        asks_for_the_leader_of_another_group,
        forgets_at_close,
        replaces_silently,
        remembers_one_on_a_connection,
        stays_with_the_old_connection,
        drops_what_comes_again,
    ],
)
def test_random_events_find_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        search(SessionEvents, seed=SEEDS.get(plant, 0), steps=50)
