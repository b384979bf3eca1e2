"""Nodes of a simulated world, each for one scenario."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from tests.node.sim import Sim

T = TypeVar("T")


@pytest.fixture
def play() -> Iterator[Callable[..., Any]]:
    """`play(scenario, {key: value})` on a node of its own."""
    made: list[Sim] = []

    def run(scenario: Callable[[Sim], Awaitable[T]], config: dict[str, str] | None = None) -> T:
        made.append(Sim(config))
        return made[-1].run(scenario)

    yield run
    for sim in made:
        sim.close()
