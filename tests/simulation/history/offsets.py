"""G3, G5: committed offsets never go back and are never lost; every input is once in the output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tests.simulation.history.events import OK, CommittedOffset, Ended, Fate, FetchedOffset, History, Log, Place


def commits_are_kept(history: History) -> Iterator[str]:
    """G3: a fetch gives the newest commit that was acknowledged before it was asked, or a newer one that was tried.

    For committers that commit rising offsets only. A transaction's offset counts once its commit was acknowledged.
    """
    ends: dict[str, int] = {}
    for ended in history.of(Ended):
        if ended.commit and ended.code == OK:
            ends.setdefault(ended.transaction, ended.ended)
    acknowledged: dict[tuple[str, Place], list[tuple[int, int]]] = {}
    tried: dict[tuple[str, Place], list[tuple[int, int, str]]] = {}
    for event in history.of(CommittedOffset):
        key = event.group, event.place
        tried.setdefault(key, []).append((event.started, event.offset, event.mark))
        if event.code == OK:
            known = event.ended if event.transaction is None else ends.get(event.transaction)
            if known is not None:
                acknowledged.setdefault(key, []).append((max(known, event.ended), event.offset))
    for fetched in history.of(FetchedOffset):
        if fetched.code != OK:
            continue
        key = fetched.group, fetched.place
        who = f"{fetched.client}: {key}: {fetched.offset} {fetched.mark!r}"
        least = max((offset for when, offset in acknowledged.get(key, ()) if when < fetched.started), default=-1)
        if fetched.offset < least:
            yield f"{who} is fetched, {least} was acknowledged before"
        if fetched.offset >= 0 and not any(
            when < fetched.ended and (offset, mark) == (fetched.offset, fetched.mark)
            for when, offset, mark in tried.get(key, ())
        ):
            yield f"{who} was never committed"


def fetches_never_go_back(history: History) -> Iterator[str]:
    """G3: by the order of the requests."""
    seen: dict[tuple[str, Place], list[tuple[int, int]]] = {}
    for event in history.of(FetchedOffset):
        if event.code != OK:
            continue
        earlier = seen.setdefault((event.group, event.place), [])
        before = max((offset for ended, offset in earlier if ended < event.started), default=-1)
        if event.offset < before:
            yield f"{event.client}: {event.group} {event.place}: {event.offset} after {before}"
        earlier.append((event.ended, event.offset))


def each_input_once(inputs: Iterable[bytes], outputs: Mapping[Place, Log]) -> Iterator[str]:
    """G5, T4: a consume-transform-produce loop leaves every input once among the committed records of its output.
    An output value is `<input>><anything>`."""
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
