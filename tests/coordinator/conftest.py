"""A machine with a counter as its shard."""

from __future__ import annotations

import pytest

from tests.coordinator.counter import Machine


@pytest.fixture
def machine() -> Machine:
    return Machine()
