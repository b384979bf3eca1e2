"""The state of the quorum is handed over one message at a time, and the newest state always arrives."""

from __future__ import annotations

from pykbroker.crossing.loop_messages import QuorumChanged
from pykbroker.crossing.quorum_feed import QuorumFeed
from pykbroker.quorum.known_quorum import KnownQuorum


def known(leader: int) -> KnownQuorum:
    return KnownQuorum(node_id=1, leader_id=leader)


def test_at_most_one_state_waits_and_the_newest_follows() -> None:
    sent: list[QuorumChanged] = []
    feed = QuorumFeed(sent.append)
    for leader in (1, 2, 3):
        feed.changed(known(leader))
    assert sent == [QuorumChanged(known(1))]
    feed.taken()
    assert sent == [QuorumChanged(known(1)), QuorumChanged(known(3))]
    feed.taken()
    assert len(sent) == 2


def test_a_state_that_came_back_is_not_handed_over_again() -> None:
    sent: list[QuorumChanged] = []
    feed = QuorumFeed(sent.append)
    for leader in (1, 2, 1):
        feed.changed(known(leader))
    feed.taken()
    assert sent == [QuorumChanged(known(1))]
    feed.changed(known(1))
    assert len(sent) == 1
    feed.changed(known(2))
    assert len(sent) == 2
