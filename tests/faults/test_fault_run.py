"""Whatever happens to three real processes, nothing that was acknowledged is lost: every kind of fault once, three
rounds of 20 in `make test-long`, and 1,000 by hand (`make faults`). One cluster and one judge serve a whole round."""

from __future__ import annotations

import pytest

from tests.faults.fault_kinds import KINDS
from tests.faults.fault_run import ROUND, chosen, left, may_unshare, page, round_apart

LEAST = 20


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_kind_of_fault_once() -> None:
    kinds = [kind for kind in KINDS if may_unshare() or not (kind.needs_network or kind.needs_mount)]
    assert len(kinds) >= LEAST
    note = round_apart(1, len(kinds), bounces=1)
    assert note["faults"] == len(kinds)
    assert note["records"] > 10 * len(kinds)


@pytest.mark.long(amount=f"{ROUND} faults")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_many_faults(seed: int) -> None:
    assert round_apart(seed, ROUND)["faults"] == ROUND


def test_a_seed_names_the_faults_and_every_kind_comes_before_any_comes_again() -> None:
    found = chosen(7, 3 * len(KINDS), KINDS)
    assert found == chosen(7, 3 * len(KINDS), KINDS)
    for first in range(0, len(found), len(KINDS)):
        assert set(found[first : first + len(KINDS)]) == set(KINDS)
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_a_run_goes_on_where_it_was() -> None:
    notes = [
        {"seed": 1, "code": "new", "result": "passed"},
        {"seed": 2, "code": "new", "result": "failed: CalledProcessError"},
        {"seed": 3, "code": "old", "result": "passed"},
    ]
    assert left(notes, "new", 1, 4) == [2, 3, 4]
    assert left(notes, "new+", 1, 2) == [1, 2]
    assert left(notes, None, 1, 4) == [2, 4]


def test_the_page_counts_the_newest_note_of_each_round() -> None:
    same = {"seed": 1, "faults": 20, "code": "a", "commit": "c", "date": "2026-01-01 00:00"}
    notes = [
        {**same, "result": "failed: TimeoutExpired"},
        {**same, "result": "passed", "records": 5000, "seconds": 1800},
        {**same, "seed": 2, "result": "failed: CalledProcessError"},
    ]
    assert "| c | 2 | 40 | 1 | 5,000 | 0.5 | 2026-01-01 00:00 |" in page(notes)
