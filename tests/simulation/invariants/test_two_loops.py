"""An append after the end of a leadership is found, and so is a broker that stands still and keeps its lease."""

from __future__ import annotations

import pytest

from pykbroker.metadata.image import EMPTY_IMAGE
from pykbroker_worlds.simulated.world import LONGEST_HAND_OVER_SECONDS
from tests.simulation.invariants import two_loops
from tests.simulation.invariants.broken import InvariantBroken
from tests.simulation.invariants.test_partition_invariants import with_one_committed


def broken(rule: str) -> pytest.RaisesExc[InvariantBroken]:
    return pytest.RaisesExc(InvariantBroken, check=lambda error: error.rule == rule)


def test_p14_an_append_under_a_leadership_that_the_control_loop_has_seen_end() -> None:
    two = with_one_committed()
    two_loops.appends(1, two.lead, two.metadata.image)
    with broken("P14"):
        two_loops.appends(1, two.lead, EMPTY_IMAGE)
    two.metadata_says(leader=2)
    with broken("P14"):
        two_loops.appends(1, two.lead, two.metadata.image)


def test_p14_the_same_leader_in_another_epoch() -> None:
    two = with_one_committed()
    two.metadata_says(leader=1)
    with broken("P14"):
        two_loops.appends(1, two.lead, two.metadata.image)


def test_c4_a_heartbeat_of_a_broker_that_stands_still() -> None:
    longest = 3.0 + LONGEST_HAND_OVER_SECONDS
    two_loops.sends_heartbeat(1, longest, 3.0)
    with broken("C4"):
        two_loops.sends_heartbeat(1, longest + 0.001, 3.0)
