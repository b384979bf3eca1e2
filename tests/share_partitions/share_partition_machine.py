"""Drives a share partition and its model through the same random events, with a log and a share coordinator.

The log has batches, control records and holes; compaction removes batches, and its start moves. The coordinator keeps
what was written, and each write succeeds or fails later, in any order. Reloads continue from what it has. Dead letters
are written later too, in any order.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pykbroker.share_partitions.acquisition import Acquire, AcquiredRange
from pykbroker.share_partitions.delivery_states import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    DeadRange,
    DeliveryRange,
    ShareLimits,
)
from pykbroker.share_partitions.share_partition import SharePartition
from pykbroker.share_partitions.state_changes import DeliveryWrite, StateChange
from pykbroker_wire.errors import ErrorCode
from tests.share_partitions.share_partition_model import Acknowledged, Dead, SharePartitionModel, Written

MEMBERS = st.sampled_from(["m1", "m2", "m3"])
LOCK_MS = 1_000


def states_of(ranges: list[DeliveryRange]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in ranges:
        for at in range(first, last + 1):
            assert at not in found, f"{at} twice in one write"
            found[at] = (state, count)
    return found


def dead_of(ranges: list[DeadRange]) -> Dead:
    found: Dead = {}
    for first, last, count, is_rejected in ranges:
        for at in range(first, last + 1):
            assert at not in found, f"{at} is reported twice"
            found[at] = (count, is_rejected)
    return found


class StoredState:
    """The state that the share coordinator has: the newest one of each offset from the start on."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.states: dict[int, tuple[int, int]] = {}

    def write(self, write: DeliveryWrite) -> None:
        self.start = max(self.start, write.start)
        self.states |= states_of(write.ranges)
        self.states = {at: each for at, each in self.states.items() if at >= self.start}

    def ranges(self) -> list[DeliveryRange]:
        found: list[DeliveryRange] = []
        for at, (state, count) in sorted(self.states.items()):
            if found and found[-1] == (found[-1].first, at - 1, state, count):
                found[-1] = DeliveryRange(found[-1].first, at, state, count)
            else:
                found.append(DeliveryRange(at, at, state, count))
        return found


class SharePartitionEvents(RuleBasedStateMachine):
    """`divides_batches` is True where the machine divides batches that the model leaves whole: then fetches ask for a
    number of records, and their ranges may be divided too."""

    divides_batches = False
    delivery_limits = st.integers(2, 6)

    @initialize(
        limit=st.data(),
        locks=st.sampled_from([8, 20, 2000, 2000]),
        sizes=st.lists(st.integers(1, 9), min_size=3, max_size=8),
        dead_letters=st.booleans(),
    )
    def begin(self, limit: st.DataObject, locks: int, sizes: list[int], dead_letters: bool) -> None:
        self.limits = ShareLimits(locks, limit.draw(self.delivery_limits), LOCK_MS, dead_letters=dead_letters)
        #: False as long as the group has never wanted dead letters
        self.may_archive = dead_letters
        #: the letters that are not written yet
        self.letters: list[DeadRange] = []
        self.now_ms = 10_000
        self.log: list[tuple[int, int]] = []
        self.log_end = 0
        self.log_start = 0
        self.stored = StoredState(0)
        self.partition = SharePartition(0)
        self.model = SharePartitionModel(0)
        self.writes: list[tuple[DeliveryWrite, Written]] = []
        self.last: tuple[str, list[AcquiredRange]] = ("m1", [])
        self.append(sizes)

    # -- the log ------------------------------------------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
    def append(self, sizes: list[int]) -> None:
        for size in sizes:
            self.log.append((self.log_end, self.log_end + size - 1))
            self.log_end += size

    @precondition(lambda self: len(self.log) > 1)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """A batch goes, but not the last one."""
        self.log.pop(data.draw(st.integers(0, len(self.log) - 2)))

    @rule(ahead=st.integers(1, 12), is_done=st.sampled_from([True, False, False]))
    def delete_records(self, ahead: int, is_done: bool) -> None:
        if not is_done:
            return
        self.log_start = min(self.log_end, self.partition.start_offset + ahead)
        self.log = [(max(base, self.log_start), last) for base, last in self.log if last >= self.log_start]
        self.partition.move_start(self.log_start)
        self.model.move_start(self.log_start)

    # -- fetches ------------------------------------------------------------------------------------------------------

    @rule(
        member=MEMBERS,
        most=st.sampled_from([0, 1, 3, 7, 500]),
        size=st.sampled_from([1, 4, 500]),
        limits_records=st.booleans(),
        reads=st.integers(1, 6),
        aborted=st.data(),
    )
    def acquire(
        self, member: str, most: int, size: int, limits_records: bool, reads: int, aborted: st.DataObject
    ) -> None:
        if self.partition.next_fetch_offset >= self.log_end:
            self.append([1 + size % 7, 5])
        is_cut = aborted.draw(st.sampled_from([True, False, False]))
        cuts = aborted.draw(st.lists(st.booleans(), min_size=reads, max_size=reads)) if is_cut else []
        self._acquire(member, most, size, limits_records, reads, cuts)

    def _acquire(
        self, member: str, most: int, size: int, limits_records: bool, reads: int, cuts: list[bool]
    ) -> list[AcquiredRange]:
        at = self.partition.next_fetch_offset
        fetched = [each for each in self.log if each[1] >= at][:reads]
        ranges = [each for each, is_cut in zip(fetched, cuts, strict=False) if is_cut]
        limits_records = limits_records or self.divides_batches
        ask = Acquire(member, at, fetched, most, size, limits_records, ranges)
        before, after = self.partition.in_flight_count, self.model.next
        found = self.partition.acquire(ask, self.limits, self.now_ms)
        expected = self.model.acquire(ask, self.limits, self.now_ms)
        if not self.divides_batches:
            assert found == expected, (ask, self.model.start)
        else:
            assert [(at, each.delivery_count) for each in found for at in range(each.first, each.last + 1)] == [
                (at, each.delivery_count) for each in expected for at in range(each.first, each.last + 1)
            ]
        largest = max((last - base + 1 for base, last in fetched), default=0)
        new = sum(each.last - max(after, each.first) + 1 for each in found if each.last >= after)
        assert new <= max(0, self.limits.record_locks - before) + largest, "more than a batch over the limit"
        self.last = (member, found)
        return found

    @rule(
        member=MEMBERS,
        times=st.integers(1, 4),
        most=st.sampled_from([2, 5, 500]),
        limits_records=st.booleans(),
        part=st.sampled_from([1, 1, 2]),
    )
    def redeliver(self, member: str, times: int, most: int, limits_records: bool, part: int) -> None:
        """A member fetches and releases the same records, all or the first half, several times."""
        for _ in range(times):
            found = self._acquire(member, most, 500, limits_records, 3, [])
            count = len(self.writes)
            ranges = [Acknowledged(each.first, each.first + (each.last - each.first) // part, [2]) for each in found]
            self._acknowledge(member, ranges, False)
            if len(self.writes) > count:
                self._end_write(count, True, True)

    @rule()
    def answer_is_not_sent(self) -> None:
        self.partition.give_back(*self.last)
        self.model.give_back(*self.last)
        self.last = ("m1", [])

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self._holders())
    @rule(data=st.data(), is_renewal=st.booleans(), breaks=st.integers(0, 5), ends=st.booleans())
    def acknowledge(self, data: st.DataObject, is_renewal: bool, breaks: int, ends: bool) -> None:
        member = data.draw(st.sampled_from(self._holders()))
        held = sorted(self.model.offsets) if breaks == 2 else self.model.held(member)
        is_whole = data.draw(st.booleans())
        ranges: list[Acknowledged] = []
        at = data.draw(st.sampled_from(held))
        kinds = st.integers(0, 4 if is_renewal else 3)
        for _ in range(data.draw(st.integers(1, 3))):
            batch = self.model.offsets[at].batch
            last = sum(batch) - 1 if is_whole else at + data.draw(st.integers(0, 6))
            while last not in held and last > at:
                last -= 1
            several = data.draw(st.booleans())
            types = [data.draw(kinds) for _ in range(last - at + 1)] if several else [data.draw(kinds)]
            ranges.append(Acknowledged(at, last, types))
            later = [each for each in held if each > last]
            if not later:
                break
            at = data.draw(st.sampled_from(later[:4]))
        if breaks == 0:
            far = self.model.next + data.draw(st.integers(-4, 3))
            ranges.append(Acknowledged(max(far, 0), max(far, 0) + 1, [1]))
        by = data.draw(MEMBERS) if breaks == 1 else member
        count = len(self.writes)
        self._acknowledge(by, ranges, is_renewal)
        if ends and len(self.writes) > count:
            self._end_write(count, True, True)

    def _holders(self) -> list[str]:
        return [member for member in ("m1", "m2", "m3") if self.model.held(member)]

    @rule(
        member=MEMBERS,
        ranges=st.lists(
            st.builds(
                lambda first, size, types: Acknowledged(first, first + size, types),
                st.integers(-3, 30),
                st.integers(-1, 5),
                st.lists(st.integers(-1, 5), max_size=6),
            ),
            max_size=3,
        ),
        is_renewal=st.booleans(),
    )
    def acknowledge_anything(self, member: str, ranges: list[Acknowledged], is_renewal: bool) -> None:
        start = self.model.start
        moved = [each._replace(first_offset=start + each[0], last_offset=start + each[1]) for each in ranges]
        self._acknowledge(member, moved, is_renewal)

    def _acknowledge(self, member: str, ranges: list[Acknowledged], is_renewal: bool) -> None:
        # A refused range of a lock that has ended may leave it to the timer, or end it.
        self.locks_end()
        is_renewal = is_renewal and not self.divides_batches
        change = self.partition.acknowledge(member, ranges, self.limits, self.now_ms, is_renewal=is_renewal)
        expected = self.model.acknowledge(member, ranges, self.limits, self.now_ms, is_renewal)
        self._compare(change, expected)

    @rule(member=MEMBERS)
    def session_ends(self, member: str) -> None:
        change = self.partition.release(member, self.limits, self.now_ms)
        self._compare(change, self.model.release(member, self.limits, self.now_ms))

    @rule(is_allowed=st.booleans(), limit=st.data(), turns=st.sampled_from([True, False, False]))
    def configure(self, is_allowed: bool, limit: st.DataObject, turns: bool) -> None:
        """`turns`: the dead letter queue is taken from the group, or given to it."""
        wanted = self.limits.dead_letters != turns
        self.limits = self.limits._replace(
            allows_renewal=is_allowed, delivery_count=limit.draw(self.delivery_limits), dead_letters=wanted
        )
        self.may_archive |= wanted

    def _compare(self, change: StateChange, expected: ErrorCode | Written | None) -> None:
        while not change.go_on():
            pass
        self._take_dead(change.dead, self.model.dead if isinstance(expected, ErrorCode) else {})
        if isinstance(expected, ErrorCode):
            assert change.error == expected
            assert change.write is None
        elif expected is None:
            assert (change.error, change.write) == (None, None)
        else:
            assert change.error is None
            assert change.write is not None
            assert Written(change.write.start, change.write.delivered, states_of(change.write.ranges)) == expected
            self.writes.append((change.write, expected))

    def _take_dead(self, dead: list[DeadRange], expected: Dead) -> None:
        assert dead_of(dead) == expected
        self.letters += dead

    @precondition(lambda self: self.letters)
    @rule(data=st.data(), are_all=st.booleans(), is_stored=st.booleans())
    def letters_are_written(self, data: st.DataObject, are_all: bool, is_stored: bool) -> None:
        """The write after them may fail."""
        places = range(len(self.letters))
        chosen = set(places) if are_all else {data.draw(st.sampled_from(places)), data.draw(st.sampled_from(places))}
        written = sorted((each.first, each.last) for place, each in enumerate(self.letters) if place in chosen)
        self.letters = [each for place, each in enumerate(self.letters) if place not in chosen]
        could = (self.partition.next_fetch_offset, self.partition.start_offset)
        change = self.partition.archive(written)
        while not change.go_on():
            pass
        expected = self.model.archive([at for first, last in written for at in range(first, last + 1)])
        assert change.error is None
        if change.write is None:
            assert expected is None
        else:
            assert not change.write.is_awaited
            assert Written(change.write.start, change.write.delivered, states_of(change.write.ranges)) == expected
            if is_stored:
                self.stored.write(change.write)
        now = (self.partition.next_fetch_offset, self.partition.start_offset)
        assert change.frees or could == now, "parked fetches are not woken"

    @precondition(lambda self: self.writes)
    @rule(data=st.data(), is_written=st.booleans(), is_stored=st.booleans())
    def write_ends(self, data: st.DataObject, is_written: bool, is_stored: bool) -> None:
        """A write that fails may have been stored all the same: the answer was lost."""
        self._end_write(data.draw(st.integers(0, len(self.writes) - 1)), is_written, is_stored)

    def _end_write(self, place: int, is_written: bool, is_stored: bool) -> None:
        write, expected = self.writes.pop(place)
        if is_written or is_stored:
            self.stored.write(write)
        could = (self.partition.next_fetch_offset, self.partition.start_offset)
        change = self.partition.persisted(write, is_written, self.limits, self.now_ms)
        while not change.go_on():
            pass
        self.model.persisted(expected.states, is_written, self.limits, self.now_ms)
        self._take_dead(change.dead, self.model.dead)
        now = (self.partition.next_fetch_offset, self.partition.start_offset)
        assert change.frees or could == now, "parked fetches are not woken"

    # -- time and leaders ---------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([20, 300, 700, LOCK_MS]), is_noticed=st.sampled_from([True, True, False]))
    def time_passes(self, ms: int, is_noticed: bool) -> None:
        """The timer may be late."""
        self.now_ms += ms
        if is_noticed:
            self.locks_end()

    def locks_end(self) -> None:
        states: dict[int, tuple[int, int]] = {}
        dead: list[DeadRange] = []
        while (due := self.partition.next_expiry_ms()) is not None and due <= self.now_ms:
            write = self.partition.expire(self.limits, self.now_ms)
            if write is not None:
                states |= states_of(write.ranges)
                dead += write.dead
                self.stored.write(write)
                last = write
        assert states == self.model.expire(self.limits, self.now_ms)
        self._take_dead(dead, self.model.dead)
        if states:
            assert (last.start, last.delivered) == (self.model.start, self.model.delivered)

    @rule(is_done=st.sampled_from([True, False, False]))
    def leader_changes(self, is_done: bool) -> None:
        """Locks are gone. A count goes on where the last write left it."""
        if not is_done:
            return
        self.writes.clear()
        self.last = ("m1", [])
        ranges = self.stored.ranges()
        self.partition = SharePartition.load(self.stored.start, ranges)
        self.model = SharePartitionModel(self.stored.start, ranges)
        self.letters = []
        self._take_dead(self.partition.unfinished_letters(self.limits), self.model.unfinished(self.limits))
        self.partition.move_start(self.log_start)
        self.model.move_start(self.log_start)

    # -- what must be equal -------------------------------------------------------------------------------------------

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        model, partition = self.model, self.partition
        assert partition.start_offset == model.start
        assert partition.end_offset == (model.next - 1 if model.offsets else model.start)
        assert partition.next_fetch_offset == model.next_fetch_offset
        assert partition.delivery_complete_count == model.delivered
        assert partition.in_flight_count == model.in_flight
        assert partition.can_acquire(self.limits) == model.can_acquire(self.limits)
        assert states_of(list(partition.ranges())) == {at: (o.state, o.count) for at, o in model.offsets.items()}
        locks = {
            at: (member, deadline_ms)
            for first, last, member, deadline_ms in partition.locks()
            for at in range(first, last + 1)
        }
        assert locks == {at: (o.owner, o.deadline_ms) for at, o in model.offsets.items() if o.owner is not None}
        expiries = [o.deadline_ms for o in model.offsets.values() if o.owner is not None and not o.is_pending]
        if expiries:
            due = partition.next_expiry_ms()
            assert due is not None
            assert due <= min(expiries), "no lock ends late"

    @invariant()
    def each_dead_record_has_its_letter(self) -> None:
        if not hasattr(self, "model"):
            return
        waiting = {at for at in dead_of(self.letters) if at in self.model.offsets}
        archiving = {at for at, o in self.model.offsets.items() if o.state == ARCHIVING and not o.is_pending}
        assert waiting == archiving, "a record stays ARCHIVING without a letter"

    @invariant()
    def nothing_is_archiving_below_share_version_2(self) -> None:
        if not hasattr(self, "model") or self.may_archive:
            return
        seen = [state for _, _, state, _ in self.partition.ranges()] + [
            state for state, _ in self.stored.states.values()
        ]
        assert ARCHIVING not in seen

    @invariant()
    def the_start_passes_only_what_is_done(self) -> None:
        if not hasattr(self, "model") or not self.model.offsets:
            return
        first = self.model.offsets.get(self.model.start)
        assert first is None or first.is_pending or first.state not in (ACKNOWLEDGED, ARCHIVED)
        assert all(at >= self.model.start for at in self.model.offsets)

    @invariant()
    def no_count_passes_the_limit_and_is_available(self) -> None:
        if not hasattr(self, "model"):
            return
        counts = {at: o.count for at, o in self.model.offsets.items() if o.state == AVAILABLE}
        assert all(count >= 0 for count in counts.values())
