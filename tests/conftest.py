"""Shared by every room's tests; kept light: a fixture that only one room needs lives in that room."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from pykbroker.net import connection
from pykbroker.node import owner_check
from testkit import skips, timing


def pytest_configure(config: pytest.Config) -> None:
    timing.register(config)
    skips.register(config)
    # No deadline, because the time of an example depends on how busy the machine is.
    settings.register_profile("pykbroker", deadline=None)
    settings.load_profile("pykbroker")
    # Every node under test overwrites what it received, those that tests start as processes too.
    os.environ["PYKBROKER_POISON_RECEIVED"] = "1"
    connection.POISON_RECEIVED = True
    # And every part of a loop refuses the other loop's thread.
    os.environ["PYKBROKER_CHECK_OWNERS"] = "1"
    owner_check.install(owner_check.parts_of_loops())


@pytest.fixture(autouse=True)
def no_part_is_called_by_the_wrong_loop() -> Iterator[None]:
    """Also where what was raised then was logged, and nothing else came of it."""
    owner_check.found.clear()
    yield
    assert not owner_check.found
