"""The group coordinator of a world with one topic."""

from __future__ import annotations

import pytest

from tests.coordinator.group.consumers import ConsumerBench, settings


@pytest.fixture
def bench() -> ConsumerBench:
    bench = ConsumerBench(settings())
    bench.create("t")
    return bench
