"""The group coordinator of a world with one topic `t` of four partitions."""

from __future__ import annotations

import pytest

from tests.coordinator.group.shares import ShareBench, share_settings


@pytest.fixture
def bench() -> ShareBench:
    bench = ShareBench(share_settings())
    bench.create("t")
    return bench
