"""When a sender may send."""

from __future__ import annotations

from pykbroker.node_to_controller.pace import Pace


def pace() -> Pace:
    found = Pace(100, 1_000)
    found.leader_changed(True, 0)
    return found


def test_one_request_is_in_flight() -> None:
    one = pace()
    assert one.due_ms is None
    one.want(10)
    one.want(50)
    assert one.due_ms == 10
    one.sent()
    assert one.due_ms is None
    one.want(20)
    assert one.due_ms is None
    one.answered()
    assert one.due_ms == 20
    one.nothing_to_send()
    assert one.due_ms is None


def test_pauses_double_until_an_answer_comes() -> None:
    one = pace()
    one.want(0)
    found = []
    for _ in range(6):
        one.sent()
        found.append(one.failed(1_000))
        assert one.due_ms == 1_000 + found[-1]
    assert found == [100, 200, 400, 800, 1_000, 1_000]
    one.sent()
    one.answered()
    one.want(2_000)
    one.sent()
    assert one.failed(2_000) == 100


def test_what_is_wanted_meanwhile_does_not_cut_a_pause_short() -> None:
    one = pace()
    one.want(0)
    one.sent()
    one.failed(0)
    for now_ms in range(0, 100, 10):
        one.want(now_ms)
        assert one.due_ms == 100


def test_a_new_leader_is_asked_at_once() -> None:
    one = pace()
    one.want(0)
    one.sent()
    one.failed(0)
    one.leader_changed(False, 5)
    assert one.due_ms is None
    one.leader_changed(True, 20)
    assert one.due_ms == 0
    one.sent()
    # Its answer is not waited for when the leader changes again.
    one.leader_changed(True, 30)
    assert not one.in_flight
    assert one.due_ms == 30
    one.sent()
    one.answered()
    one.leader_changed(True, 40)
    assert one.due_ms is None
