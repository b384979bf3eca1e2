"""Each rule of share groups finds the breach that is made by hand, and nothing in a life without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.invariants.broken import InvariantBroken
from tests.simulation.invariants.share_groups import (
    ACKNOWLEDGED,
    AVAILABLE,
    Leadership,
    Load,
    ShareInvariants,
    ShareKey,
)

KEY = ShareKey("g", ("t", 0))
LOCK_MS = 1_000
LIMIT = 2
ACCEPT, RELEASE, RENEW = 1, 2, 4


class Life:
    """A share partition from offset 0 on: a leader in epoch 1, whose member m holds 0 to 4 from time 0 on."""

    def __init__(self) -> None:
        self.rules = ShareInvariants()
        self.now_ms = 0
        self.led = self.leads(1)
        self.load(self.led)
        self.acquire(0, 4, 1)

    def leads(self, epoch: int, node: int = 1) -> Leadership:
        return Leadership(KEY, node, epoch)

    def load(
        self, led: Leadership, start: int = 0, states: dict[int, tuple[int, int]] | None = None, **fields: Any
    ) -> None:
        load = Load(start, states or {}, began_s=self.now_ms / 1000)
        self.rules.loaded(led, load._replace(**fields))

    def reset(self, offset: int | None) -> None:
        self.rules.reset_begins(KEY, offset)
        self.rules.reset_ended(KEY, self.now_ms / 1000)
        self.now_ms += 1

    def acquire(
        self, first: int, last: int, count: int, member: str = "m", led: Leadership | None = None, *others: Leadership
    ) -> None:
        self.rules.acquired(led or self.led, others, member, [(first, last, count)], self.now_ms, LOCK_MS)

    def store(self, states: dict[int, tuple[int, int]], start: int = 0, led: Leadership | None = None) -> None:
        self.rules.written(self.rules.writes(led or self.led, start, states))

    def acknowledge(
        self, first: int, last: int, kind: int, member: str = "m", *, success: bool = True, stores: bool = True
    ) -> None:
        """Acknowledge, with the write that belongs to it."""
        until_ms = self.now_ms + LOCK_MS
        offsets = range(first, last + 1)
        begun = self.rules.acknowledges(self.led, member, dict.fromkeys(offsets, kind), 0, LIMIT, until_ms)
        if stores and kind != RENEW and success:
            state = ACKNOWLEDGED if kind == ACCEPT else AVAILABLE
            self.store({offset: (self.led.counts.get(offset, 0), state) for offset in offsets})
        self.rules.acknowledged(begun, success=success, now_ms=self.now_ms)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.rules.expired(self.led, self.now_ms, LIMIT)


def test_a_life_without_a_breach() -> None:
    life = Life()
    life.acknowledge(0, 1, ACCEPT)
    life.acknowledge(2, 2, RELEASE)
    life.acquire(2, 2, 2, "n")
    life.acknowledge(3, 3, RENEW)
    life.pass_time(LOCK_MS)
    life.acquire(3, 4, 2, "n")
    life.acknowledge(3, 3, ACCEPT, "n", success=False)
    life.acknowledge(3, 3, ACCEPT, "n")
    life.rules.given_back(life.led, "n", [(4, 4, 2)])
    life.acquire(4, 4, 2, "o")
    # It was acquired again since.
    life.rules.given_back(life.led, "o", [(4, 4, 1)])
    life.rules.released(life.led, "o", LIMIT)
    life.store({2: (2, 4), 4: (2, 4)}, 5)
    life.rules.left(life.led)
    life.load(life.leads(2, 2), 5)
    life.rules.passed_too_much(KEY, range(5))
    assert life.rules.newest(KEY).exhausted == {2, 4}


@pytest.mark.parametrize("offset", [2, None])
def test_after_a_reset_everything_begins_anew(offset: int | None) -> None:
    life = Life()
    life.acknowledge(0, 4, ACCEPT)
    life.store({}, 5)
    life.reset(offset)
    life.rules.left(life.led)
    life.led = life.leads(1)
    life.load(life.led, offset or 0, state_epoch=2, is_stored=offset is not None)
    life.acquire(2, 4, 1, "n")
    life.acknowledge(2, 2, ACCEPT, "n")
    assert life.rules.newest(KEY).final == {2}


def test_an_acknowledgement_before_the_start_is_ignored() -> None:
    life = Life()
    begun = life.rules.acknowledges(life.led, "m", {0: ACCEPT, 3: ACCEPT}, 2, LIMIT, LOCK_MS)
    assert begun.types == {3: ACCEPT}
    assert life.rules.excused(KEY).ignored == {("m", 0)}


def test_a_load_may_end_after_that_of_a_later_leader() -> None:
    life = Life()
    later = life.leads(2, 2)
    life.load(later)
    life.acquire(0, 0, 1, "n", later)
    life.store({0: (1, ACKNOWLEDGED)}, 1, later)
    life.load(life.leads(1))


def test_a_leader_that_does_not_know_its_successor_may_give_what_was_acknowledged() -> None:
    life = Life()
    life.load(life.leads(2, 2))
    life.rules.newest(KEY).final.add(5)
    life.acquire(5, 5, 1, "n")
    assert life.rules.excused(KEY).late == {("n", 5)}


def test_the_start_may_pass_records_that_its_leader_has_deleted() -> None:
    life = Life()
    life.led.log_start = 4
    life.rules.starts_at(life.led, 4)
    life.rules.passed_too_much(KEY, range(5))


def _while_it_is_locked(life: Life) -> None:
    life.acquire(4, 4, 2, "n")


def _by_another_leader_of_the_epoch(life: Life) -> None:
    other = life.leads(1)
    life.load(other)
    life.acquire(4, 4, 1, "n", other, life.led)


def _before_a_renewed_lock_ends(life: Life) -> None:
    life.pass_time(LOCK_MS // 2)
    life.acknowledge(4, 4, RENEW)
    life.pass_time(LOCK_MS // 2)
    life.acquire(4, 4, 2, "n")


def _after_a_refused_acknowledgement(life: Life) -> None:
    life.acknowledge(4, 4, ACCEPT, success=False)
    life.acquire(4, 4, 2, "n")


def _an_ended_lock_is_renewed(life: Life) -> None:
    life.pass_time(LOCK_MS + 50)
    life.acknowledge(4, 4, RENEW)


def _another_members_lock_is_acknowledged(life: Life) -> None:
    life.acknowledge(4, 4, ACCEPT, "n")


def _a_fenced_leader_writes(life: Life) -> None:
    life.load(life.leads(2, 2))
    life.acknowledge(4, 4, ACCEPT)


def _a_count_begins_again(life: Life) -> None:
    life.acknowledge(4, 4, RELEASE)
    life.acquire(4, 4, 1)


def _a_count_begins_again_under_the_next_leader(life: Life) -> None:
    life.acknowledge(4, 4, RELEASE)
    later = life.leads(2, 2)
    life.load(later, 0, {4: (1, AVAILABLE)})
    life.acquire(4, 4, 1, "m", later)


def _a_load_has_less_than_was_stored(life: Life) -> None:
    life.acknowledge(4, 4, RELEASE)
    life.load(life.leads(2, 2), 0, {4: (0, AVAILABLE)})


def _a_load_lacks_an_offset(life: Life) -> None:
    life.acknowledge(4, 4, ACCEPT)
    life.load(life.leads(2, 2))


def _a_load_has_more_than_was_written(life: Life) -> None:
    life.load(life.leads(2, 2), 0, {4: (1, ACKNOWLEDGED)})


def _a_load_has_an_earlier_start(life: Life) -> None:
    life.acknowledge(0, 0, ACCEPT)
    life.store({}, 1)
    life.load(life.leads(2, 2))


def _the_start_passes_a_locked_record(life: Life) -> None:
    life.acknowledge(0, 2, ACCEPT)
    life.rules.starts_at(life.led, 4)
    life.acknowledge(3, 3, ACCEPT)
    life.rules.passed_too_much(KEY, range(5))


def _an_acknowledgement_is_answered_before_it_is_stored(life: Life) -> None:
    life.acknowledge(4, 4, ACCEPT, stores=False)


def _an_acknowledged_record_comes_again(life: Life) -> None:
    life.acknowledge(4, 4, ACCEPT)
    life.acquire(4, 4, 2)


def _a_closed_session_keeps_its_locks(life: Life) -> None:
    life.rules.session_ended(life.led, "m", [(0, 4)])


def _a_state_from_before_a_reset_is_loaded(life: Life) -> None:
    life.reset(0)
    life.load(life.leads(2, 2))


def _a_state_from_before_a_reset_is_written(life: Life) -> None:
    life.reset(0)
    life.acknowledge(4, 4, ACCEPT)


def _a_reset_has_another_offset(life: Life) -> None:
    life.reset(3)
    life.load(life.leads(2, 2), 4, state_epoch=2)


BREACHES: list[tuple[Callable[[Life], None], str]] = [
    (_while_it_is_locked, "S1"),
    (_by_another_leader_of_the_epoch, "S1"),
    (_before_a_renewed_lock_ends, "S1"),
    (_after_a_refused_acknowledgement, "S1"),
    (_an_ended_lock_is_renewed, "S2"),
    (_another_members_lock_is_acknowledged, "S2"),
    (_a_fenced_leader_writes, "S3"),
    (_a_count_begins_again, "S4"),
    (_a_count_begins_again_under_the_next_leader, "S4"),
    (_a_load_has_less_than_was_stored, "S4"),
    (_a_load_lacks_an_offset, "S4"),
    (_a_load_has_more_than_was_written, "S4"),
    (_a_load_has_an_earlier_start, "S4"),
    (_the_start_passes_a_locked_record, "S5"),
    (_an_acknowledgement_is_answered_before_it_is_stored, "S6"),
    (_an_acknowledged_record_comes_again, "S7"),
    (_a_closed_session_keeps_its_locks, "S8"),
    (_a_state_from_before_a_reset_is_loaded, "S9"),
    (_a_state_from_before_a_reset_is_written, "S9"),
    (_a_reset_has_another_offset, "S9"),
]


@pytest.mark.parametrize(("breach", "rule"), BREACHES, ids=[breach.__name__.strip("_") for breach, _ in BREACHES])
def test_a_breach_is_found(breach: Callable[[Life], None], rule: str) -> None:
    with pytest.RaisesExc(InvariantBroken, check=lambda error: error.rule == rule):
        breach(Life())
