"""Peers that are gone by the ends of their connections: the evidence, and when it does not count."""

from __future__ import annotations

from pykbroker.liveness.peer_ends import AGAIN_MS, LATE_MS, RETURN_MS, STALL_MS, TOGETHER_MS, PeerEnds


def ends(*ended: tuple[int, int]) -> PeerEnds[int]:
    """Return peers that ended their connections at these times, at a working node."""
    found: PeerEnds[int] = PeerEnds()
    found.turned(0)
    for peer, now_ms in ended:
        found.ended(peer, now_ms)
    return found


def test_a_peer_that_does_not_come_back_is_gone_once() -> None:
    found = ends((1, 100))
    assert found.deadline_ms == 100 + RETURN_MS
    assert found.clock(99 + RETURN_MS) == []
    assert found.clock(100 + RETURN_MS) == [1]
    assert found.clock(101 + RETURN_MS) == []
    assert found.deadline_ms is None


def test_a_peer_that_comes_back_is_not_gone() -> None:
    found = ends((1, 100))
    found.back(1)
    assert found.clock(100 + RETURN_MS) == []


def test_ends_of_two_peers_within_a_second_say_nothing() -> None:
    found = ends((1, 100), (2, 400))
    assert found.clock(400 + RETURN_MS) == []
    # The network ended both, and one is back.
    found = ends((1, 100), (2, 400))
    found.back(1)
    assert found.clock(400 + RETURN_MS) == []


def test_a_peer_that_refuses_says_nothing_of_the_network() -> None:
    found = ends((1, 100), (2, 400))
    found.refused(1)
    assert found.clock(400 + RETURN_MS) == [2]


def test_ends_that_are_far_apart_count_each() -> None:
    found = ends((1, 100))
    assert found.clock(100 + RETURN_MS) == [1]
    found.turned(900)
    found.ended(2, 101 + TOGETHER_MS)
    assert found.clock(101 + TOGETHER_MS + RETURN_MS) == [2]


def test_a_node_that_stood_still_believes_no_end() -> None:
    found = ends()
    found.ended(1, 5_000)
    assert found.clock(5_000 + RETURN_MS) == []
    # Nor if the node stands still while it waits.
    found = ends((1, 100))
    assert found.clock(100 + STALL_MS + RETURN_MS) == []
    assert found.clock(100 + STALL_MS + RETURN_MS + AGAIN_MS) == []


def test_a_late_verdict_waits_until_what_came_is_read() -> None:
    found = ends((1, 100))
    late_ms = 101 + RETURN_MS + LATE_MS
    assert found.clock(late_ms) == []
    assert found.clock(late_ms + AGAIN_MS) == [1]
