"""The rests between tries."""

from __future__ import annotations

from pykbroker.retries.tries import Tries


def test_the_rests_after_the_quick_ones_are_apache_kafkas() -> None:
    tries = Tries()
    rests = [tries.rest(may_be_quick=True) for _ in range(9)]
    assert rests == [0.05, 0.1, 0.2, 0.4, 2, 4, 8, 16, None]
    assert [Tries(failures=each).rest(may_be_quick=False) for each in range(5)] == [2, 4, 8, 16, None]
