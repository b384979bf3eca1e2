"""Fetches that wait for a share partition are woken one after another, as long as there is something for the next."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import pairwise

import pytest

from pykbroker.replica.parked import FetchWaiter, Isolation
from pykbroker.share_leaders.fetch_wakes import WAKES_PER_TURN, FetchWakes
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import build_batch
from tests.coordinator.fakes import as_loop
from tests.replica.world import NODE, NOW_MS, batch
from tests.share_leaders.rig import ACCEPT, RELEASE, Rig


def test_an_append_wakes_only_the_fetch_that_can_have_its_records() -> None:
    rig = Rig()
    first, second = rig.fetch("a", wait_seconds=60), rig.fetch("b", wait_seconds=60)
    reads = second.reads
    rig.append(3)
    rig.loop.settle()
    assert first.got == [(0, 2, 1)]
    assert (second.is_done, second.reads) == (False, reads)
    rig.append(1)
    rig.loop.settle()
    assert second.got == [(3, 3, 1)]


def test_one_append_is_enough_for_many_fetches_in_few_for_each_turn() -> None:
    rig = Rig()
    count = 3 * WAKES_PER_TURN
    fetches = [rig.fetch(f"m{number}", most=1, wait_seconds=60) for number in range(count)]
    rig.append(count - 1)
    done = []
    for _ in range(20):
        rig.loop.turn()
        done.append(sum(fetch.is_done for fetch in fetches))
    assert max(after - before for before, after in pairwise(done)) <= WAKES_PER_TURN
    assert done[-1] == count - 1
    assert not fetches[-1].is_done
    assert sorted(got.first for fetch in fetches for got in fetch.got) == list(range(count - 1))


def test_a_fetch_that_is_woken_meanwhile_loses_no_wake() -> None:
    rig = Rig()
    fetches = [rig.fetch(f"m{number}", most=1, wait_seconds=60) for number in range(8)]
    rig.append(4)
    rig.loop.turn()
    rig.append(4)
    rig.loop.settle()
    assert all(fetch.is_done for fetch in fetches)


class Waiter:
    """A fetch that finds nothing. `soon` is called at each poke if it is given."""

    isolation = Isolation.HIGH_WATERMARK

    def __init__(self, soon: Callable[[], None] | None = None) -> None:
        self.pokes = 0
        self.soon = soon

    def poke(self, arrived_bytes: int) -> None:
        self.pokes += 1
        if self.soon is not None:
            self.soon()


@pytest.mark.parametrize("event", ["now", "soon"])
def test_an_event_in_each_turn_keeps_no_fetch_from_its_wake(event: str) -> None:
    rig = Rig()
    waiters = [Waiter() for _ in range(3 * WAKES_PER_TURN)]
    wakes = FetchWakes(as_loop(rig.loop), dict.fromkeys(waiters), lambda: True)
    for _ in range(7):
        getattr(wakes, event)()
        rig.loop.turn()
    assert all(waiter.pokes >= 1 for waiter in waiters)
    rig.loop.settle()
    last = [waiter.pokes for waiter in waiters]
    assert last == [last[0]] * len(last), "each pass was whole"
    wakes.soon()
    rig.loop.settle()
    assert [waiter.pokes for waiter in waiters] == [last[0] + 1] * len(last)


def test_an_event_between_the_turns_of_a_pass_makes_another_pass() -> None:
    rig = Rig()
    waiters = [Waiter() for _ in range(WAKES_PER_TURN + 1)]
    wakes = FetchWakes(as_loop(rig.loop), dict.fromkeys(waiters), lambda: True)
    wakes.now()
    wakes.soon()
    rig.loop.settle()
    assert [waiter.pokes for waiter in waiters] == [2] * len(waiters)


def test_an_event_within_a_wake_makes_another_pass() -> None:
    rig = Rig()
    waiters: dict[FetchWaiter, None] = {}
    wakes = FetchWakes(as_loop(rig.loop), waiters, lambda: True)
    first, second = Waiter(wakes.now), Waiter()
    waiters.update(dict.fromkeys((first, second)))
    wakes.now()
    assert (first.pokes, second.pokes) == (1, 1)
    first.soon = None
    rig.loop.settle()
    assert (first.pokes, second.pokes) == (2, 2)


def test_answered_fetches_are_not_kept_until_the_next_event() -> None:
    rig = Rig()
    left = [None]
    waiters: dict[FetchWaiter, None] = dict.fromkeys(Waiter(left.pop if not each else None) for each in range(3))
    wakes = FetchWakes(as_loop(rig.loop), waiters, lambda: bool(left))
    kept = [weakref.ref(waiter) for waiter in waiters]
    wakes.now()
    rig.loop.settle()
    waiters.clear()
    assert [each() for each in kept] == [None] * 3


def test_records_that_are_not_committed_wake_no_fetch() -> None:
    rig = Rig()
    rig.world.register(1, 2)
    rig.partition = rig.world.create("u", replicas=(NODE, 2))
    fetch = rig.fetch(wait_seconds=60)
    reads = fetch.reads
    rig.partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
    rig.loop.settle()
    assert fetch.reads == reads
    rig.partition.note_fetched(2, 1)
    rig.loop.settle()
    assert fetch.got == [(0, 0, 1)]


def test_a_group_that_reads_committed_records_waits_for_the_end_of_a_transaction() -> None:
    rig = Rig(isolation_level="read_committed")
    committed, uncommitted = rig.fetch(wait_seconds=60), rig.fetch(group="h", wait_seconds=60)
    rig.append(1)
    rig.loop.settle()
    assert (committed.got, uncommitted.got) == ([(0, 0, 1)], [(0, 0, 1)])
    committed, uncommitted = rig.fetch(wait_seconds=60), rig.fetch(group="h", wait_seconds=60)
    guard = rig.partition.start_verification(7, 0, 0, supports_epoch_bump=False)
    records = build_batch(
        [(None, b"x", (), NOW_MS)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    rig.partition.append(bytearray(records), required_acks=-1, now_ms=NOW_MS, verification=guard)
    rig.loop.settle()
    assert not committed.is_done
    assert uncommitted.got == [(1, 1, 1)]
    rig.partition.append_marker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
    rig.loop.settle()
    assert committed.got == [(1, 2, 1)]


def test_a_release_wakes_a_fetch_when_it_is_stored() -> None:
    rig = Rig()
    rig.leader()
    rig.append(3)
    assert rig.fetch("a").got == [(0, 2, 1)]
    waiting = rig.fetch("b", wait_seconds=60)
    rig.keeper.holds = True
    rig.acknowledge(1, 2, RELEASE, member="a")
    rig.loop.settle()
    assert not waiting.is_done
    rig.keeper.answer()
    rig.loop.settle()
    assert waiting.got == [(1, 2, 2)]


def test_an_acknowledgement_makes_room_for_a_fetch_at_the_limit_of_locks() -> None:
    rig = Rig(partition_max_record_locks="100")
    rig.leader()
    rig.append(100)
    assert rig.fetch("a").got == [(0, 99, 1)]
    waiting = rig.fetch("b", wait_seconds=60)
    reads = waiting.reads
    rig.append(50)
    rig.loop.settle()
    assert (waiting.is_done, waiting.reads) == (False, reads)
    rig.acknowledge(0, 9, ACCEPT, member="a")
    rig.loop.settle()
    assert waiting.got == [(100, 109, 1)]


def test_records_that_are_given_back_wake_a_fetch_and_keep_their_count() -> None:
    rig = Rig()
    leader = rig.leader()
    rig.append(3)
    found = rig.fetch("a")
    waiting = rig.fetch("b", wait_seconds=60)
    leader.give_back("a", found.got)
    rig.loop.settle()
    assert waiting.got == [(0, 2, 1)]


def test_a_moved_start_of_the_log_makes_room_for_a_fetch() -> None:
    rig = Rig(partition_max_record_locks="100")
    leader = rig.leader()
    rig.append(100)
    rig.fetch("a")
    rig.append(50)
    waiting = rig.fetch("b", wait_seconds=60)
    assert not waiting.is_done
    rig.partition.delete_records_before(60)
    leader.log_start_moved(60)
    rig.loop.settle()
    assert waiting.got == [(100, 149, 1)]
    rig.acknowledge(60, 60, member="a")
    assert rig.keeper.writes[-1] == (60, [(60, 60, 2, 1)])
    rig.acknowledge(61, 61, member="a")
    assert rig.stored.start == 61


def test_a_leadership_that_ends_wakes_all_fetches_with_the_error() -> None:
    rig = Rig()
    fetches = [rig.fetch(f"m{number}", wait_seconds=60) for number in range(3)]
    rig.world.register(1, 2)
    rig.world.change(rig.partition, leader=2, replicas=[NODE, 2])
    rig.loop.settle()
    assert [fetch.errors for fetch in fetches] == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]] * 3
    assert len(rig.leaders) == 0
    assert not rig.partition.fetch_waiters


def test_another_leader_epoch_is_another_leader() -> None:
    rig = Rig()
    before = rig.leader()
    fetch = rig.fetch(wait_seconds=60)
    rig.world.change(rig.partition, leader=NODE)
    rig.loop.settle()
    assert fetch.errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    after = rig.leader()
    assert after is not before
    assert (before.leader_epoch, after.leader_epoch) == (0, 1)
    assert rig.stored.leader_epoch == 1


def test_a_deleted_topic_ends_its_leaders() -> None:
    rig = Rig()
    fetches = [rig.fetch(group=group, wait_seconds=60) for group in ("g", "h")]
    rig.world.delete("t")
    rig.loop.settle()
    assert [fetch.errors for fetch in fetches] == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]] * 2
    assert len(rig.leaders) == 0


def test_a_directory_that_fails_ends_its_leaders() -> None:
    rig = Rig()
    fetch = rig.fetch(wait_seconds=60)
    rig.partition.handle.take_offline()
    rig.loop.settle()
    assert fetch.errors == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert len(rig.leaders) == 0


def test_a_fetch_that_its_client_has_given_up_leaves_nothing() -> None:
    rig = Rig()
    leader = rig.leader()
    first, second = rig.fetch("a", wait_seconds=60), rig.fetch("b", wait_seconds=60)
    assert first.parked is not None
    first.parked.future.cancel()
    rig.loop.settle()
    rig.append(1)
    rig.loop.settle()
    assert (first.got, second.got) == ([], [(0, 0, 1)])
    assert not leader.fetch_waiters
