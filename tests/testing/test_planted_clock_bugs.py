"""Each planted bug of the clock is found by a test of the clock. A bug is planted in the product while this test runs
again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import pykbroker
from pykbroker.coordinator.group.offsets import OffsetAges
from pykbroker.coordinator.repeated_work import RepeatedWork
from pykbroker.coordinator.timers import Timers
from pykbroker.coordinator.transaction.shard import TransactionShard
from pykbroker.runtime.client_clock import LoopClock
from pykbroker.storage import upkeep
from pykbroker.testing.client_time import ClientTime, MovedClock
from pykbroker_log.jumps import NO_JUMPS, Jumps
from tests.testing import test_client_time, test_clock

Patch = pytest.MonkeyPatch


def on_a_broker(test: Callable[[pykbroker.Broker], None]) -> Callable[[], None]:
    def run() -> None:
        with pykbroker.Broker(test_clock.CONFIG) as broker:
            test(broker)

    return run


def timers_of_groups_are_on_the_clock_of_the_loop(patch: Patch) -> None:
    made = Timers.__init__
    patch.setattr(Timers, "__init__", lambda self, clock, fire: made(self, LoopClock(clock.loop), fire))


def retention_does_not_see_jumps(patch: Patch) -> None:
    retire = upkeep.retire
    patch.setattr(upkeep, "retire", lambda logs, log, now_ms, jumps=NO_JUMPS: retire(logs, log, now_ms))


def all_jumps_count_for_each_record(patch: Patch) -> None:
    patch.setattr(Jumps, "after", lambda self, timestamp_ms: self.total_ms)


def ages_of_offsets_have_no_jumps(patch: Patch) -> None:
    patch.setattr(OffsetAges, "of", lambda self, timestamp_ms: self.now_ms - timestamp_ms)


def transactions_are_overdue_by_the_wall_clock(patch: Patch) -> None:
    overdue = TransactionShard.overdue
    patch.setattr(
        TransactionShard, "overdue", lambda self, jumps, token, now_ms: overdue(self, NO_JUMPS, token, now_ms)
    )


def repeated_work_is_on_the_clock_of_the_loop(patch: Patch) -> None:
    made = RepeatedWork.__init__
    patch.setattr(RepeatedWork, "__init__", lambda self, clock: made(self, LoopClock(clock.loop)))


def the_filter_by_duration_forgets_jumps(patch: Patch) -> None:
    matching = TransactionShard.matching

    def by_the_wall_clock(self: Any, states: Any, ids: Any, duration_ms: int, jumps: Jumps, *more: Any) -> Any:
        return matching(self, states, ids, duration_ms, NO_JUMPS, *more)

    patch.setattr(TransactionShard, "matching", by_the_wall_clock)


def only_one_node_has_the_jump(patch: Patch) -> None:
    each = ClientTime._each

    def of_one(self: Any, is_asked: Any, call: Any, turns: int) -> Any:
        return each(self, lambda node: node == 1, call if call is not MovedClock.run_due else first, turns)

    def first(clock: MovedClock) -> None:
        if clock.node == 1:
            clock.run_due()

    patch.setattr(ClientTime, "_each", of_one)


def an_advance_is_one_step(patch: Patch) -> None:
    patch.setattr(MovedClock, "ahead_s", lambda self: None)


def the_timer_of_the_loop_stays_where_it_was_before_the_jump(patch: Patch) -> None:
    arm = MovedClock._arm

    def arm_by_the_due_time(self: Any) -> None:
        found = self._next()
        if self._handle is None or found is None or found[0] != self._armed[0]:
            arm(self)

    patch.setattr(MovedClock, "_arm", arm_by_the_due_time)


def the_wall_clock_always_follows(patch: Patch) -> None:
    move = ClientTime._move
    patch.setattr(ClientTime, "_move", lambda self, by_ms, is_asked, wall_clock: move(self, by_ms, is_asked, True))


def a_session_that_begins_in_an_advance_is_shortened_by_its_rest(patch: Patch) -> None:
    patch.setattr(MovedClock, "time_after_advance", MovedClock.time)


def sessions_of_members_end(broker: pykbroker.Broker) -> None:
    test_clock.test_sessions_of_members_end_and_the_members_come_back(broker, "classic")


@dataclass(slots=True, frozen=True)
class Bug:
    plant: Callable[[Patch], None]
    found_by: Callable[[], None]


BUGS = [
    Bug(timers_of_groups_are_on_the_clock_of_the_loop, on_a_broker(sessions_of_members_end)),
    Bug(
        retention_does_not_see_jumps,
        on_a_broker(test_clock.test_a_record_produced_after_a_jump_survives_the_next_retention_run),
    ),
    Bug(
        all_jumps_count_for_each_record,
        on_a_broker(test_clock.test_a_record_produced_after_a_jump_survives_the_next_retention_run),
    ),
    Bug(
        ages_of_offsets_have_no_jumps,
        on_a_broker(test_clock.test_offsets_expire_and_a_group_that_has_none_left_is_gone),
    ),
    Bug(
        transactions_are_overdue_by_the_wall_clock,
        on_a_broker(test_clock.test_a_transaction_that_is_open_too_long_is_aborted),
    ),
    Bug(
        repeated_work_is_on_the_clock_of_the_loop,
        on_a_broker(test_clock.test_a_transaction_that_is_open_too_long_is_aborted),
    ),
    Bug(
        the_filter_by_duration_forgets_jumps,
        on_a_broker(test_clock.test_the_duration_of_a_transaction_has_the_jumps_in_it),
    ),
    Bug(only_one_node_has_the_jump, test_client_time.test_the_timers_of_two_nodes_run_in_the_order_of_their_times),
    Bug(an_advance_is_one_step, test_client_time.test_the_timers_of_two_nodes_run_in_the_order_of_their_times),
    Bug(
        the_timer_of_the_loop_stays_where_it_was_before_the_jump,
        test_client_time.test_the_rest_of_a_timer_passes_by_itself_after_a_jump,
    ),
    Bug(
        the_wall_clock_always_follows,
        on_a_broker(test_clock.test_the_wall_clock_in_records_follows_only_if_asked),
    ),
    Bug(
        a_session_that_begins_in_an_advance_is_shortened_by_its_rest,
        on_a_broker(test_clock.test_a_member_that_joins_while_an_advance_goes_on_keeps_its_session),
    ),
    Bug(
        a_session_that_begins_in_an_advance_is_shortened_by_its_rest,
        test_client_time.test_a_timer_that_waits_for_a_member_and_begins_in_an_advance_is_counted_from_its_end,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_each_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    with pytest.raises(AssertionError):
        bug.found_by()
