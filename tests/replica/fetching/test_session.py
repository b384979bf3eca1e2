"""The follower's side of a fetch session, compared with the session of a leader."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.strategies import booleans, integers

from pykbroker.replica.fetching.session import FollowerSession, PartitionKey, Position, SessionRequest
from pykbroker_wire.errors import ErrorCode

TOPIC = b"topic".ljust(16)


def position(offset: int = 0) -> Position:
    return Position(offset, 1, 0, 0)


def key(index: int) -> PartitionKey:
    return TOPIC, index


def built(session: FollowerSession) -> SessionRequest:
    request = session.build()
    assert request is not None
    return request


def test_the_first_request_is_full_and_the_next_says_what_changed() -> None:
    session = FollowerSession()
    session.want(key(0), position())
    session.want(key(1), position())
    first = built(session)
    assert (first.session_id, first.session_epoch, len(first.partitions)) == (0, 0, 2)
    assert session.answered(7, [key(0), key(1)]) is None
    session.want(key(1), position(5))
    session.drop(key(0))
    assert built(session) == SessionRequest(7, 1, [(key(1), position(5))], [key(0)])
    assert session.answered(7, []) is None
    assert built(session) == SessionRequest(7, 2, [], [])


def test_what_changed_while_a_request_is_under_way_is_not_current() -> None:
    session = FollowerSession()
    session.want(key(0), position())
    built(session)
    assert session.is_current(key(0))
    session.want(key(0), position(1))
    assert not session.is_current(key(0))
    session.drop(key(0))
    assert not session.is_current(key(0))


def test_nothing_wanted_is_no_request() -> None:
    session = FollowerSession()
    assert session.build() is None
    session.want(key(0), position())
    session.drop(key(0))
    assert session.build() is None


def test_a_leader_without_sessions_gets_full_requests() -> None:
    session = FollowerSession()
    session.want(key(0), position())
    for _ in range(2):
        assert built(session).session_epoch == 0
        assert session.answered(0, [key(0)]) is None


def test_an_answer_that_leaves_out_or_invents_partitions_is_not_used() -> None:
    session = FollowerSession()
    session.want(key(0), position())
    built(session)
    assert session.answered(7, []) is not None
    built(session)
    assert session.answered(7, [key(0), key(1)]) is not None
    built(session)
    assert session.answered(7, [key(0)]) is None
    built(session)
    assert session.answered(7, [key(1)]) is not None
    # The leader closes its session, and makes another one.
    assert (built(session).session_id, built(session).session_epoch) == (7, 0)


def test_a_session_that_the_leader_does_not_know_is_not_named_again() -> None:
    session = FollowerSession()
    session.want(key(0), position())
    built(session)
    assert session.answered(7, [key(0)]) is None
    built(session)
    session.refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert (built(session).session_id, built(session).session_epoch) == (0, 0)


class Sessions(RuleBasedStateMachine):
    """Whatever changes and gets lost, the leader's session has the wanted positions when it has taken a request."""

    @initialize()
    def begin(self) -> None:
        self.session = FollowerSession()
        self.wanted: dict[PartitionKey, Position] = {}
        self.kept: dict[PartitionKey, Position] = {}
        self.id, self.epoch, self.ids = 0, 0, 0

    @rule(index=integers(0, 3), offset=integers(0, 2))
    def want(self, index: int, offset: int) -> None:
        self.session.want(key(index), position(offset))
        self.wanted[key(index)] = position(offset)

    @rule(index=integers(0, 3))
    def drop(self, index: int) -> None:
        self.session.drop(key(index))
        self.wanted.pop(key(index), None)

    @rule()
    def leader_forgets(self) -> None:
        self.id = 0

    @rule(arrives=booleans(), comes_back=booleans())
    def fetch(self, arrives: bool, comes_back: bool) -> None:
        request = self.session.build()
        assert (request is None) == (not self.wanted)
        if request is None:
            return
        code = ErrorCode.NONE
        if arrives:
            if request.session_epoch == 0:
                assert not request.forgotten
                self.ids += 1
                self.id, self.epoch, self.kept = self.ids, 0, {}
            elif request.session_id != self.id:
                code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            elif request.session_epoch != self.epoch:
                code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            if not code:
                for gone in request.forgotten:
                    del self.kept[gone]
                self.kept.update(request.partitions)
                self.epoch += 1
                assert self.kept == self.wanted
        if not arrives or not comes_back:
            self.session.lost()
        elif code:
            self.session.refused(code)
        else:
            assert self.session.answered(self.id, self.kept) is None

    @invariant()
    def counts(self) -> None:
        assert len(self.session) == len(self.wanted)


Sessions.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestSessions = pytest.mark.slow(Sessions.TestCase)
