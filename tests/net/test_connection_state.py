"""The table of a connection's states, and the end that its hooks get."""

from __future__ import annotations

import logging
from itertools import product

import pytest

from pykbroker.net.connection import Connection
from pykbroker.net.connection_state import ACCEPTED, MADE, ConnectionState, End, StatefulConnection, Transitions
from pykbroker.net.replies import AnswerBuffers
from tests.net.fakes import connect, feed, frame, make_listener


def at(table: Transitions, state: ConnectionState) -> StatefulConnection:
    connection = StatefulConnection(table)
    connection.state = state
    return connection


@pytest.mark.parametrize("table", [ACCEPTED, MADE], ids=["accepted", "made"])
def test_a_transition_that_is_not_in_the_table_raises(table: Transitions) -> None:
    for state, following in product(table, ConnectionState):
        connection = at(table, state)
        if following in table[state]:
            connection.become(following)
            assert connection.state is following
        else:
            with pytest.raises(ValueError, match=f"cannot become {following.value}"):
                connection.become(following)
            assert connection.state is state


@pytest.mark.parametrize("table", [ACCEPTED, MADE], ids=["accepted", "made"])
def test_no_state_is_dead_and_every_connection_can_end(table: Transitions) -> None:
    reached = {ConnectionState.CONNECTING}
    while True:
        found = reached.union(*(table[state] for state in reached))
        if found == reached:
            break
        reached = found
    assert reached == set(table)
    for state in table:
        assert state in (ConnectionState.CLOSING, ConnectionState.CLOSED) or ConnectionState.CLOSING in table[state]
    assert table[ConnectionState.CLOSING] == {ConnectionState.CLOSED}


def test_every_hook_is_told_once_though_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, End]] = []

    def fails(end: End) -> None:
        told.append(("fails", end))
        raise ZeroDivisionError

    connection = at(ACCEPTED, ConnectionState.READY)
    connection.when_ended(fails)
    connection.when_ended(lambda end: told.append(("works", end)))
    end = End("it was time", by_peer=False)
    connection.begin_end(end)
    assert told == [("fails", end), ("works", end)]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    connection.when_ended(lambda end: told.append(("late", end)))
    assert told[2:] == [("late", end)]


def echo(connection: Connection, data: memoryview) -> AnswerBuffers:
    return [frame(bytes(data))]


def test_a_hook_hears_that_the_peer_ended_the_connection() -> None:
    for error, reason in ((None, "the client closed it"), (ConnectionResetError("reset"), "reset")):
        connection, _ = connect(make_listener(echo))
        ends: list[End] = []
        connection.when_ended(ends.append)
        connection.connection_lost(error)
        assert ends == [End(reason, by_peer=True)]
        assert connection.state is ConnectionState.CLOSED


def test_a_hook_hears_why_we_ended_the_connection_and_only_that() -> None:
    connection, transport = connect(make_listener(echo))
    ends: list[End] = []
    connection.when_ended(ends.append)
    connection.close("the first reason")
    assert ends == [End("the first reason", by_peer=False)]
    assert connection.state.value == "closing"
    assert transport.closed
    connection.close("another reason")
    connection.connection_lost(ConnectionResetError("reset"))
    assert ends == [End("the first reason", by_peer=False)]
    assert connection.state.value == "closed"


def test_nothing_is_dispatched_once_the_connection_has_ended() -> None:
    """Formerly, frames that had arrived with the one whose dispatch closed the connection were dispatched too."""
    seen: list[bytes] = []

    def dispatch(connection: Connection, data: memoryview) -> AnswerBuffers:
        seen.append(bytes(data))
        if seen[-1] == b"last":
            connection.close("the listener needs its place")
        return [frame(b"answer")]

    connection, transport = connect(make_listener(dispatch))
    feed(connection, frame(b"first"))
    feed(connection, frame(b"last") + frame(b"never"))
    feed(connection, frame(b"never"))
    assert seen == [b"first", b"last"]
    assert bytes(transport.written) == frame(b"answer")


def test_a_connection_that_is_refused_never_dispatches() -> None:
    seen: list[bytes] = []

    def dispatch(connection: Connection, data: memoryview) -> AnswerBuffers:
        seen.append(bytes(data))
        return [frame(b"answer")]

    listener = make_listener(dispatch)
    listener.admission.change(type(listener.admission.limits)(per_address=0))
    connection, transport = connect(listener)
    assert transport.aborted
    assert connection.end is not None
    assert connection.end.reason.startswith("refused: ")
    feed(connection, frame(b"a"))
    assert seen == []
