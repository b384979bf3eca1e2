"""Metrics of the broker loop that come later than their reader waits."""

from __future__ import annotations

import asyncio
from typing import Any

from pykbroker.metrics.registry import Sample
from pykbroker.node.broker_loop import BrokerLoop


class Control:
    """Keeps the questions to the broker loop."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[list[Sample]]] = []

    def ask(self, question: Any) -> asyncio.Future[list[Sample]]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


def samples_of(value: float) -> list[Sample]:
    return [Sample("n", value, counts=False)]


def test_a_late_answer_is_kept_for_the_next_reader() -> None:
    """With very many numbers a reading may always take longer than its reader waits."""

    async def run() -> None:
        control, loop = Control(), BrokerLoop.__new__(BrokerLoop)
        loop._control, loop._sampling, loop._samples = control, None, []  # type: ignore[assignment]
        assert await loop.samples(0.0) == []
        assert await loop.samples(0.0) == []
        assert len(control.asked) == 1, "one question waits at a time"
        control.asked[0].set_result(samples_of(1))
        assert await loop.samples(0.0) == samples_of(1)
        assert len(control.asked) == 2
        control.asked[1].set_exception(RuntimeError("a bug"))
        assert await loop.samples(0.0) == samples_of(1)
        assert len(control.asked) == 3

    asyncio.run(run())
