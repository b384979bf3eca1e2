"""The broker loop's end: what it says to its parts, whatever they do with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.crossing.broker_end import BrokerEnd
from pykbroker.crossing.loop_messages import AnotherLeader, InitialLoadCompleted, MetadataTaken, QuorumChanged
from pykbroker.quorum.known_quorum import KnownQuorum
from tests.coordinator.fakes import Loop, as_loop


@pytest.fixture
def said() -> list[Any]:
    return []


@pytest.fixture
def end(said: list[Any]) -> BrokerEnd:
    runtime: Any = SimpleNamespace(loop=as_loop(Loop()))
    return BrokerEnd(runtime, 1, said.append)


def test_a_reserve_that_was_given_up_before_a_part_asks_is_told_at_once(end: BrokerEnd) -> None:
    """As on a disk that was full when the node started."""
    short = KnownQuorum(1, is_short_of_room=True)
    end.take(QuorumChanged(short))
    heard: list[bool] = []
    end.when_short_of_room(lambda: heard.append(end.is_short_of_room))
    assert heard == [True]
    end.take(QuorumChanged(short._replace(leader_id=2)))
    assert heard == [True]
    end.take(QuorumChanged(short._replace(is_short_of_room=False)))
    end.take(QuorumChanged(short))
    assert heard == [True, True]


@pytest.mark.parametrize("message", [AnotherLeader(2, 3), InitialLoadCompleted()])
def test_what_a_part_fails_over_was_taken_all_the_same(end: BrokerEnd, said: list[Any], message: Any) -> None:
    """Otherwise the control side waits for the confirmation, and never passes on more metadata."""

    def fail(*_: object) -> None:
        raise LookupError("a bug")

    end.when_loaded(fail)
    end.metadata.on_leader(fail)
    with pytest.raises(LookupError):
        end.take(message)
    assert said == [MetadataTaken()]
