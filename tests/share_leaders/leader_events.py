"""Drives the leaders of one share partition through random events: members, answers of the share coordinator in any
state, kills, new leader epochs, dead letters, and time. The answers to the members must keep the promises of KIP-932,
and the dead letters those of KIP-1191.

The share coordinator of the rig holds its answers, so acknowledgements, locks and sessions end while writes are out.
The writer of dead letters does the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pykbroker.share_leaders.share_partition_leader import SharePartitionLeader
from pykbroker.share_partitions.delivery_states import ACKNOWLEDGED, ACQUIRED, ARCHIVED, ARCHIVING
from pykbroker.share_partitions.share_sessions import SessionMember
from pykbroker_wire.errors import ErrorCode
from tests.replica.world import NODE
from tests.share_leaders.rig import ACCEPT, REJECT, RELEASE, RENEW, Acknowledged, Fetch, Result, Rig

MEMBERS = ("m1", "m2", "m3")
LOCK_MS = 15_000
TICK_MS = 50
#: for events after which little is left
RARELY = st.sampled_from([False, False, False, False, True])
WRITE_ERRORS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.FENCED_STATE_EPOCH, ErrorCode.INVALID_REQUEST)


@dataclass
class Sent:
    """An acknowledgement whose answer has not been looked at."""

    member: str
    leader: SharePartitionLeader
    offsets: list[int]
    kind: int
    result: Result
    #: the records that the member held when it sent the request; those before the start are ignored
    held: set[int]
    #: the time of the request in ms
    sent_at_ms: int
    #: the time until which it must not be refused, in ms; 0 if another request about these records is under way
    certain_until_ms: int


@dataclass
class Waiting:
    """A fetch of a member. `taken` is the number of its ranges that were looked at."""

    member: str
    leader: SharePartitionLeader
    fetch: Fetch
    taken: int = 0


@dataclass
class Held:
    member: str
    leader: SharePartitionLeader
    deadline_ms: int


@dataclass
class View:
    """The locks, acknowledgements and deliveries that the members know of."""

    held: dict[int, Held] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    #: the count of the last delivery of each record, with the leader
    counts: dict[int, tuple[SharePartitionLeader, int]] = field(default_factory=dict)
    delivered: set[int] = field(default_factory=set)
    #: rejected records that must have a dead letter
    dead: set[int] = field(default_factory=set)
    #: records that were accepted, and may have no dead letter from then on
    accepted: set[int] = field(default_factory=set)
    #: records whose dead letter was written
    lettered: set[int] = field(default_factory=set)
    #: the number of letters that were looked at
    letters_seen: int = 0


class LeaderEvents(RuleBasedStateMachine):
    """`view` is the specification."""

    @initialize(
        reset=st.sampled_from(["latest", "earliest"]),
        before=st.integers(0, 4),
        waits=st.booleans(),
        limit=st.sampled_from([10, 10, 2]),
        has_queue=st.booleans(),
    )
    def begin(self, reset: str, before: int, waits: bool, limit: int, has_queue: bool) -> None:
        """`waits`: a member fetches before the group has a start, and records come."""
        self.limit = limit
        self.rig = Rig(auto_offset_reset=reset, record_lock_duration_ms=str(LOCK_MS), delivery_count_limit=str(limit))
        self.rig.letters.wanted = self.had_queue = has_queue
        self.rig.letters.holds = True
        self.loop = self.rig.loop
        self.keeper = self.rig.keeper
        self.keeper.holds = True
        self.view = View()
        self.fetches: list[Waiting] = []
        self.sent: list[Sent] = []
        #: the first start that was stored
        self.first_start: int | None = None
        for _ in range(before):
            self.rig.append(2)
        if waits:
            self.fetch("m1", 100, 60, "nothing")
            self.append(1)

    # -- events -------------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        self.rig.append(count)
        self._settle()

    @rule(
        member=st.sampled_from(MEMBERS),
        most=st.sampled_from([1, 2, 100]),
        wait=st.sampled_from([0, 60, 60]),
        needs=st.sampled_from(["records", "records", "records", "a load", "a load", "nothing"]),
    )
    def fetch(self, member: str, most: int, wait: int, needs: str) -> None:
        """A member fetches, unless it waits already. Mostly the leader has been loaded, or has records too."""
        if any(each.member == member and not each.fetch.is_done for each in self.fetches):
            return
        self.rig.join(member)
        leader = self.rig.leader(member=member)
        if needs != "nothing":
            self._answer_all()
            leader = self.rig.leader(member=member)
            self._answer_all()
            if needs == "records" and leader.machine.next_fetch_offset >= self.rig.partition.high_watermark:
                self.append(3)
        self.fetches.append(Waiting(member, leader, self.rig.fetch(member, most, wait)))
        self._settle()

    @rule(data=st.data(), most=st.sampled_from([1, 100]))
    def crowd(self, data: st.DataObject, most: int) -> None:
        """All members wait, and then records come, or one member releases some."""
        for member in MEMBERS:
            self.fetch(member, most, 60, "a load")
        is_release = data.draw(st.booleans())
        if self.view.held and is_release:
            self.acknowledge(data, RELEASE, None, 3, False, "done")
        else:
            self.append(3)

    def _answer_all(self) -> None:
        while self.keeper.asked or self.rig.letters.asked:
            if self.keeper.asked:
                self.keeper.answer()
            else:
                self._write_letters(0)
            self._settle()

    def _write_letters(self, place: int) -> None:
        letters = self.rig.letters.asked[place].letters
        self.view.lettered |= set(range(letters.first_offset, letters.last_offset + 1))
        self.rig.letters.end(place)

    @precondition(lambda self: self.rig.letters.asked)
    @rule(data=st.data())
    def letters_are_written(self, data: st.DataObject) -> None:
        self._write_letters(data.draw(st.integers(0, len(self.rig.letters.asked) - 1)))
        self._settle()

    @rule(is_chosen=RARELY)
    def the_queue_comes_or_goes(self, is_chosen: bool) -> None:
        self.rig.letters.wanted ^= is_chosen
        self.had_queue |= self.rig.letters.wanted

    @rule(
        data=st.data(),
        kind=st.sampled_from([ACCEPT, ACCEPT, RELEASE, REJECT, RENEW]),
        by=st.sampled_from([None, None, None, *MEMBERS]),
        turns=st.integers(0, 3),
        leaves=RARELY,
        outcome=st.sampled_from([None, None, "done", "lost", WRITE_ERRORS[0]]),
    )
    def acknowledge(
        self,
        data: st.DataObject,
        kind: int,
        by: str | None,
        turns: int,
        leaves: bool,
        outcome: str | ErrorCode | None,
    ) -> None:
        held = sorted(self.view.held)
        leader = self.rig.leaders.find("g", *self.rig.place())
        if not held or leader is None:
            return
        first = data.draw(st.sampled_from(held))
        last = first
        while data.draw(st.sampled_from([True, True, True, False])) and last + 1 in self.view.held:
            last += 1
        member = by or self.view.held[first].member
        offsets = list(range(first, last + 1))
        now_ms = self._now_ms()
        rightful = {
            at
            for at in offsets
            if (lock := self.view.held[at]).member == member
            and lock.leader is leader
            and lock.deadline_ms + TICK_MS >= now_ms
        }
        is_rightful = len(rightful) == len(offsets)
        is_alone = not any(set(offsets) & set(each.offsets) for each in self.sent)
        certain_until_ms = min(self.view.held[at].deadline_ms for at in offsets) if is_rightful and is_alone else 0
        ranges = [Acknowledged(at, at, [kind]) for at in offsets]
        result = Result(leader.acknowledge(member, ranges, is_renewal=kind == RENEW))
        self.sent.append(Sent(member, leader, offsets, kind, result, rightful, now_ms, certain_until_ms))
        if leaves:
            self._leave(member, False)
        for _ in range(turns):
            self.loop.turn()
            self._look()
        if turns == 3:
            self._settle()
        self._look()
        if outcome is not None:
            self._settle()
            while len(self.keeper.asked) > 1:
                self.answer("done")
            if self.keeper.asked:
                self.answer(outcome)

    @rule(data=st.data(), kinds=st.lists(st.sampled_from([ACCEPT, ACCEPT, RELEASE, REJECT]), min_size=3, max_size=5))
    def acknowledge_together(self, data: st.DataObject, kinds: list[int]) -> None:
        """Acknowledgements come while the write of the first one is out, and then the share coordinator answers."""
        for kind in kinds:
            self.acknowledge(data, kind, None, 0, False, None)
        self._settle()
        while self.keeper.asked:
            self.answer("done")

    @precondition(lambda self: self.keeper.asked)
    @rule(outcome=st.sampled_from(["done", "done", "done", "lost", "lost", *WRITE_ERRORS]))
    def answer(self, outcome: str | ErrorCode) -> None:
        if isinstance(outcome, ErrorCode):
            self.keeper.answer(outcome)
        else:
            self.keeper.answer(is_lost=outcome == "lost")
        self._settle()

    @rule(member=st.sampled_from(MEMBERS), by_connection=st.booleans(), is_chosen=RARELY)
    def leave(self, member: str, by_connection: bool, is_chosen: bool) -> None:
        if is_chosen:
            self._leave(member, by_connection)

    def _leave(self, member: str, by_connection: bool) -> None:
        if self.rig.leaders.sessions.peek(SessionMember("g", member)) is None:
            return
        for each in self.fetches:
            if each.member == member and each.fetch.parked is not None:
                each.fetch.parked.future.cancel()
        if by_connection:
            self.rig.leaders.disconnected(member)
        else:
            self.rig.leave(member)
        for at in [at for at, lock in self.view.held.items() if lock.member == member]:
            del self.view.held[at]
        self._settle()

    @rule(seconds=st.sampled_from([1, 5, 16]))
    def time_passes(self, seconds: int) -> None:
        self.loop.advance(seconds)
        self._settle()

    @rule(is_chosen=RARELY)
    def another_leader_epoch(self, is_chosen: bool) -> None:
        if not is_chosen:
            return
        self.rig.world.change(self.rig.partition, leader=NODE)
        self.view.held.clear()
        self._settle()

    @rule(carried_out=st.booleans(), is_chosen=RARELY)
    def kill(self, carried_out: bool, is_chosen: bool) -> None:
        """The broker is killed and comes back. Requests that it had sent are carried out, or are not."""
        if not is_chosen:
            return
        self._settle()
        for leader in list(self.rig.leaders):
            leader.end()
        for each in self.fetches:
            if each.fetch.parked is not None:
                each.fetch.parked.future.cancel()
        asked, self.keeper.asked = self.keeper.asked, []
        for each_asked in asked:
            each_asked.promise.cancel()
            if carried_out:
                self.keeper._carry_out(each_asked)
        for letters in self.rig.letters.asked:
            letters.promise.cancel()
        self.rig.letters.asked.clear()
        self.fetches.clear()
        self.sent.clear()
        self.view.held.clear()
        self.loop.settle()
        self.rig.restarted()

    @rule(is_chosen=RARELY, by_connection=st.booleans())
    def everything_comes(self, is_chosen: bool, by_connection: bool) -> None:
        """When the coordinator answers and all members leave, another member gets every record that is not done."""
        if is_chosen:
            self._drain(by_connection)

    # -- what members see ---------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def _settle(self) -> None:
        self.loop.settle()
        self._look()

    def _look(self) -> None:
        if self.first_start is None and self.rig.stored.start >= 0:
            self.first_start = self.rig.stored.start
        self._look_at_letters()
        self._look_at_answers()
        self._look_at_fetches()

    def _look_at_letters(self) -> None:
        came = self.rig.letters.came
        stored = self.rig.stored
        for letters in came[self.view.letters_seen :]:
            for at in range(letters.first_offset, letters.last_offset + 1):
                assert at not in self.view.accepted, f"{at} was accepted, and gets a dead letter"
                state = stored.states.get(at, (ARCHIVED, 0))[0]
                is_last = letters.delivery_count >= self.limit
                assert is_last or at < stored.start or state in (ARCHIVING, ARCHIVED), f"{at} was not stored before"
        self.view.letters_seen = len(came)

    def _look_at_answers(self) -> None:
        stored = self.rig.stored
        for each in [each for each in self.sent if each.result.is_there]:
            self.sent.remove(each)
            if each.result.value is not ErrorCode.NONE:
                is_certain = self._now_ms() < each.certain_until_ms
                assert not is_certain or each.result.value is not ErrorCode.INVALID_RECORD_STATE, (
                    f"{each.offsets} were refused, and {each.member} held them"
                )
                continue
            for at in each.offsets:
                is_past = at < stored.start
                assert at in each.held or is_past or at < each.leader.machine.start_offset, (
                    f"{at} was acknowledged by {each.member}, which did not hold it"
                )
                if each.kind == RENEW:
                    lock = self.view.held.get(at)
                    if lock is not None and lock.leader is each.leader and lock.member == each.member:
                        lock.deadline_ms = each.sent_at_ms + LOCK_MS
                    continue
                if each.kind in (ACCEPT, REJECT):
                    state = stored.states.get(at, (0, 0))[0]
                    is_stored = state in (ACKNOWLEDGED, ARCHIVED) or (each.kind == REJECT and state == ARCHIVING)
                    if not is_stored and at < each.leader.machine.start_offset:
                        # A record that the leader has archived, so that it ignores the acknowledgement. The write of a
                        # lock that has ended, or after a dead letter, may be out or lost.
                        continue
                    assert is_past or is_stored, f"{at} was answered before it was stored"
                    self.view.done.add(at)
                    if each.kind == ACCEPT:
                        self.view.accepted.add(at)
                    elif state == ARCHIVING:
                        self.view.dead.add(at)
                lock = self.view.held.get(at)
                if lock is not None and lock.leader is each.leader and lock.member == each.member:
                    del self.view.held[at]

    def _look_at_fetches(self) -> None:
        for each in sorted(self.fetches, key=lambda waiting: waiting.fetch.read_at):
            for got in each.fetch.got[each.taken :]:
                for at in range(got.first, got.last + 1):
                    self._delivered(each, at, got.delivery_count, int(each.fetch.read_at * 1000))
            each.taken = len(each.fetch.got)
        self.fetches = [each for each in self.fetches if not each.fetch.is_done]

    def _delivered(self, by: Waiting, at: int, count: int, now_ms: int) -> None:
        assert at not in self.view.done, f"{at} comes again, and its acknowledgement has succeeded"
        lock = self.view.held.get(at)
        assert lock is None or lock.leader is not by.leader or lock.deadline_ms <= now_ms, (
            f"{at} is locked by {lock and lock.member}, and {by.member} gets it"
        )
        before = self.view.counts.get(at)
        if before is not None and before[0] is by.leader:
            assert count == before[1] + 1, f"{at} was delivered {before[1]} times, and now it counts {count}"
        assert self.first_start is not None, "records were delivered before the start was stored"
        self.view.counts[at] = (by.leader, count)
        self.view.delivered.add(at)
        self.view.held[at] = Held(by.member, by.leader, now_ms + LOCK_MS)

    @invariant()
    def no_fetch_waits_beside_records(self) -> None:
        if self.loop._ready:
            return
        leader = self.rig.leaders.find("g", *self.rig.place())
        for each in self.fetches:
            if each.fetch.is_done:
                continue
            assert not each.leader.has_left, "a fetch waits at a leader that has left"
            assert each.leader is leader
            if leader.can_acquire():
                assert leader.machine.next_fetch_offset >= self.rig.partition.high_watermark, "a wake was missed"

    @invariant()
    def locks_end_in_time(self) -> None:
        for leader in self.rig.leaders:
            # A record whose write is out keeps its owner, and its state is the one to come.
            states = {at: each.state for each in leader.machine.ranges() for at in range(each.first, each.last + 1)}
            for first, last, member, deadline_ms in leader.machine.locks():
                is_locked = any(states[at] == ACQUIRED for at in range(first, last + 1))
                assert not is_locked or deadline_ms >= self._now_ms(), f"the lock of {member} on {first} does not end"

    @invariant()
    def leaders_are_of_this_leader_epoch(self) -> None:
        assert all(leader.leader_epoch == self.rig.partition.leader_epoch for leader in self.rig.leaders)

    @invariant()
    def leaders_have_sessions(self) -> None:
        if not self.keeper.asked and not self.loop._ready and not self.rig.leaders.sessions.has_group("g"):
            assert all(not leader.letters.is_idle for leader in self.rig.leaders)

    @invariant()
    def dead_records_have_letters(self) -> None:
        if self.keeper.asked or self.loop._ready:
            return
        for leader in self.rig.leaders:
            is_archiving = any(each.state == ARCHIVING for each in leader.machine.ranges())
            assert not is_archiving or not leader.letters.is_idle, "a record stays ARCHIVING without a letter"
            assert leader.letters.is_idle or self.rig.letters.asked, "letters wait, and none is under way"

    @invariant()
    def nothing_is_archiving_without_a_queue(self) -> None:
        if not self.had_queue:
            assert not self.rig.letters.came
            assert all(state != ARCHIVING for _, ranges in self.keeper.writes for _, _, state, _ in ranges)

    def _drain(self, by_connection: bool) -> None:
        self._settle()
        self._answer_all()
        for member in MEMBERS:
            self._leave(member, by_connection)
            self._answer_all()
        assert len(self.rig.leaders) == 0
        found: set[int] = set()
        seen = len(self.rig.letters.came)
        self.keeper.holds = self.rig.letters.holds = False
        self.rig.join("last")
        while True:
            waiting = Waiting("last", self.rig.leader(member="last"), self.rig.fetch("last", 100))
            self.fetches.append(waiting)
            self._settle()
            if not waiting.fetch.got:
                break
            found |= {at for got in waiting.fetch.got for at in range(got.first, got.last + 1)}
        assert self.first_start is not None
        missing = set(range(self.first_start, self.rig.partition.high_watermark)) - found - self.view.done
        archived = {at for at in missing if self.view.counts.get(at, (None, 0))[1] >= self.limit - 1}
        # Records whose acknowledgement was stored although its answer was lost, and those at the delivery limit.
        assert missing - archived - self.keeper.ended == set(), "records are lost"
        self._settle()
        came = self.rig.letters.came[seen:]
        self.view.lettered |= {at for each in came for at in range(each.first_offset, each.last_offset + 1)}
        assert self.view.dead - self.view.lettered == set(), "dead letters are lost"
        assert ARCHIVING not in {state for state, _ in self.rig.stored.states.values()}
        self._leave("last", False)
        self.keeper.holds = self.rig.letters.holds = True
        self._settle()
