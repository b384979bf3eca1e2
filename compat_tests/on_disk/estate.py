"""The content of a cluster that any client can read: recorded before a handover and compared after it.

`inventory` reads everything and judges nothing. Records are compared as they are stored: offset, timestamp, key, value,
headers, producer and sequence, attributes, leader epoch; markers too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from compat_tests.differential.session import Session
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.messages.describe_producers import DescribeProducersRequest
from pykbroker_wire.messages.describe_producers import TopicRequest as ProducersOf
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.list_groups import ListGroupsRequest
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.list_transactions import ListTransactionsRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pykbroker_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykbroker_wire.records.batch import CODEC_MASK, iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.clients import wait_until

FETCH_BY_NAME = 12
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
DYNAMIC_TOPIC_CONFIG = 1
TOPIC = 2
NO_COORDINATOR = {14, 15, 16}


class Stored(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    attributes: int
    leader_epoch: int
    producer: tuple[int, int, int]
    """Id, epoch, base sequence of the batch."""

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)


class PartitionContents(NamedTuple):
    start: int
    end: int
    stable: int
    records: list[Stored]
    aborted: list[tuple[int, int]]
    """Producer id and first offset, as read-committed readers are told."""
    by_time: dict[int, tuple[int, int]]
    """Offset and timestamp for a time that was asked for."""
    producers: list[tuple[int, ...]]
    epochs: list[tuple[int, int]]
    """For each leader epoch that there was: the last one with records not above it, and where that ends."""


class Inventory(NamedTuple):
    topics: dict[str, tuple[str, dict[str, str]]]
    """Id and configs of its own."""
    partitions: dict[tuple[str, int], PartitionContents]
    groups: dict[str, tuple[str, dict[tuple[str, int], tuple[int, int, str | None]]]]
    """Type, and what is committed: offset, leader epoch, metadata."""
    transactions: dict[str, tuple[Any, ...]]


class Asker:
    """Sends raw requests to the one node."""

    def __init__(self, bootstrap: str) -> None:
        self.session = Session("handover", bootstrap, {})
        self.ask = self.session.ask
        #: An earlier release serves fewer APIs.
        self.serves = {api.api_key for api in self.ask(ApiVersionsRequest(), 0).api_keys}

    def close(self) -> None:
        self.session.close()

    def until(self, what: Callable[[], Any], why: str) -> Any:
        return wait_until(what, why)

    def topics(self) -> dict[str, tuple[str, list[int]]]:
        """Return id and partitions by name, without internal topics."""
        found = self.ask(MetadataRequest(topics=None)).topics
        return {
            str(topic.name): (topic.topic_id.hex(), sorted(part.partition_index for part in topic.partitions))
            for topic in found
            if not topic.is_internal
        }

    def configs(self, topic: str) -> dict[str, str]:
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
        (found,) = self.ask(DescribeConfigsRequest(resources=[resource])).results
        return {c.name: c.value for c in found.configs if c.config_source == DYNAMIC_TOPIC_CONFIG}

    def offset_at(self, topic: str, partition: int, when: int, *, committed: bool = False) -> tuple[int, int, int]:
        """Return offset, timestamp and leader epoch; waits for the leader."""
        part = ListOffsetsPartition(partition_index=partition, timestamp=when)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=int(committed), topics=[ListOffsetsTopic(name=topic, partitions=[part])]
        )

        def ask() -> Any:
            (found,) = self.ask(request).topics[0].partitions
            return found if found.error_code == 0 else None

        found = self.until(ask, f"{topic}-{partition} has a leader")
        return found.offset, found.timestamp, found.leader_epoch

    def read(self, topic: str, partition: int, start: int, end: int) -> list[Stored]:
        records: list[Stored] = []
        position = start
        while position < end:
            found = self._fetch(topic, partition, position, committed=False)
            data = bytes(found.records or b"")
            before = position
            for at, header in iter_batches(data):
                for record in iter_records(data, at, header):
                    if record.offset < position:
                        continue
                    records.append(
                        Stored(
                            record.offset,
                            record.timestamp,
                            None if record.key is None else bytes(record.key),
                            None if record.value is None else bytes(record.value),
                            tuple(record.headers),
                            header.attributes,
                            header.partition_leader_epoch,
                            (header.producer_id, header.producer_epoch, header.base_sequence),
                        )
                    )
                position = max(position, header.next_offset)
            assert position > before, (topic, partition, position, end)
        return records

    def aborted(self, topic: str, partition: int, start: int) -> tuple[int, list[tuple[int, int]]]:
        found = self._fetch(topic, partition, start, committed=True)
        transactions = [(a.producer_id, a.first_offset) for a in found.aborted_transactions or ()]
        return found.last_stable_offset, sorted(transactions)

    def _fetch(self, topic: str, partition: int, offset: int, *, committed: bool) -> Any:
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24)
        request = FetchRequest(
            max_wait_ms=0,
            max_bytes=1 << 25,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        (found,) = self.ask(request, FETCH_BY_NAME).responses[0].partitions
        assert found.error_code == 0, (topic, partition, offset, found.error_code)
        return found

    def producers(self, topic: str, partition: int) -> list[tuple[int, ...]]:
        if ApiKey.DESCRIBE_PRODUCERS not in self.serves:
            return []
        request = DescribeProducersRequest(topics=[ProducersOf(name=topic, partition_indexes=[partition])])
        (found,) = self.ask(request).topics[0].partitions
        assert found.error_code == 0, found
        return sorted(
            (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch, p.current_txn_start_offset)
            for p in found.active_producers
        )

    def epochs(self, topic: str, partition: int, count: int) -> list[tuple[int, int]]:
        asked = []
        for epoch in range(count):
            part = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
            request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[part])])
            (found,) = self.ask(request).topics[0].partitions
            asked.append((found.leader_epoch, found.end_offset))
        return asked

    def coordinated(self, key_type: int, names: Iterable[str]) -> None:
        """Wait until each of these groups (0) or transactional ids (1) has a coordinator that has loaded."""
        for name in names:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])

            def found(asked: FindCoordinatorRequest = request) -> bool:
                return bool(self.ask(asked).coordinators[0].error_code == 0)

            self.until(found, f"{name} has a coordinator")

    def groups(self, ids: Iterable[str]) -> dict[str, tuple[str, dict[tuple[str, int], tuple[int, int, str | None]]]]:
        self.coordinated(0, ids)
        offsets = {}
        for group in ids:
            wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
            request = OffsetFetchRequest(groups=[wanted], require_stable=True)

            def fetched(asked: OffsetFetchRequest = request) -> Any:
                (answer,) = self.ask(asked, 9).groups
                return answer if answer.error_code not in NO_COORDINATOR else None

            answer = self.until(fetched, f"{group} is loaded")
            assert answer.error_code == 0, (group, answer.error_code)
            offsets[group] = {
                (t.name, p.partition_index): (p.committed_offset, p.committed_leader_epoch, p.metadata)
                for t in answer.topics
                for p in t.partitions
            }
        # They are loaded now, and listed.
        kinds = {g.group_id: g.group_type for g in self.ask(ListGroupsRequest()).groups}
        return {group: (kinds.get(group, "absent"), committed) for group, committed in offsets.items()}

    def transactions(self, ids: list[str]) -> dict[str, tuple[Any, ...]]:
        if not ids:
            return {}
        self.coordinated(1, ids)

        def described() -> Any:
            states = self.ask(DescribeTransactionsRequest(transactional_ids=ids)).transaction_states
            return states if not {s.error_code for s in states} & NO_COORDINATOR else None

        states = self.until(described, "transactional ids are loaded")
        listed = {t.transactional_id for t in self.ask(ListTransactionsRequest()).transaction_states}
        assert set(ids) <= listed, (ids, listed)
        return {
            s.transactional_id: (
                s.error_code,
                s.transaction_state,
                s.producer_id,
                s.producer_epoch,
                s.transaction_timeout_ms,
                sorted((t.topic, tuple(sorted(t.partitions))) for t in s.topics),
            )
            for s in states
        }


def inventory(bootstrap: str, *, groups: Iterable[str] = (), transactional_ids: Iterable[str] = ()) -> Inventory:
    asker = Asker(bootstrap)
    try:
        topics = asker.topics()
        partitions = {}
        for name, (_, indexes) in topics.items():
            for index in indexes:
                partitions[name, index] = _contents(asker, name, index)
        return Inventory(
            {name: (topic_id, asker.configs(name)) for name, (topic_id, _) in topics.items()},
            partitions,
            asker.groups(list(groups)),
            asker.transactions(list(transactional_ids)),
        )
    finally:
        asker.close()


def _contents(asker: Asker, name: str, index: int) -> PartitionContents:
    start, _, _ = asker.offset_at(name, index, EARLIEST)
    end, _, epoch = asker.offset_at(name, index, LATEST)
    records = asker.read(name, index, start, end)
    stable, aborted = asker.aborted(name, index, start)
    times = {0, MAX_TIMESTAMP, *(r.timestamp for r in records[:: max(1, len(records) // 8)])}
    times |= {r.timestamp + 1 for r in records[-1:]}
    by_time = {when: asker.offset_at(name, index, when)[:2] for when in sorted(times)}
    producers = asker.producers(name, index)
    epochs = asker.epochs(name, index, epoch + 1)
    return PartitionContents(start, end, stable, records, aborted, by_time, producers, epochs)


def unlike(before: Inventory, after: Inventory, *, compacted: Iterable[str] = ()) -> list[str]:
    """Return the differences, a line each; the leader epochs that a restart adds are not differences.

    In `compacted` topics only the last value of each key counts, because the cleaner decides which others are left.
    """
    found: list[str] = []

    def compare(what: str, was: Any, now: Any) -> None:
        if was != now:
            found.append(f"{what}: was {_short(was)}, is {_short(now)}")

    compare("topics", before.topics, after.topics)
    compare("groups", before.groups, after.groups)
    compare("transactions", before.transactions, after.transactions)
    compare("partitions", sorted(before.partitions), sorted(after.partitions))
    for key in before.partitions.keys() & after.partitions.keys():
        was, now = before.partitions[key], after.partitions[key]
        where = f"{key[0]}-{key[1]}"
        if key[0] in compacted:
            compare(f"{where} latest", latest(was.records), latest(now.records))
            compare(f"{where} end", was.end, now.end)
            continue
        for name in ("start", "end", "stable", "aborted", "by_time"):
            compare(f"{where} {name}", getattr(was, name), getattr(now, name))
        # For a producer whose records are all deleted, no state has to be left after a crash.
        present = {record.producer[0] for record in was.records}
        compare(f"{where} producers", *([p for p in part.producers if p[0] in present] for part in (was, now)))
        compare(f"{where} epochs", was.epochs, now.epochs[: len(was.epochs)])
        compare(f"{where} records", len(was.records), len(now.records))
        for one, other in zip(was.records, now.records, strict=False):
            if one != other:
                compare(f"{where} record", one, other)
                break
    return found


def latest(records: Iterable[Stored]) -> dict[bytes | None, tuple[int, bytes | None]]:
    values = {r.key: (r.offset, r.value) for r in records if not r.is_control}
    return {key: value for key, value in values.items() if value[1] is not None}


def codecs(records: Iterable[Stored]) -> set[int]:
    return {record.attributes & CODEC_MASK for record in records}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 600 else text[:600] + "..."


def manifest(found: Inventory, *, compacted: Iterable[str] = ()) -> dict[str, Any]:
    """Return an inventory as JSON, with the number and the digest of records and without producers, which expire."""
    partitions = {}
    for (topic, index), part in sorted(found.partitions.items()):
        content: Any = sorted(latest(part.records).items(), key=repr) if topic in compacted else part.records
        said: dict[str, Any] = {"end": part.end, "epochs": [list(entry) for entry in part.epochs]}
        if topic not in compacted:
            said |= {
                "start": part.start,
                "stable": part.stable,
                "aborted": [list(entry) for entry in part.aborted],
                "by_time": {str(when): list(answer) for when, answer in part.by_time.items()},
                "records": len(part.records),
            }
        said["digest"] = hashlib.sha256(repr([tuple(record) for record in content]).encode()).hexdigest()
        partitions[f"{topic}-{index}"] = said
    groups = {
        group: {"kind": kind, **{f"{topic}-{index}": list(said) for (topic, index), said in sorted(offsets.items())}}
        for group, (kind, offsets) in sorted(found.groups.items())
    }
    transactions = {
        name: [*state[:-1], [[topic, list(indexes)] for topic, indexes in state[-1]]]
        for name, state in sorted(found.transactions.items())
    }
    return {
        "topics": {name: [topic_id, configs] for name, (topic_id, configs) in sorted(found.topics.items())},
        "partitions": partitions,
        "groups": groups,
        "transactions": transactions,
    }
