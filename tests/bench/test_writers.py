"""The pauses of a client, and its lost records, as the benchmarks count them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from testkit.writers import JavaProducer, Stepping, longest_pause, lost

TIMES = [1.0, 1.1, 1.2, 3.2, 3.3, 4.9, 5.0]


@pytest.mark.parametrize(
    ("begin", "end", "pause"),
    [
        # From the last acknowledgement before the kill to the first one after it.
        (1.25, 3.4, 2.0),
        # A later pause that is longer than the one at the kill.
        (3.25, 5.0, 1.6),
        # A pause that is not over at the end counts up to the end.
        (4.95, 7.5, 2.5),
        # A client that was never acknowledged stands still all the time.
        (0.0, 0.5, 0.5),
    ],
)
def test_the_longest_pause(begin: float, end: float, pause: float) -> None:
    assert longest_pause(TIMES, begin, end) == pytest.approx(pause)


def test_a_record_is_lost_when_it_was_acknowledged_and_is_not_there() -> None:
    assert lost([b"a", b"b", b"c"], [b"c", b"x", b"a"]) == 1
    # Twice is not lost.
    assert lost([b"a"], [b"a", b"a"]) == 0


def test_the_lines_of_the_java_producer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testkit.writers.tool_command", lambda main, words: [main, *words])
    writer = JavaProducer("127.0.0.1:1", "topic", [0, 1], tmp_path)
    writer.take({"name": "startup_complete"})
    writer.take({"name": "producer_send_success", "partition": 1, "value": "17", "offset": 4})
    writer.take({"name": "producer_send_error", "message": "too late", "value": "18"})
    assert writer.acknowledged[1].values == [b"17"]
    assert writer.acknowledged[1].later_than(0)
    assert not writer.acknowledged[0].later_than(0)
    assert writer.failures == ["too late"]


def test_a_stepping_client_closes_after_its_last_step() -> None:
    class Noting(Stepping):
        def __init__(self) -> None:
            super().__init__([0])
            self.story: list[str] = []
            self.stepped = threading.Event()

        def step(self) -> None:
            self.story.append("step")
            if len(self.story) == 3:
                self.stepped.set()

        def close(self) -> None:
            self.story.append("close")

    writer = Noting()
    writer.start()
    assert writer.stepped.wait(30)
    writer.stop()
    assert set(writer.story[:-1]) == {"step"}
    assert writer.story[-1] == "close"
