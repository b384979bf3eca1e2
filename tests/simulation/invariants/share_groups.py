"""The invariants of share groups, which are checked after every event of the leaders of share partitions.

Responsible for the rules, over calls that say what the leaders of share partitions do (share_run/share_watch.py makes
them). Not responsible for what members got: history/deliveries.py compares that with the logs.

The rules:

* S1: in one leader epoch a record has one owner at a time.
* S2: an acknowledgement is accepted only from the member that holds the lock, so an ended lock cannot be renewed.
* S3: once a later leader has loaded the state, no write of an earlier one that begins after that is accepted.
* S4: a delivery count goes on at the loaded count + 1, and then rises by 1 each time. A load has every stored state.
* S5: the start passes only records that are acknowledged, archived or deleted, and offsets without records.
* S6: an acknowledgement is answered with success only when its write is stored.
* S7: a record whose acceptance or rejection was answered with success is never acquired again. A leader may give it
  until it learns that a later one has loaded the state. It cannot know better, and its acknowledgements are fenced.
* S8: the event in which a session ends releases the locks of its member.
* S9: once a reset of offsets was answered with success, no load that begins after it has a state from before it, and no
  write of such a state that begins after it is accepted. A state that follows a reset starts where one was asked to.

A reset of offsets (AlterShareGroupOffsets, DeleteShareGroupOffsets) begins a new life of the share partition, with a
state epoch of its own. The other rules hold within one life.

"Certain" decides in doubt: a lock counts as held only until its shortest time, and as ended only after something has
ended it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pykbroker_worlds.history.deliveries import Excused
from pykbroker_worlds.history.events import Place
from tests.simulation.invariants.broken import InvariantBroken

AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 2, 3, 4
RELEASE, REJECT, RENEW = 2, 3, 4
#: The least state that a type of acknowledgement asks for. A rejected record may wait for its dead letter.
_STATES: Mapping[int, int] = {0: ARCHIVING, 1: ACKNOWLEDGED, 2: AVAILABLE, 3: ARCHIVING}
#: Locks end at multiples of this.
TICK_MS = 50


class ShareKey(NamedTuple):
    """A share partition."""

    group: str
    place: Place


@dataclass(slots=True)
class _Lock:
    member: str
    #: held for certain before this time, if nothing has ended it
    held_until_ms: int
    #: not held from this time on, once the leader has looked at its locks
    ends_at_ms: int


@dataclass(slots=True)
class Leadership:
    """One leader object, from its load to its end: in `node`, for `epoch`."""

    key: ShareKey
    node: int
    epoch: int
    #: the life of the share partition that it has loaded
    state_epoch: int = -1
    #: the start of its log, which only this leader may have moved, if it dies in a DeleteRecords
    log_start: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    locks: dict[int, _Lock] = field(default_factory=dict)
    #: how often the locks of a member were released
    releases: dict[str, int] = field(default_factory=dict)
    is_over: bool = False

    def __str__(self) -> str:
        return f"group {self.key.group} of {self.key.place} on node {self.node} in leader epoch {self.epoch}"


@dataclass(slots=True)
class Acknowledging:
    """An acknowledgement that has begun: the offsets that count, with type; those whose lock its member does not hold;
    the locks that it ends. `until_ms` is the time of renewed locks. `releases` are those of its member until now."""

    leadership: Leadership
    member: str
    types: dict[int, int]
    until_ms: int
    releases: int
    not_held: list[int] = field(default_factory=list)
    taken: dict[int, _Lock] = field(default_factory=dict)


@dataclass(slots=True)
class Writing:
    """A write that has begun. `is_late` is True if a later leader had loaded the state before, and `is_reset` if its
    life had ended with a reset before."""

    leadership: Leadership
    start: int
    states: dict[int, tuple[int, int]]
    is_late: bool
    is_reset: bool


class Load(NamedTuple):
    """The state that a leader has loaded: (count, state) of each offset. `is_stored` is False if the start was resolved
    now. `began_s` is the time at which the load began, and `at` the position of its end in the history."""

    start: int
    states: Mapping[int, tuple[int, int]]
    state_epoch: int = 0
    is_stored: bool = True
    began_s: float = 0.0
    at: int = 0


class ShareState:
    """The knowledge of one life of a share partition, over all its leaders."""

    def __init__(self, state_epoch: int) -> None:
        self.state_epoch = state_epoch
        #: the position of its first load in the history
        self.begins = 0
        #: (count, state) of each offset that was stored for certain, and the highest that was tried
        self.stored: dict[int, tuple[int, int]] = {}
        self.tried: dict[int, tuple[int, int]] = {}
        self.stored_start = -1
        #: offsets that the start may pass, because of an acknowledgement or the delivery limit
        self.done: set[int] = set()
        #: offsets that a member has rejected with success, while it held them
        self.rejected: set[int] = set()
        #: offsets whose dead letter was given up
        self.given_up: set[int] = set()
        #: offsets at the delivery limit
        self.exhausted: set[int] = set()
        #: offsets whose acceptance or rejection was answered with success
        self.final: set[int] = set()
        #: the members that got such offsets from a leader that did not know its successor, with the offsets
        self.late: set[tuple[str, int]] = set()
        #: the members that acknowledged offsets before the start of the leader, with the offsets: it ignores that
        self.ignored: set[tuple[str, int]] = set()
        #: where the group begins; None before the first load
        self.first: int | None = None
        #: the start as far as it was checked, and the offsets that it has passed although they are not done
        self.passed = 0
        self.suspects: set[int] = set()
        #: the start has passed all offsets before this one, because a leader had deleted them
        self.deleted = 0
        #: the latest leader epoch that has loaded the state
        self.newest_epoch = -1

    def archived(self) -> set[int]:
        """Return the offsets that are stored as archived for certain, or as waiting for their dead letters."""
        return {offset for offset, (_, state) in self.stored.items() if state in (ARCHIVING, ARCHIVED)}


class Resets:
    """The resets of one share partition: their offsets, None for a deletion, which lets the group begin anew."""

    def __init__(self) -> None:
        self.asked: list[int | None] = []
        #: the lives that had begun when the latest reset was asked for are before this state epoch
        self._next_floor = 0
        #: the time at which the last reset was answered with success. From then on, lives before `floor` are over.
        self.answered_s = -1.0
        self.floor = 0

    def begin(self, offset: int | None, newest: int) -> None:
        """Note that a reset is asked for; `newest` is the state epoch of the newest life."""
        self.asked.append(offset)
        self._next_floor = newest + 1

    def allows(self, start: int) -> bool:
        """Return True if a life may begin here. After a deletion, an alteration of other partitions lets the group
        know the topic, and then partitions that are new to it begin at 0."""
        return start in self.asked or (start == 0 and None in self.asked)

    def end(self, now_s: float) -> None:
        """Note that it was answered with success."""
        self.floor, self.answered_s = self._next_floor, now_s


class ShareInvariants:
    """The rules for all share partitions of a run. Each call raises InvariantBroken."""

    def __init__(self) -> None:
        #: the lives of each share partition, by state epoch
        self.lives: dict[ShareKey, dict[int, ShareState]] = {}
        self._resets: dict[ShareKey, Resets] = {}

    def newest(self, key: ShareKey) -> ShareState:
        """Return the life with the latest state epoch of those that a leader has loaded."""
        lives = self.lives[key]
        return lives[max(lives)]

    def excused(self, key: ShareKey) -> Excused:
        """Return what the checks of the history let pass for a share partition."""
        lives = self.lives[key].values()
        late, ignored = (
            set().union(*sets) for sets in zip(*((life.late, life.ignored) for life in lives), strict=True)
        )
        return Excused(self.newest(key).exhausted, late, ignored)

    def _of(self, led: Leadership) -> ShareState:
        # A leader that has loaded nothing is in no life: an acknowledgement that comes to it is refused.
        return self.lives.get(led.key, {}).get(led.state_epoch) or ShareState(led.state_epoch)

    # -- resets -------------------------------------------------------------------------------------------------------

    def reset_begins(self, key: ShareKey, offset: int | None) -> None:
        """An administrator asks for this start offset, or for none: the group begins anew."""
        self._resets.setdefault(key, Resets()).begin(offset, max(self.lives.get(key, ()), default=-1))

    def reset_ended(self, key: ShareKey, now_s: float) -> None:
        """The administrator's request was answered with success."""
        self._resets[key].end(now_s)

    def _begin_life(self, led: Leadership, load: Load) -> ShareState:
        """Return the life that a leader has loaded, and check its place among the lives."""
        led.state_epoch = load.state_epoch
        resets = self._resets.get(led.key)
        if resets is not None and load.state_epoch < resets.floor and load.began_s > resets.answered_s:
            raise InvariantBroken(
                "S9", f"{led} loads state epoch {load.state_epoch} after a reset of all before {resets.floor}"
            )
        lives = self.lives.setdefault(led.key, {})
        known = lives.get(load.state_epoch)
        if known is None:
            is_first = not lives
            known = lives[load.state_epoch] = ShareState(load.state_epoch)
            known.begins = load.at
            if not is_first and load.is_stored and (resets is None or not resets.allows(load.start)):
                raise InvariantBroken("S9", f"{led} begins a life at {load.start}, which no reset has asked for")
        return known

    # -- a leadership -------------------------------------------------------------------------------------------------

    def loaded(self, led: Leadership, load: Load) -> None:
        """A leader has loaded the state."""
        known = self._begin_life(led, load)
        start, states = load.start, load.states
        led.counts = {offset: count for offset, (count, _) in states.items()}
        known.newest_epoch = max(known.newest_epoch, led.epoch)
        if known.first is None or (not load.is_stored and not known.tried):
            known.first = known.passed = start
        # The answer to a read may come after a later leader has loaded the state, and changed it.
        is_late = led.epoch < known.newest_epoch
        for offset, stored in known.stored.items() if not is_late else ():
            found = states.get(offset)
            if offset >= start and (found is None or found < stored):
                raise InvariantBroken(
                    "S4", f"{led} loads {found} of offset {offset}, and (count, state) {stored} is stored"
                )
        for offset, found in states.items():
            tried = known.tried.get(offset)
            if tried is None or found > tried:
                raise InvariantBroken("S4", f"{led} loads {found} of offset {offset}, and {tried} was written at most")
        if start < known.stored_start and not is_late:
            raise InvariantBroken("S4", f"{led} loads the start {start}, and {known.stored_start} is stored")
        self.starts_at(led, start)

    def left(self, led: Leadership) -> None:
        """A leader is no longer in the table of its broker: its locks have ended."""
        led.is_over = True
        led.locks.clear()

    # -- locks --------------------------------------------------------------------------------------------------------

    def acquired(
        self,
        led: Leadership,
        others: Iterable[Leadership],
        member: str,
        ranges: Iterable[tuple[int, int, int]],
        now_ms: int,
        lock_duration_ms: int,
    ) -> None:
        """A leader gives locks. `others` are the leaderships of the same share partition, leader epoch and life."""
        known = self._of(led)
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                for other in (led, *others):
                    lock = other.locks.get(offset)
                    if lock is not None and now_ms < lock.held_until_ms:
                        raise InvariantBroken(
                            "S1", f"{led} gives offset {offset} to {member}, and {lock.member} holds its lock"
                        )
                if offset in known.final and known.newest_epoch > led.epoch:
                    known.late.add((member, offset))
                elif offset in known.final:
                    raise InvariantBroken("S7", f"{led} gives offset {offset} to {member}, and it was acknowledged")
                before = led.counts.get(offset, 0)
                if count != before + 1:
                    raise InvariantBroken("S4", f"{led} gives offset {offset} with count {count} after {before}")
                led.counts[offset] = count
                led.locks[offset] = _Lock(member, now_ms + lock_duration_ms, _tick(now_ms + lock_duration_ms))

    def given_back(self, led: Leadership, member: str, ranges: Iterable[tuple[int, int, int]]) -> None:
        """An answer with these records was not sent. Records that the member has acquired again since have a higher
        count, and stay."""
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                lock = led.locks.get(offset)
                if lock is not None and lock.member == member and led.counts[offset] == count:
                    del led.locks[offset]
                    led.counts[offset] -= 1

    def acknowledges(
        self, led: Leadership, member: str, types: Mapping[int, int], start: int, limit: int, until_ms: int
    ) -> Acknowledging:
        """A member acknowledges: the type of each offset. `start` is the leader's, `limit` that of deliveries, and
        `until_ms` the end of locks that are renewed now."""
        known = self._of(led)
        counting = {offset: kind for offset, kind in types.items() if offset >= start}
        known.ignored.update((member, offset) for offset in types.keys() - counting.keys())
        begun = Acknowledging(led, member, counting, until_ms, led.releases.get(member, 0))
        for offset, kind in begun.types.items():
            lock = led.locks.get(offset)
            if lock is None or lock.member != member:
                begun.not_held.append(offset)
            elif kind == RENEW:
                # A renewal may count although the request is refused for another range.
                lock.ends_at_ms = max(lock.ends_at_ms, _tick(until_ms))
            else:
                begun.taken[offset] = led.locks.pop(offset)
                self._may_be_done(known, led, offset, kind, limit)
        return begun

    def _may_be_done(self, known: ShareState, led: Leadership, offset: int, kind: int, limit: int) -> None:
        if kind != RELEASE:
            known.done.add(offset)
        elif led.counts.get(offset, 0) >= limit:
            known.done.add(offset)
            known.exhausted.add(offset)

    def acknowledged(self, begun: Acknowledging, *, success: bool, now_ms: int) -> None:
        """An acknowledgement is answered."""
        led = begun.leadership
        known = self._of(led)
        if not success:
            # They are locked as before, if their time is not over.
            if not led.is_over and led.releases.get(begun.member, 0) == begun.releases:
                for offset, lock in begun.taken.items():
                    if lock.ends_at_ms > now_ms:
                        led.locks.setdefault(offset, lock)
            return
        if begun.not_held:
            raise InvariantBroken(
                "S2",
                f"{led} accepts from {begun.member} what it does not hold: {_some(begun.not_held)} of {begun.types}",
            )
        for offset, kind in begun.types.items():
            if kind == RENEW:
                held = led.locks.get(offset)
                if held is not None and held.member == begun.member:
                    held.held_until_ms = max(held.held_until_ms, begun.until_ms)
                continue
            stored = known.stored.get(offset)
            wanted = _STATES[kind]
            if offset >= known.stored_start and (stored is None or stored[1] < wanted):
                raise InvariantBroken("S6", f"{led} answers for offset {offset}, type {kind}; stored is {stored}")
            if wanted != AVAILABLE:
                known.final.add(offset)
            if kind == REJECT:
                known.rejected.add(offset)

    def released(self, led: Leadership, member: str, limit: int) -> None:
        """The locks of a member are released."""
        known = self._of(led)
        led.releases[member] = led.releases.get(member, 0) + 1
        for offset in [offset for offset, lock in led.locks.items() if lock.member == member]:
            del led.locks[offset]
            self._may_be_done(known, led, offset, RELEASE, limit)

    def expired(self, led: Leadership, now_ms: int, limit: int) -> None:
        """A leader has ended the locks whose time has come."""
        known = self._of(led)
        for offset in [offset for offset, lock in led.locks.items() if lock.ends_at_ms <= now_ms]:
            del led.locks[offset]
        for offset, count in led.counts.items():
            if count >= limit:
                # The end of its last lock archives it, and the exact time is the leader's.
                known.done.add(offset)
                known.exhausted.add(offset)

    def session_ended(self, led: Leadership, member: str, held: Iterable[tuple[int, int]]) -> None:
        """The event in which a session ended is over; `held` are the locks that its member still has."""
        for first, last in held:
            raise InvariantBroken("S8", f"{led}: the session of {member} is over, and it holds {first} to {last}")

    # -- the stored state ---------------------------------------------------------------------------------------------

    def writes(self, led: Leadership, start: int, states: Mapping[int, tuple[int, int]]) -> Writing:
        """A leader sends a write to the share coordinator."""
        known = self._of(led)
        for offset, each in states.items():
            known.tried[offset] = max(known.tried.get(offset, each), each)
        self.starts_at(led, start)
        resets = self._resets.get(led.key)
        is_reset = resets is not None and led.state_epoch < resets.floor
        return Writing(led, start, dict(states), known.newest_epoch > led.epoch, is_reset)

    def written(self, begun: Writing) -> None:
        """A write was answered with success."""
        known = self._of(begun.leadership)
        if begun.is_late:
            raise InvariantBroken(
                "S3", f"{begun.leadership} stores a write, and leader epoch {known.newest_epoch} had loaded before it"
            )
        if begun.is_reset:
            raise InvariantBroken(
                "S9", f"{begun.leadership} stores a write of state epoch {known.state_epoch}, which was reset before"
            )
        for offset, each in begun.states.items():
            known.stored[offset] = max(known.stored.get(offset, each), each)
        known.stored_start = max(known.stored_start, begun.start)

    def starts_at(self, led: Leadership, start: int) -> None:
        """The start of a share partition is here now. Offsets that it has passed and that are not done are compared
        with the log at the end (`passed_too_much`)."""
        known = self._of(led)
        if start > known.passed:
            there = range(max(known.passed, led.log_start), start)
            known.suspects.update(offset for offset in there if offset not in known.done)
            known.passed = start
            known.deleted = max(known.deleted, min(start, led.log_start))

    def passed_too_much(self, key: ShareKey, records: Iterable[int]) -> None:
        """Check the start at the end. `records` are the offsets of the records that the group was to get."""
        gone = set(records)
        for known in self.lives[key].values():
            if found := sorted(known.suspects & gone):
                raise InvariantBroken("S5", f"group {key.group} of {key.place}: the start has passed {_some(found)}")


def _tick(time_ms: int) -> int:
    """Return the tick at which a lock of this time ends."""
    return -(-time_ms // TICK_MS) * TICK_MS


def _some(offsets: list[int]) -> str:
    return ", ".join(map(str, offsets[:5])) + (" …" if len(offsets) > 5 else "")
