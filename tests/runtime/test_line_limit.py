"""One line a minute for each subject."""

from __future__ import annotations

from pykbroker.runtime.line_limit import EVERY_SECONDS, MOST_SUBJECTS, LineLimit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_line_a_minute_says_how_many_were_left_out() -> None:
    clock = Clock()
    lines = LineLimit(clock)
    assert lines.is_due("a")
    assert lines.take("a") == ""
    assert not lines.is_due("a")
    assert [lines.take("a") for _ in range(3)] == [None] * 3
    assert lines.take("b") == ""
    clock.now += EVERY_SECONDS
    assert lines.take("a") == " (3 more lines like it were left out)"
    clock.now += EVERY_SECONDS
    assert lines.take("a") == ""


def test_subjects_that_a_client_invents_take_no_more_than_a_bounded_room() -> None:
    clock = Clock()
    lines = LineLimit(clock)
    through = sum(lines.take(str(number)) is not None for number in range(10 * MOST_SUBJECTS))
    assert through == MOST_SUBJECTS + 1
    clock.now += EVERY_SECONDS
    assert lines.take("another") == ""
