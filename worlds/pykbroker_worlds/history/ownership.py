"""G1, G2, and the fencing half of G3: the partitions that a member owns, and the members that may commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pykbroker_wire.errors import ErrorCode
from pykbroker_worlds.history.events import OK, Beat, CommittedOffset, Forgot, History, Joined, Place, Synced

_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNRELEASED_INSTANCE_ID})


class _Given(NamedTuple):
    """A partition that was given to a member, at a time of the history."""

    to: str
    at: int


def one_owner_per_generation(history: History) -> Iterator[str]:
    """G1: two members never own the same partition in one generation. A static member may pass its partitions on."""
    owners: dict[tuple[str, int, Place], Synced] = {}
    for event in history.of(Synced):
        if event.code != OK:
            continue
        for place in sorted(event.partitions):
            before = owners.setdefault((event.group, event.generation, place), event)
            same = before.member == event.member or (before.instance is not None and before.instance == event.instance)
            if not same:
                yield (
                    f"{event.group}: {place} belongs to {before.member} and to {event.member} "
                    f"in generation {event.generation}"
                )


def one_leader_and_rising_generations(history: History) -> Iterator[str]:
    """G1: every member gets the same leader of a generation, and generations never go back. A static member that comes
    back may take the leader's place under a new id. A generation is written with its first SyncGroup, so a coordinator
    that ends before that loses it, as in Apache Kafka."""
    forgot = -1
    leaders: dict[tuple[str, int], set[str]] = {}
    latest: dict[str, list[tuple[int, int]]] = {}
    instances = {event.member: event.instance for event in history.of(Joined)}
    for event in history.events:
        if isinstance(event, Forgot):
            forgot = event.ended
            leaders.clear()
            latest.clear()
        # A request from before may have been answered before.
        if not isinstance(event, Joined) or event.code != OK or event.started < forgot or event.was_replaced:
            continue
        known = leaders.setdefault((event.group, event.generation), set())
        known.add(event.leader)
        if len({instances.get(leader) or leader for leader in known}) > 1:
            yield f"{event.group}: generation {event.generation} has the leaders {sorted(known)}"
        earlier = latest.setdefault(event.group, [])
        before = max((generation for ended, generation in earlier if ended < event.started), default=-1)
        if event.generation < before:
            yield f"{event.group}: {event.member} joined generation {event.generation} after {before}"
        earlier.append((event.ended, event.generation))


def written_generations_never_go_back(history: History) -> Iterator[str]:
    """G1, also through restarts: events after an assignment are of its generation or a later one."""
    written: dict[str, list[tuple[int, int]]] = {}
    for event in history.events:
        if not isinstance(event, Synced | Joined) or event.code != OK:
            continue
        earlier = written.setdefault(event.group, [])
        before = max((generation for ended, generation in earlier if ended < event.started), default=-1)
        if event.generation < before:
            yield f"{event.group}: {event.member} was told of generation {event.generation} after {before}"
        if isinstance(event, Synced):
            earlier.append((event.ended, event.generation))


def old_generations_do_not_commit(history: History) -> Iterator[str]:
    """G3: once a member got a generation, later commits of earlier generations are refused."""
    told: dict[str, list[tuple[int, int, bool]]] = {}
    forgot = -1
    for event in history.events:
        if isinstance(event, Forgot):
            forgot = event.ended
            told = {group: [entry for entry in known if entry[2]] for group, known in told.items()}
        elif isinstance(event, Joined) and event.started < forgot:
            continue
        elif isinstance(event, Joined | Synced) and event.code == OK:
            told.setdefault(event.group, []).append((event.ended, event.generation, isinstance(event, Synced)))
        elif isinstance(event, CommittedOffset) and event.code == OK and event.generation >= 0:
            newest = max(
                (generation for ended, generation, _ in told.get(event.group, ()) if ended < event.started), default=-1
            )
            if event.generation < newest:
                yield f"{event.group}: {event.member} committed in generation {event.generation} after {newest}"


def one_owner_at_a_time(history: History) -> Iterator[str]:
    """G2: a partition is given to a member only when its owner has released it or was removed. A member that was
    removed may learn of that late, but the coordinator no longer regards it as an owner once another member has its
    partition."""
    owners: dict[tuple[str, Place], _Given] = {}
    #: (group, partition, former owner) -> when it was given to another member
    taken: dict[tuple[str, Place, str], _Given] = {}
    for event in history.of(Beat):
        group, member = event.group, event.member
        if event.code in _FENCED or event.sent_epoch < 0:
            _forget(group, member, owners, taken)
            continue
        if event.code != OK:
            continue
        if event.sent_epoch == 0:
            _forget(group, member, owners, taken)
        for place in sorted(event.owned):
            given = taken.get((group, place, member))
            if given is not None and given.at < event.started:
                yield f"{group}: {place} was given to {given.to} while {member} owned it"
        for place in [place for (name, place), given in owners.items() if name == group and given.to == member]:
            if place not in event.owned and (event.assigned is None or place not in event.assigned):
                del owners[group, place]
        for place in sorted(event.assigned or ()):
            before = owners.get((group, place))
            if before is not None and before.to != member:
                if place in event.owned and before.at > event.started:
                    # The member keeps it, according to a response that was decided before the other member's, and came
                    # later.
                    taken.setdefault((group, place, member), before)
                    continue
                taken[group, place, before.to] = _Given(member, event.ended)
            owners[group, place] = _Given(member, event.ended)
            taken.pop((group, place, member), None)


def _forget(
    group: str,
    member: str,
    owners: dict[tuple[str, Place], _Given],
    taken: dict[tuple[str, Place, str], _Given],
) -> None:
    for key in [key for key, given in owners.items() if key[0] == group and given.to == member]:
        del owners[key]
    for other in [other for other in taken if other[0] == group and other[2] == member]:
        del taken[other]


def member_epochs_rise(history: History) -> Iterator[str]:
    """G2: a member's epoch never goes back while it is a member."""
    epochs: dict[tuple[str, str], int] = {}
    for event in history.of(Beat):
        key = event.group, event.member
        if event.code != OK or event.sent_epoch < 0:
            if event.code in _FENCED or event.sent_epoch < 0:
                epochs.pop(key, None)
            continue
        if event.sent_epoch == 0:
            epochs.pop(key, None)
        if event.epoch < epochs.get(key, -1):
            yield f"{event.group}: {event.member} went from epoch {epochs[key]} to {event.epoch}"
        epochs[key] = max(event.epoch, epochs.get(key, -1))


def the_put_out_do_not_commit(history: History) -> Iterator[str]:
    """G3: a client that left, or got a response that it is no member, does not commit."""
    out: dict[tuple[str, str], int] = {}
    for event in history.events:
        if isinstance(event, Beat):
            key = event.group, event.member
            if event.code in _FENCED or (event.sent_epoch < 0 and event.code == OK):
                out[key] = event.ended
            elif event.code == OK:
                out.pop(key, None)
        elif isinstance(event, CommittedOffset) and event.code == OK and event.member:
            when = out.get((event.group, event.member))
            if when is not None and when < event.started and event.generation >= 0:
                yield f"{event.group}: {event.member} committed after it was put out"
