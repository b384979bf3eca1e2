"""Checks of the records that members of share groups were given, against the logs and against acknowledgements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tests.simulation.history.events import OK, Acknowledged, Delivered, Fate, History, Log, Place

_RELEASE, _RENEW = 2, 4
#: a group, with a partition
GroupPlace = tuple[str, Place]


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
    starts: Mapping[GroupPlace, tuple[int, bool]],
    excused: Mapping[GroupPlace, Collection[int]],
) -> Iterator[str]:
    """Each record from the first offset of a group on was given to a member. `starts` has this offset for each share
    partition, and True if the group reads committed records. `excused` are offsets at the delivery limit."""
    got: dict[GroupPlace, set[int]] = {}
    for event in history.of(Delivered):
        got.setdefault((event.group, event.place), set()).update(offset for offset, _ in event.records)
    for (group, place), (start, read_committed) in starts.items():
        found = got.get((group, place), set())
        for offset, value in wanted_offsets(logs[place], read_committed=read_committed).items():
            if offset >= start and offset not in found and offset not in excused.get((group, place), ()):
                yield f"{group}: {value!r} at {offset} of {place} was never delivered"


def nothing_else_is_delivered(
    history: History, logs: Mapping[Place, Log], starts: Mapping[GroupPlace, tuple[int, bool]]
) -> Iterator[str]:
    """A member gets records of the log only, and of aborted transactions none if the group reads committed records."""
    readable = {
        key: wanted_offsets(logs[key[1]], read_committed=read_committed) for key, (_, read_committed) in starts.items()
    }
    for event in history.of(Delivered):
        known = readable[event.group, event.place]
        log = logs[event.place]
        for offset, value in event.records:
            # The log may begin later now.
            if known.get(offset) != value and log and offset >= log[0].base_offset:
                there = known.get(offset)
                yield f"{event.group}: {event.client} got {value!r} at {offset} of {event.place}; there is {there!r}"


def the_acknowledged_never_come_again(history: History) -> Iterator[str]:
    """A record whose acceptance or rejection was answered with success is in no later answer."""
    final: dict[tuple[str, Place, int], Acknowledged] = {}
    for event in history.events:
        if isinstance(event, Acknowledged) and event.code == OK:
            for offset, kind in event.types:
                if kind not in (_RELEASE, _RENEW):
                    final.setdefault((event.group, event.place, offset), event)
        elif isinstance(event, Delivered):
            for offset, _ in event.records:
                before = final.get((event.group, event.place, offset))
                if before is not None and before.ended < event.started:
                    place = f"{event.group}: {offset} of {event.place}"
                    yield f"{place} came to {event.client}, and {before.client} had acknowledged it"


def the_rejected_are_dead_lettered(
    rejected: Mapping[GroupPlace, Collection[int]],
    letters: Collection[tuple[str, Place, int]],
    given_up: Mapping[GroupPlace, Collection[int]],
) -> Iterator[str]:
    """Each record whose rejection was answered with success has a dead letter, or its broker has given the letter up.
    `rejected` has the share partitions whose group has a queue, and `letters` are those of the queue."""
    for key, offsets in rejected.items():
        for offset in sorted(offsets):
            if (*key, offset) not in letters and offset not in given_up[key]:
                yield f"{key[0]}: {offset} of {key[1]} was rejected, and has no dead letter"
