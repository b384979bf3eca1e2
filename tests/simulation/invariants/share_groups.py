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
* S7: a record whose acceptance or rejection was answered with success is never acquired again.
* S8: the event in which a session ends releases the locks of its member.

"Certain" decides in doubt: a lock counts as held only until its shortest time, and as ended only after something has
ended it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.history.events import Place
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
    """A write that has begun. `is_late` is True if a later leader had loaded the state before."""

    leadership: Leadership
    start: int
    states: dict[int, tuple[int, int]]
    is_late: bool


class ShareState:
    """The knowledge of one share partition, over all its leaders."""

    def __init__(self) -> None:
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
        #: where the group begins; None before the first load
        self.first: int | None = None
        #: the start as far as it was checked, and the offsets that it has passed although they are not done
        self.passed = 0
        self.suspects: set[int] = set()
        #: the latest leader epoch that has loaded the state
        self.newest_epoch = -1


class ShareInvariants:
    """The rules for all share partitions of a run. Each call raises InvariantBroken."""

    def __init__(self) -> None:
        self.states: dict[ShareKey, ShareState] = {}

    def _of(self, key: ShareKey) -> ShareState:
        return self.states.setdefault(key, ShareState())

    # -- a leadership -------------------------------------------------------------------------------------------------

    def loaded(self, led: Leadership, start: int, states: Mapping[int, tuple[int, int]], *, is_stored: bool) -> None:
        """A leader has loaded the state: its start, and (count, state) of each offset. `is_stored` is False if the
        start was resolved now."""
        known = self._of(led.key)
        led.counts = {offset: count for offset, (count, _) in states.items()}
        known.newest_epoch = max(known.newest_epoch, led.epoch)
        if known.first is None or (not is_stored and not known.tried):
            known.first = known.passed = start
        for offset, stored in known.stored.items():
            found = states.get(offset)
            if offset >= start and (found is None or found < stored):
                raise InvariantBroken(
                    "S4", f"{led} loads {found} of offset {offset}, and (count, state) {stored} is stored"
                )
        for offset, found in states.items():
            tried = known.tried.get(offset)
            if tried is None or found > tried:
                raise InvariantBroken("S4", f"{led} loads {found} of offset {offset}, and {tried} was written at most")
        if start < known.stored_start:
            raise InvariantBroken("S4", f"{led} loads the start {start}, and {known.stored_start} is stored")
        self.starts_at(led.key, start)

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
        known = self._of(led.key)
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                for other in (led, *others):
                    lock = other.locks.get(offset)
                    if lock is not None and now_ms < lock.held_until_ms:
                        raise InvariantBroken(
                            "S1", f"{led} gives offset {offset} to {member}, and {lock.member} holds its lock"
                        )
                if offset in known.final:
                    raise InvariantBroken("S7", f"{led} gives offset {offset} to {member}, and it was acknowledged")
                before = led.counts.get(offset, 0)
                if count != before + 1:
                    raise InvariantBroken("S4", f"{led} gives offset {offset} with count {count} after {before}")
                led.counts[offset] = count
                led.locks[offset] = _Lock(member, now_ms + lock_duration_ms, _tick(now_ms + lock_duration_ms))

    def given_back(self, led: Leadership, member: str, ranges: Iterable[tuple[int, int, int]]) -> None:
        """An answer with these records was not sent."""
        for first, last, _ in ranges:
            for offset in range(first, last + 1):
                lock = led.locks.get(offset)
                if lock is not None and lock.member == member:
                    del led.locks[offset]
                    led.counts[offset] -= 1

    def acknowledges(
        self, led: Leadership, member: str, types: Mapping[int, int], start: int, limit: int, until_ms: int
    ) -> Acknowledging:
        """A member acknowledges: the type of each offset. `start` is the leader's, `limit` that of deliveries, and
        `until_ms` the end of locks that are renewed now."""
        known = self._of(led.key)
        counting = {offset: kind for offset, kind in types.items() if offset >= start}
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
        known = self._of(led.key)
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
        known = self._of(led.key)
        led.releases[member] = led.releases.get(member, 0) + 1
        for offset in [offset for offset, lock in led.locks.items() if lock.member == member]:
            del led.locks[offset]
            self._may_be_done(known, led, offset, RELEASE, limit)

    def expired(self, led: Leadership, now_ms: int, limit: int) -> None:
        """A leader has ended the locks whose time has come."""
        known = self._of(led.key)
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
        known = self._of(led.key)
        for offset, each in states.items():
            known.tried[offset] = max(known.tried.get(offset, each), each)
        self.starts_at(led.key, start)
        return Writing(led, start, dict(states), known.newest_epoch > led.epoch)

    def written(self, begun: Writing) -> None:
        """A write was answered with success."""
        known = self._of(begun.leadership.key)
        if begun.is_late:
            raise InvariantBroken(
                "S3", f"{begun.leadership} stores a write, and leader epoch {known.newest_epoch} had loaded before it"
            )
        for offset, each in begun.states.items():
            known.stored[offset] = max(known.stored.get(offset, each), each)
        known.stored_start = max(known.stored_start, begun.start)

    def starts_at(self, key: ShareKey, start: int) -> None:
        """The start of a share partition is here now. Offsets that it has passed and that are not done are compared
        with the log at the end (`passed_too_much`)."""
        known = self._of(key)
        if start > known.passed:
            known.suspects.update(offset for offset in range(known.passed, start) if offset not in known.done)
            known.passed = start

    def passed_too_much(self, key: ShareKey, records: Iterable[int]) -> None:
        """Check the start at the end. `records` are the offsets of the records that the group was to get."""
        known = self._of(key)
        found = sorted(known.suspects & set(records))
        if found:
            raise InvariantBroken("S5", f"group {key.group} of {key.place}: the start has passed {_some(found)}")


def _tick(time_ms: int) -> int:
    """Return the tick at which a lock of this time ends."""
    return -(-time_ms // TICK_MS) * TICK_MS


def _some(offsets: list[int]) -> str:
    return ", ".join(map(str, offsets[:5])) + (" …" if len(offsets) > 5 else "")
