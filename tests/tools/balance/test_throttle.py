"""The check whether copies end under a throttle."""

from __future__ import annotations

from pykbroker.tools.balance.plan_file import PlannedMove
from pykbroker.tools.balance.throttle import growth, too_slow


def test_what_grows_while_it_is_copied_is_summed_for_each_broker() -> None:
    moves = [PlannedMove((1, 2), (3, 2), rate) for rate in (10.0, 30.0, 20.0)]
    moves += [PlannedMove((2, 1), (2, 4), 7.0), PlannedMove((5, 6), (6, 5), 1000.0)]
    assert growth(moves, 2) == {1: 50.0, 3: 50.0, 2: 7.0, 4: 7.0}, "what only changes its order copies nothing"
    assert growth([PlannedMove((1,), (2, 3), 5.0)], 5) == {1: 10.0, 2: 5.0, 3: 5.0}


def test_a_throttle_below_what_comes_in_is_told() -> None:
    moves = [PlannedMove((1, 2), (3, 2), 30.0), PlannedMove((1, 2), (3, 2), 20.0)]
    said = too_slow(moves, 5, 50)
    assert said is not None
    assert "50 bytes/s is too low: the partitions that broker 1 copies at once get 50 bytes/s" in said
    assert too_slow(moves, 5, 51) is None
    assert too_slow(moves, 1, 31) is None
    assert too_slow([], 5, 1) is None
