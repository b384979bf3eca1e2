"""G3, G5: committed offsets never go back and are never lost; every input is once in the output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pykbroker_worlds.history.events import (
    OK,
    CommittedOffset,
    Ended,
    Fate,
    FetchedOffset,
    History,
    Identified,
    Log,
    Place,
)

_NEVER = 1 << 62


def commits_are_kept(history: History) -> Iterator[str]:
    """G3: a fetch returns the newest commit that was acknowledged before the fetch, or a newer one that was tried.

    Only for committers that commit rising offsets. A transaction's offset counts once its commit was acknowledged. As
    in Apache Kafka, that is before its markers are written: until then a fetch of stable offsets must be tried again,
    and another fetch returns the earlier offset. For the latter the transaction counts once its markers must be there.
    """
    ends = _acknowledged_commits(history)
    #: by whether the fetch asks for stable offsets
    acknowledged: dict[tuple[str, Place, bool], list[tuple[int, int]]] = {}
    tried: dict[tuple[str, Place], list[tuple[int, int, str]]] = {}
    for event in history.of(CommittedOffset):
        key = event.group, event.place
        tried.setdefault(key, []).append((event.started, event.offset, event.mark))
        if event.code == OK:
            decided, written = (0, 0) if event.transaction is None else ends.get(event.transaction, (_NEVER, _NEVER))
            for stable, known in (True, decided), (False, written):
                acknowledged.setdefault((*key, stable), []).append((max(known, event.ended), event.offset))
    for fetched in history.of(FetchedOffset):
        if fetched.code != OK:
            continue
        key = fetched.group, fetched.place
        who = f"{fetched.client}: {key}: {fetched.offset} {fetched.mark!r}"
        known_before = acknowledged.get((*key, fetched.stable), ())
        least = max((offset for when, offset in known_before if when < fetched.started), default=-1)
        if fetched.offset < least and not fetched.was_replaced:
            yield f"{who} is fetched, {least} was acknowledged before"
        if fetched.offset >= 0 and not any(
            when < fetched.ended and (offset, mark) == (fetched.offset, fetched.mark)
            for when, offset, mark in tried.get(key, ())
        ):
            yield f"{who} was never committed"


def _acknowledged_commits(history: History) -> dict[str, tuple[int, int]]:
    """Return for each transaction when its commit was acknowledged, and when its markers were surely written. Until
    they are, the coordinator does nothing else for the transactional id and returns CONCURRENT_TRANSACTIONS."""
    commits: dict[str, Ended] = {}
    #: transactional id -> (transaction, begin, end) of what its coordinator did for it
    done: dict[str, list[tuple[str, int, int]]] = {}
    for ended in history.of(Ended):
        if ended.code == OK:
            done.setdefault(ended.transactional_id, []).append((ended.transaction, ended.started, ended.ended))
            if ended.commit:
                commits.setdefault(ended.transaction, ended)
    for identified in history.of(Identified):
        if identified.code == OK:
            done.setdefault(identified.transactional_id, []).append(("", identified.started, identified.ended))
    found: dict[str, tuple[int, int]] = {}
    for transaction, commit in commits.items():
        later = (
            ended
            for other, started, ended in done[commit.transactional_id]
            if started > commit.ended and other != transaction
        )
        found[transaction] = commit.ended, min(later, default=_NEVER)
    return found


def fetches_never_go_back(history: History) -> Iterator[str]:
    """G3: checked in the order of the requests."""
    seen: dict[tuple[str, Place], list[tuple[int, int]]] = {}
    for event in history.of(FetchedOffset):
        if event.code != OK:
            continue
        earlier = seen.setdefault((event.group, event.place), [])
        before = max((offset for ended, offset in earlier if ended < event.started), default=-1)
        if event.offset < before and not event.was_replaced:
            yield f"{event.client}: {event.group} {event.place}: {event.offset} after {before}"
        earlier.append((event.ended, event.offset))


def each_input_once(inputs: Iterable[bytes], outputs: Mapping[Place, Log]) -> Iterator[str]:
    """G5, T4: a consume-transform-produce loop leaves every input once among the committed records of its output. An
    output value is `<input>><anything>`."""
    found: Counter[bytes] = Counter()
    for log in outputs.values():
        fate = Fate.of(log)
        for index, batch in enumerate(log):
            if batch.marker is None and fate.is_committed(index):
                found.update(value.partition(b">")[0] for value in batch.values)
    expected = set(inputs)
    for value in sorted(expected):
        if found[value] != 1:
            yield f"{value!r} is {found[value]} times in the output"
    for value in sorted(found.keys() - expected):
        yield f"{value!r} is in the output and was never an input"
