"""T1, T5, T6: the writes of idempotent and transactional producers, which may write, and which were fenced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pykbroker_worlds.history.events import OK, Batch, Ended, Fate, History, Identified, Log, Place, Produced


def written_once(logs: Mapping[Place, Log]) -> Iterator[str]:
    """T1: each (producer, epoch, sequence) is in a partition once, in order, without gaps. T: each value is there once,
    except those that plain producers sent again."""
    for place, log in logs.items():
        values: dict[bytes, int] = {}
        idempotent: set[bytes] = set()
        next_sequences: dict[tuple[int, int], int] = {}
        for batch in log:
            for offset, value in batch.records():
                if batch.producer_id >= 0:
                    idempotent.add(value)
                if value in values and value in idempotent:
                    yield f"{place}: {value!r} stands at {values[value]} and at {offset}"
                values[value] = offset
            if batch.producer_id < 0 or batch.marker is not None:
                continue
            key = batch.producer_id, batch.epoch
            expected = next_sequences.get(key, 0)
            if batch.sequence != expected:
                yield f"{place}: producer {key} wrote sequence {batch.sequence} at {batch.base_offset}, not {expected}"
            next_sequences[key] = batch.sequence + len(batch.values)


def acknowledged_is_there(history: History, logs: Mapping[Place, Log]) -> Iterator[str]:
    """T1, P1: an acknowledged record is at the offset in the response, also if the request was a repetition."""
    found = {place: dict(record for batch in log for record in batch.records()) for place, log in logs.items()}
    for event in history.of(Produced):
        if event.code != OK or event.acks != -1:
            continue
        for number, value in enumerate(event.values):
            there = found[event.place].get(event.base_offset + number)
            if there != value:
                yield (
                    f"{event.place}: {value!r} was acknowledged at {event.base_offset + number}, "
                    f"where {there!r} stands ({event.client}, attempt {event.attempt})"
                )


def one_open_transaction(logs: Mapping[Place, Log], *, epochs_rise: bool) -> Iterator[str]:
    """T5, T6: each producer has at most one open transaction in a log, all of one epoch; producer and coordinator
    epochs never go back. If every end raises the epoch (transaction.version 2), no batch after a marker has an epoch
    before the marker's."""
    for place, log in logs.items():
        epochs: dict[int, int] = {}
        coordinators: dict[int, int] = {}
        open_epochs: dict[int, int] = {}
        for batch in log:
            producer = batch.producer_id
            if producer < 0:
                continue
            where = f"{place}: producer {producer} at {batch.base_offset}"
            if batch.epoch < epochs.get(producer, -1):
                yield f"{where}: epoch {batch.epoch} after {epochs[producer]}"
            if batch.marker is not None:
                yield from _marker(where, batch, open_epochs, coordinators, epochs_rise=epochs_rise)
            elif batch.is_transactional:
                opened = open_epochs.setdefault(producer, batch.epoch)
                if opened != batch.epoch:
                    yield f"{where}: epoch {batch.epoch} in a transaction of epoch {opened}"
            elif producer in open_epochs:
                yield f"{where}: written outside of its open transaction"
            epochs[producer] = max(batch.epoch, epochs.get(producer, -1))


def _marker(
    where: str, batch: Batch, open_epochs: dict[int, int], coordinators: dict[int, int], *, epochs_rise: bool
) -> Iterator[str]:
    producer = batch.producer_id
    opened = open_epochs.pop(producer, None)
    if epochs_rise and opened is not None and batch.epoch <= opened:
        yield f"{where}: a marker of epoch {batch.epoch} ends a transaction of epoch {opened}"
    if batch.coordinator_epoch < coordinators.get(producer, -1):
        yield f"{where}: coordinator epoch {batch.coordinator_epoch} after {coordinators[producer]}"
    coordinators[producer] = max(batch.coordinator_epoch, coordinators.get(producer, -1))


def fenced_stay_out(history: History) -> Iterator[str]:
    """T5, T6: once a producer was given an epoch, new requests with an older epoch are refused."""
    given: dict[int, list[tuple[int, int]]] = {}
    for identified in history.of(Identified):
        if identified.code == OK:
            given.setdefault(identified.producer_id, []).append((identified.ended, identified.epoch))
    for event in history.events:
        if not isinstance(event, Produced | Ended) or event.code != OK or event.attempt > 1:
            continue
        newer = [
            epoch for ended, epoch in given.get(event.producer_id, ()) if ended < event.started and epoch > event.epoch
        ]
        if newer:
            what = "produced" if isinstance(event, Produced) else "ended a transaction"
            yield f"{event.client}: {what} in epoch {event.epoch} of producer {event.producer_id} after {max(newer)}"


def epochs_are_given_once(history: History) -> Iterator[str]:
    """T5: two producers of one transactional id never get the same (producer id, epoch), and it never goes back."""
    given: dict[tuple[int, int], str] = {}
    latest: dict[str, list[tuple[int, int, int]]] = {}
    for event in history.of(Identified):
        if event.code != OK:
            continue
        key = event.producer_id, event.epoch
        if key in given:
            yield f"{event.transactional_id}: {key} was given to {given[key]} and to {event.client}"
        given[key] = event.client
        for ended, producer, epoch in latest.get(event.transactional_id, ()):
            if ended < event.started and (producer > event.producer_id or (producer, epoch) >= key):
                yield f"{event.transactional_id}: {key} was given after {(producer, epoch)}"
        latest.setdefault(event.transactional_id, []).append((event.ended, *key))


def nothing_hangs(logs: Mapping[Place, Log], last_stable_offsets: Mapping[Place, int]) -> Iterator[str]:
    """T7, at the end, when every timeout is over: no transaction is open, and all records can be read."""
    for place, log in logs.items():
        fate = Fate.of(log)
        for index, batch in enumerate(log):
            if fate.is_undecided(index):
                yield f"{place}: the transaction of producer {batch.producer_id} at {batch.base_offset} is open"
        end = log[-1].last_offset + 1 if log else 0
        if place in last_stable_offsets and last_stable_offsets[place] < end:
            yield f"{place}: the last stable offset is {last_stable_offsets[place]}, the log ends at {end}"


def ends_in_time(
    logs: Mapping[Place, Log], *, limit_ms: int, excused: Mapping[int, int] | None = None
) -> Iterator[str]:
    """T7: no transaction was open for longer than its timeout and the time that the coordinator needs. `excused` is
    extra time by producer, because no coordinator was there to end it."""
    for place, log in logs.items():
        fate = Fate.of(log)
        for index, marker in fate.markers.items():
            batch = log[index]
            open_ms = marker.timestamp - batch.timestamp
            if open_ms > limit_ms + (excused or {}).get(batch.producer_id, 0):
                yield f"{place}: producer {batch.producer_id} had a transaction open for {open_ms} ms"
