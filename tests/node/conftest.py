"""Nodes of a simulated world, each for one scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from testkit.nodes.sim import playing

T = TypeVar("T")


@pytest.fixture
def play() -> Iterator[Callable[..., Any]]:
    """`play(scenario, {key: value})` on a separate node."""
    with playing() as run:
        yield run
