"""Checks of the records that members of share groups were given, against the logs and against acknowledgements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from pykbroker_worlds.history.events import OK, Acknowledged, Delivered, Fate, History, Log, Place, ShareReset

_RELEASE, _RENEW = 2, 4
#: a group, with a partition
GroupPlace = tuple[str, Place]


class Start(NamedTuple):
    """The first offset of a group in a partition, and the position in the history from which it counts: the first load
    of the group's state after its latest reset."""

    offset: int
    read_committed: bool
    since: int = 0


class Excused(NamedTuple):
    """The records of one share partition that a check lets pass.

    `exhausted` are offsets at the delivery limit. `late` are members, each with an offset, that got a record from a
    leader that did not know its successor. `ignored` are members, each with an offset before the start of the leader:
    it answers their acknowledgement with success and ignores it, as in Apache Kafka. The start may have passed the
    record because its lock had ended at the delivery limit, and the next leader may not know that.
    """

    exhausted: Collection[int] = ()
    late: Collection[tuple[str, int]] = ()
    ignored: Collection[tuple[str, int]] = ()


def wanted_offsets(log: Log, *, read_committed: bool) -> dict[int, bytes]:
    """Return the records that a group is to get of a log, by offset."""
    fate = Fate.of(log)
    return {
        offset: value
        for index, batch in enumerate(log)
        if batch.marker is None and (not read_committed or fate.is_committed(index))
        for offset, value in batch.records()
    }


def delivered_at_least_once(
    history: History,
    logs: Mapping[Place, Log],
    starts: Mapping[GroupPlace, Start],
    excused: Mapping[GroupPlace, Excused],
) -> Iterator[str]:
    """Each record from the first offset of a group on was given to a member since the group has this offset."""
    got: dict[GroupPlace, set[int]] = {}
    for event in history.of(Delivered):
        if event.ended >= starts[event.group, event.place].since:
            got.setdefault((event.group, event.place), set()).update(offset for offset, _ in event.records)
    for (group, place), (start, read_committed, _) in starts.items():
        found = got.get((group, place), set())
        for offset, value in wanted_offsets(logs[place], read_committed=read_committed).items():
            if (
                offset >= start
                and offset not in found
                and offset not in excused.get((group, place), Excused()).exhausted
            ):
                yield f"{group}: {value!r} at {offset} of {place} was never delivered"


def nothing_else_is_delivered(
    history: History, logs: Mapping[Place, Log], starts: Mapping[GroupPlace, Start]
) -> Iterator[str]:
    """A member gets records of the log only, and of aborted transactions none if the group reads committed records."""
    readable = {key: wanted_offsets(logs[key[1]], read_committed=start.read_committed) for key, start in starts.items()}
    for event in history.of(Delivered):
        known = readable[event.group, event.place]
        log = logs[event.place]
        for offset, value in event.records:
            # The log may begin later now.
            if known.get(offset) != value and log and offset >= log[0].base_offset:
                there = known.get(offset)
                yield f"{event.group}: {event.client} got {value!r} at {offset} of {event.place}; there is {there!r}"


def the_acknowledged_never_come_again(history: History, excused: Mapping[GroupPlace, Excused]) -> Iterator[str]:
    """A record whose acceptance or rejection was answered with success is in no later answer, unless the group was set
    back to it or to an earlier offset between the two."""
    resets = list(history.of(ShareReset))
    final: dict[tuple[str, Place, int], list[Acknowledged]] = {}
    for event in history.events:
        if isinstance(event, Acknowledged) and event.code == OK:
            ignored = excused.get((event.group, event.place), Excused()).ignored
            for offset, kind in event.types:
                if kind not in (_RELEASE, _RENEW) and (event.member, offset) not in ignored:
                    final.setdefault((event.group, event.place, offset), []).append(event)
        elif isinstance(event, Delivered):
            late = excused.get((event.group, event.place), Excused()).late
            for offset, _ in event.records:
                if (event.member, offset) in late:
                    continue
                for before in final.get((event.group, event.place, offset), ()):
                    is_later = before.ended < event.started
                    if is_later and not any(_sets_back(reset, before, event, offset) for reset in resets):
                        place = f"{event.group}: {offset} of {event.place}"
                        yield f"{place} came to {event.client}, and {before.client} had acknowledged it"


def _sets_back(reset: ShareReset, before: Acknowledged, after: Delivered, offset: int) -> bool:
    """Return True if a reset may have had its effect between an acknowledgement and a delivery of this offset."""
    is_of_both = (reset.group, reset.place) == (after.group, after.place)
    is_between = reset.ended > before.started and reset.started < after.ended
    return is_of_both and is_between and (reset.offset is None or reset.offset <= offset)


def the_dead_are_lettered(
    dead: Mapping[GroupPlace, Collection[int]],
    letters: Collection[tuple[str, Place, int]],
    given_up: Mapping[GroupPlace, Collection[int]],
) -> Iterator[str]:
    """Each record that was rejected with success, or archived at the delivery limit, has a dead letter, or its broker
    has given the letter up. `dead` has the share partitions whose group has a queue, and `letters` are those of the
    queue."""
    for key, offsets in dead.items():
        for offset in sorted(offsets):
            if (*key, offset) not in letters and offset not in given_up[key]:
                yield f"{key[0]}: {offset} of {key[1]} was rejected or archived, and has no dead letter"
