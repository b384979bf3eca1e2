"""State that was rebuilt from a log, compared with the state that grew while the log was written.

T9 for producers: from the whole log, from a snapshot and what follows it, and as before the restart. The same for
coordinators: a shard that replays its partition from the start must equal the running one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykbroker.coordinator.group.classic.classic_group import ClassicGroup
from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup
from pykbroker.coordinator.group.offsets import Offsets
from pykbroker.coordinator.group.shard import GroupShard
from pykbroker.coordinator.machine import CoordinatorRuntime
from pykbroker.coordinator.transaction.shard import TransactionShard
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import ProducerEntry, ProducerStates
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.control import ControlType, parse_control
from pykbroker_wire.records.record import iter_records

Producers = dict[int, tuple[int, ...]]


def _told(entry: ProducerEntry) -> tuple[int, ...]:
    """The part of a producer's state that a snapshot keeps."""
    return (
        entry.epoch,
        entry.last_sequence,
        entry.last_offset,
        entry.coordinator_epoch,
        entry.last_timestamp,
        entry.txn_first_offset,
    )


def producers_of(log: PartitionLog) -> Producers:
    return {producer: _told(entry) for producer, entry in log.producers.entries.items()}


def compare_producers(where: str, left: Producers, right: Producers) -> None:
    for producer in sorted(left.keys() | right.keys()):
        assert left.get(producer) == right.get(producer), (
            f"T9: {where}: producer {producer} (epoch, sequence, offset, coordinator epoch, timestamp, transaction): "
            f"{left.get(producer)} became {right.get(producer)}"
        )


def fresh_producers_agree(log: PartitionLog) -> None:
    """Compare, for logs from which nothing was deleted."""
    fresh = ProducerStates()
    for position, header, data in _batches(log):
        fresh.replay(header, data[position : position + header.size_in_bytes])
    found = {producer: _told(entry) for producer, entry in fresh.entries.items()}
    compare_producers(f"{log!r} from its start", found, producers_of(log))
    assert fresh.transactions.first_undecided() == log.producers.transactions.first_undecided(), f"T9: {log!r}"


def _batches(log: PartitionLog) -> Any:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = memoryview(log.read(offset, 1 << 20, log.log_end_offset).joined())
        if not data:
            # A power loss has removed it, in a log that may have gaps because it will be compacted.
            return
        for position, header in iter_batches(data):
            yield position, header, data
            offset = header.next_offset


def coordinators_agree(runtime: CoordinatorRuntime[Any], contents: Callable[[Any], object], now_ms: int) -> None:
    """Compare every loaded shard with a fresh one that reads the same log; not while records are collected."""
    for index, host in runtime._hosts.items():
        if not host.ready or host.batch:
            continue
        fresh = _replayed(runtime, index, host.partition.log, now_ms)
        left, right = contents(host.shard), contents(fresh)
        assert left == right, f"{runtime.topic}-{index}: {_difference(left, right)}"


def _replayed(runtime: CoordinatorRuntime[Any], index: int, log: PartitionLog, now_ms: int) -> Any:
    shard = runtime._shard_factory(index)
    for position, header, data in _batches(log):
        records = iter_records(data, position, header)
        producer = header.producer_id if header.is_transactional else -1
        for record in records:
            if header.is_control:
                marker = parse_control(record).type
                assert marker in (ControlType.COMMIT, ControlType.ABORT)
                shard.end_transaction(header.producer_id, commit=marker is ControlType.COMMIT)
                continue
            decoded = runtime._format.decode(record.key, record.value)
            if decoded is not None:
                shard.replay(decoded, record.offset, producer)
    for _ in shard.loaded(now_ms):
        pass
    return shard


def _difference(left: object, right: object) -> str:
    if isinstance(left, dict) and isinstance(right, dict):
        return "; ".join(
            f"{key}: has {left.get(key)!r}, the log says {right.get(key)!r}"
            for key in sorted(left.keys() | right.keys(), key=repr)
            if left.get(key) != right.get(key)
        )
    return f"{left!r} != {right!r}"


def contents_of_groups(shard: GroupShard) -> dict[object, object]:
    """The replicated state of a shard of groups."""
    found: dict[object, object] = {}
    for name, group in shard.groups.items():
        if isinstance(group, ConsumerGroup):
            found["consumers", name] = contents_of_consumer_group(group)
        elif isinstance(group, ClassicGroup) and group.stored is not None:
            found["group", name] = freeze(group.stored)
    found.update(contents_of_offsets(shard.offsets))
    return found


def contents_of_offsets(offsets: Offsets) -> dict[object, object]:
    found: dict[object, object] = {}
    for group, topics in offsets._by_group.items():
        for topic, partitions in topics.items():
            for partition, entry in partitions.items():
                found["offset", group, topic, partition] = bytes(entry)
    for producer, pending in offsets._pending.items():
        for place, entry in pending.items():
            found["pending", producer, *place] = bytes(entry)
    for group, undecided in offsets._open.items():
        for (topic, partition), producers in undecided.items():
            found["open", group, topic, partition] = frozenset(producers)
    return found


def contents_of_consumer_group(group: ConsumerGroup) -> object:
    """The state without soft state (timers, lookups under way)."""
    members = {
        member.member_id: (member.epoch, member.previous_epoch, *map(freeze, member[3:]))
        for member in group.members.values()
    }
    return (
        group.epoch,
        group.metadata_hash,
        group.target_epoch,
        freeze(group.target),
        freeze(members),
        freeze(group.partition_epochs.by_topic),
        freeze(group.static_members),
        freeze(group.subscriptions.subscribers),
        freeze(group.subscriptions.resolved),
    )


def contents_of_transactions(shard: TransactionShard) -> dict[object, object]:
    """The epoch before the last is not in the log, as in Apache Kafka."""
    found: dict[object, object] = {
        transactional_id: freeze(transaction._replace(last_epoch=-1))
        for transactional_id, transaction in shard.transactions.items()
    }
    found["ongoing",] = frozenset(shard.ongoing)
    return found


def freeze(value: object) -> object:
    """A value of slots, lists and dicts as nested tuples."""
    if isinstance(value, dict):
        return tuple(sorted(((freeze(key), freeze(item)) for key, item in value.items()), key=repr))
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    if isinstance(value, set | frozenset):
        return tuple(sorted((freeze(item) for item in value), key=repr))
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    if slots and not isinstance(value, int | str):
        return (type(value).__name__, *((name, freeze(getattr(value, name, None))) for name in slots))
    return value
