"""Acknowledgements that come too early are found, whether in a broker's response or at a client."""

from __future__ import annotations

import pytest

from pykbroker_worlds.history.events import CommittedOffset, History, Produced
from tests.simulation.invariants.acknowledgements import Acknowledgements
from tests.simulation.invariants.broken import InvariantBroken
from tests.simulation.invariants.test_partition_invariants import KEY, Two, with_one_committed


def produced(offset: int, *values: bytes, code: int | None = 0) -> Produced:
    return Produced(
        started=1,
        code=code,
        client="p",
        place=("t", 0),
        producer_id=1,
        epoch=0,
        sequence=0,
        values=values,
        base_offset=offset,
    )


def told(two: Two, event: Produced | CommittedOffset) -> None:
    history = History()
    acknowledgements = Acknowledgements(two.invariants, history)
    history.record(event)
    acknowledgements.look()


def broken(rule: str) -> pytest.RaisesExc[InvariantBroken]:
    return pytest.RaisesExc(InvariantBroken, check=lambda error: error.rule == rule)


def test_what_is_committed_may_be_acknowledged() -> None:
    two = with_one_committed()
    acknowledgements = Acknowledgements(two.invariants, None)
    acknowledgements.answers(1, two.lead, 0)
    acknowledgements.look()
    told(two, produced(0, b"a"))
    told(two, produced(1, b"b", code=None))


def test_p10_a_broker_acknowledges_what_is_not_committed() -> None:
    two = with_one_committed()
    two.append(b"b")
    acknowledgements = Acknowledgements(two.invariants, None)
    acknowledgements.answers(1, two.lead, 1)
    with broken("P10"):
        acknowledgements.look()


def test_a1_a_client_is_told_of_what_is_not_committed() -> None:
    two = with_one_committed()
    two.append(b"b")
    with broken("A1"):
        told(two, produced(1, b"b"))


def test_a1_a_client_is_told_another_records_offset() -> None:
    with broken("A1"):
        told(with_one_committed(), produced(0, b"z"))


def test_what_was_lost_by_right_is_no_breach() -> None:
    two = with_one_committed()
    two.invariants.ledgers[KEY].give_up(0, 1)
    told(two, produced(0, b"a"))


def test_a1_an_offset_is_acknowledged_that_no_coordinator_has_committed() -> None:
    two = with_one_committed()
    for ledger in two.invariants.ledgers.values():
        ledger.name = "__consumer_offsets-0"
    event = CommittedOffset(started=1, code=0, client="c", group="g", place=("t", 0), offset=3, mark="a")
    told(two, event)
    event.mark = "not there"
    with broken("A1"):
        told(two, event)
