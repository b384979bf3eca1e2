"""Three combined nodes that stop in a controlled way, one after another: each registers at once when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.nodes.nodes import PATIENCE_SECONDS
from testkit.nodes.trio import NUMBERS, Trio

pytestmark = pytest.mark.slow

#: No node comes back so late that the session of its last run is over by itself.
LONG_SESSIONS = {"min.insync.replicas": 2, "broker.session.timeout.ms": 50_000}


def test_a_node_that_was_permitted_to_shut_down_registers_at_once(tmp_path: Path) -> None:
    with Trio(tmp_path, "static", LONG_SESSIONS) as trio:
        topic = trio.create("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
        trio.in_sync(topic)
        active = trio.active()
        # The active controller is the last; another controller permits its shutdown, or its own controller half.
        for number in (*(each for each in NUMBERS if each != active), active):
            assert trio.stop(number) == 0
            trio.start(number).ready(PATIENCE_SECONDS)
            trio.in_sync(topic)
        assert len(trio.lines("The controller has asked us to exit controlled shutdown.")) == len(NUMBERS)
        assert not trio.lines("DUPLICATE_BROKER_REGISTRATION")
        assert not trio.complaints()
