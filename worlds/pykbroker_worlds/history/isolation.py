"""T3, T4, P8: the records of transactions that readers got, and that transactions are atomic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pykbroker_wire.records.control import ControlType
from pykbroker_worlds.history.events import (
    OK,
    CommittedOffset,
    Ended,
    Fate,
    FetchedOffset,
    History,
    Log,
    Place,
    Produced,
    Read,
)


def reads_are_exact(history: History, logs: Mapping[Place, Log]) -> Iterator[str]:
    """T3, P8: between the two positions of a fetch, a reader got exactly the records that the final log has there,
    without those of aborted transactions if it reads only committed records."""
    readable = {
        (place, committed): _readable(log, committed_only=committed)
        for place, log in logs.items()
        for committed in (False, True)
    }
    for event in history.of(Read):
        if event.code != OK:
            continue
        who = f"{event.client}: {event.place} from {event.position} to {event.next_position}"
        expected = [
            record
            for record in readable[event.place, event.committed_only]
            if event.position <= record[0] < event.next_position
        ]
        for record in event.records:
            if record not in expected:
                yield f"{who}: read {record}, which is not to be read there"
        for record in expected:
            if record not in event.records:
                yield f"{who}: skipped {record}"
        if list(event.records) != sorted(event.records):
            yield f"{who}: not in the order of the log"
        limit = event.last_stable_offset if event.committed_only else event.high_watermark
        if event.next_position > max(limit, event.position):
            yield f"{who}: read beyond {limit}"
        if event.last_stable_offset > event.high_watermark:
            yield f"{who}: last stable offset {event.last_stable_offset} above {event.high_watermark}"


def _readable(log: Log, *, committed_only: bool) -> list[tuple[int, bytes]]:
    fate = Fate.of(log)
    return [
        record
        for index, batch in enumerate(log)
        if batch.marker is None and (not committed_only or fate.is_committed(index))
        for record in batch.records()
    ]


def nothing_is_read_before_its_commit(history: History) -> Iterator[str]:
    """T3: a committed record was returned only after a client had requested the commit."""
    owner = {value: event.transaction for event in history.of(Produced) for value in event.values}
    asked: dict[str, int] = {}
    for ended in history.of(Ended):
        if ended.commit:
            asked[ended.transaction] = min(ended.started, asked.get(ended.transaction, ended.started))
    for event in history.of(Read):
        if not event.committed_only:
            continue
        for offset, value in event.records:
            transaction = owner.get(value)
            if transaction is not None and not asked.get(transaction, event.ended) < event.ended:
                yield f"{event.client}: {event.place} at {offset}: {value!r} was read before its commit was asked for"


def stable_offsets_never_go_back(history: History, *, has_followers: bool = False) -> Iterator[str]:
    """P7, P11: checked in the order of the requests, for runs without power loss. With `has_followers`, only answers of
    one leader in one epoch are compared. A new leader learns only from its followers how far the log is committed, and
    until then returns less, as do its followers, among them the former leader. Apache Kafka does the same."""
    seen: dict[object, list[tuple[int, int, int]]] = {}
    for event in history.of(Read):
        if event.code != OK or (has_followers and event.server[2] < 0):
            continue
        earlier = seen.setdefault((event.place, event.server) if has_followers else event.place, [])
        for ended, stable, high in earlier[-8:]:
            if ended < event.started and (stable > event.last_stable_offset or high > event.high_watermark):
                yield (
                    f"{event.client}: {event.place}: last stable offset and high watermark went from {(stable, high)} "
                    f"to {(event.last_stable_offset, event.high_watermark)}"
                )
        earlier.append((event.ended, event.last_stable_offset, event.high_watermark))


def transactions_are_atomic(history: History, logs: Mapping[Place, Log]) -> Iterator[str]:
    """T4: all partitions of a transaction have the same outcome, the one in the response to its end, and no
    acknowledged record is missing."""
    owner = {value: event.transaction for event in history.of(Produced) for value in event.values}
    decisions: dict[str, dict[ControlType | None, list[str]]] = {}
    for place, log in logs.items():
        fate = Fate.of(log)
        for index, batch in enumerate(log):
            transaction = owner.get(batch.values[0]) if batch.values else None
            if transaction is not None and batch.is_transactional:
                marker = fate.markers.get(index)
                found = marker.marker if marker is not None else None
                decisions.setdefault(transaction, {}).setdefault(found, []).append(f"{place} at {batch.base_offset}")
    for transaction, found_in in decisions.items():
        if len(found_in) > 1:
            yield f"{transaction} is torn: {_names(found_in)}"
    for event in history.of(Ended):
        if event.code != OK:
            continue
        wanted = ControlType.COMMIT if event.commit else ControlType.ABORT
        found_in = decisions.get(event.transaction, {})
        if found_in.keys() - {wanted}:
            yield f"{event.transaction} was ended with {wanted.name}: {_names(found_in)}"


def _names(found_in: Mapping[ControlType | None, list[str]]) -> dict[str, list[str]]:
    return {"OPEN" if found is None else found.name: places for found, places in found_in.items()}


def offsets_go_with_their_transaction(history: History, logs: Mapping[Place, Log]) -> Iterator[str]:
    """T4, G4: an offset that a transaction committed is returned only if the transaction committed, and not before a
    client requested that."""
    of_mark = {event.mark: event for event in history.of(CommittedOffset)}
    owner = {value: event.transaction for event in history.of(Produced) for value in event.values}
    committed: set[str] = set()
    aborted: set[str] = set()
    for log in logs.values():
        fate = Fate.of(log)
        for index, batch in enumerate(log):
            transaction = owner.get(batch.values[0]) if batch.values else None
            marker = fate.markers.get(index)
            if transaction is not None and marker is not None:
                (committed if marker.marker is ControlType.COMMIT else aborted).add(transaction)
    asked: dict[str, int] = {}
    for ended in history.of(Ended):
        if ended.commit:
            asked[ended.transaction] = min(ended.started, asked.get(ended.transaction, ended.started))
    for event in history.of(FetchedOffset):
        commit = of_mark.get(event.mark)
        if event.code != OK or commit is None or commit.transaction is None:
            continue
        transaction = commit.transaction
        if transaction in aborted:
            yield f"{event.client}: {event.mark} of {transaction}, which was aborted, is served"
        if not asked.get(transaction, event.ended) < event.ended:
            yield f"{event.client}: {event.mark} of {transaction} is served before its commit was asked for"
