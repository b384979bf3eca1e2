"""The share coordinator of one broker as request handlers see it: one method per API (KIP-932).

Responsible for finding the partition of `__share_group_state` for each share partition of a request, and for joining
the answers. It also does the coordinator's own work: snapshots of share partitions without traffic, the deletion of
records that no snapshot needs, and state of deleted topics. Not responsible for authorization and messages (api/), nor
for anything that is decided about a share partition (shard.py).

A request is divided by shards, and all its share partitions of one shard are one operation with one batch of records.
If a request has a share partition twice, the second comes in an operation of its own, because it must see the first.

The clients of this coordinator are brokers: the leaders of the share partitions and the coordinators of the groups,
which may run Apache Kafka. So the APIs are served whatever share.version is, as in Apache Kafka. Only the coordinator's
own work needs share.version 1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from pykbroker.config.metric_windows import metric_windows
from pykbroker.coordinator.collected_batch import BATCH_BYTES
from pykbroker.coordinator.java import hash_map_order, uuid_hash
from pykbroker.coordinator.kept_count import KeptCount
from pykbroker.coordinator.machine import CoordinatorRuntime
from pykbroker.coordinator.repeated_work import RepeatedWork
from pykbroker.coordinator.result import Result, Token
from pykbroker.coordinator.share import records
from pykbroker.coordinator.share.shard import ShareStateShard, StateOutcome, StateWrite
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.metadata.features import share_version
from pykbroker.metadata.topic_names import SHARE_STATE_TOPIC
from pykbroker.metrics.recent import RecentTimes
from pykbroker.runtime.later import Later, gather, then
from pykbroker.runtime.line_limit import LineLimit
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.compression import Codec

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.metadata.delta import MetadataDelta
    from pykbroker.metadata.image import MetadataImage
    from pykbroker.metadata.view import MetadataView
    from pykbroker.replica.partition import Partition
    from pykbroker.replica.table import ReplicaTable
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

A = TypeVar("A")
D = TypeVar("D")
#: The action of an operation for one share partition, with the request's data about it. The last two arguments are the
#: time and the Result for the records.
Act: TypeAlias = Callable[[ShareStateShard, SharePartitionKey, D, int, Result], StateOutcome]
#: By topic id and partition, in the order of Apache Kafka's answer.
AnswersByPartition: TypeAlias = dict[bytes, dict[int, StateOutcome]]
#: The topic id, the partition, and the data of one entry of a request.
RequestEntries: TypeAlias = Sequence[tuple[bytes, int, D]]


@dataclass(slots=True, frozen=True, kw_only=True)
class ShareCoordinatorSettings:
    """The configuration of the coordinator as plain numbers, read once. Defaults are Apache Kafka's."""

    partitions: int = 50
    updates_per_snapshot: int = 500
    write_timeout_ms: int = 5_000
    load_bytes: int = 5 * 1024 * 1024
    codec: int = 0
    linger_ms: int = -1
    prune_interval_ms: int = 300_000
    cold_interval_ms: int = 300_000

    @classmethod
    def from_config(cls, config: Config) -> ShareCoordinatorSettings:
        return cls(
            partitions=config.int("share.coordinator.state.topic.num.partitions"),
            updates_per_snapshot=config.int("share.coordinator.snapshot.update.records.per.snapshot"),
            write_timeout_ms=config.int("share.coordinator.write.timeout.ms"),
            load_bytes=config.int("share.coordinator.load.buffer.size"),
            codec=config.int("share.coordinator.state.topic.compression.codec"),
            linger_ms=config.int("share.coordinator.append.linger.ms"),
            prune_interval_ms=config.int("share.coordinator.state.topic.prune.interval.ms"),
            cold_interval_ms=config.int("share.coordinator.cold.partition.snapshot.interval.ms"),
        )


class ShareCoordinatorService:
    """Handlers use it as `ctx.services.share_coordinator`."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        replicas: ReplicaTable,
        metadata: MetadataView,
        shard: Callable[[int, Callable[[bytes], int]], ShareStateShard] = ShareStateShard,
    ) -> None:
        """`shard` makes the state of a partition; tests of the tests pass one with a bug."""
        self.settings: Final = ShareCoordinatorSettings.from_config(config)
        self._metadata = metadata
        self._replicas = replicas
        self._partitions = KeptCount(SHARE_STATE_TOPIC, self.settings.partitions)
        self._work = RepeatedWork(runtime.client_clock)
        #: limits the lines about records that cannot be deleted, because that is tried again and again
        self._lines = LineLimit(runtime.loop.time)
        #: the milliseconds that writes took, each with all share partitions of its request
        self.write_times = RecentTimes(runtime.loop.time, metric_windows(config))
        #: by partition that this node leads, the offset before which it has deleted the records
        self.pruned_before: dict[int, int] = {}
        self.coordinator: CoordinatorRuntime[ShareStateShard] = CoordinatorRuntime(
            SHARE_STATE_TOPIC,
            runtime,
            replicas,
            lambda index: shard(self.settings.updates_per_snapshot, self._partition_count),
            records,
            commit_timeout_ms=self.settings.write_timeout_ms,
            load_bytes=self.settings.load_bytes,
            windows=metric_windows(config),
            codec=Codec(self.settings.codec),
            linger_ms=self.settings.linger_ms,
        )
        replicas.on_leadership(self._leadership_changed)

    def start(self) -> None:
        """Keep the number of partitions by which share partitions are found, and begin the coordinator's own work. Call
        it when the metadata is complete."""
        self._partitions.start(self._metadata.image)
        self._work.every(self.settings.prune_interval_ms, self._prune)
        self._work.every(self.settings.cold_interval_ms, self._snapshot_cold)

    def close(self) -> None:
        """Stop, and answer the requests that wait with NOT_COORDINATOR."""
        self._work.close()
        self.coordinator.close()

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Take a change of the metadata. The state of deleted topics is removed."""
        self._partitions.look(new)
        if deleted := frozenset(topic.id for topic in delta.topics.deleted.values()):
            self.coordinator.input_all(lambda shard, now_ms: shard.topics_deleted(deleted))

    def partition_of(self, key: SharePartitionKey) -> int:
        """Return the partition whose leader coordinates the share partition."""
        return key.state_partition(self._partitions.of(self._metadata.image))

    def _partition_count(self, topic_id: bytes) -> int:
        topic = self._metadata.image.topics.by_id.get(topic_id)
        return 0 if topic is None else len(topic.partitions)

    # -- requests -----------------------------------------------------------------------------------------------------

    def initialize(self, group_id: str, asked: RequestEntries[tuple[int, int]]) -> Later[AnswersByPartition]:
        """Begin the state of share partitions anew. The data of each: its state epoch and its start offset, -1 if the
        start is not known yet."""

        def act(
            shard: ShareStateShard, key: SharePartitionKey, data: tuple[int, int], now_ms: int, result: Result
        ) -> StateOutcome:
            return shard.initialize(key, *data, now_ms, result)

        return self._run(group_id, asked, act, "Unable to initialize share group state: ")

    def write(self, group_id: str, asked: RequestEntries[StateWrite]) -> Later[AnswersByPartition]:
        """Write what the leaders of share partitions have changed. The answer comes when it is committed."""

        def act(
            shard: ShareStateShard, key: SharePartitionKey, data: StateWrite, now_ms: int, result: Result
        ) -> StateOutcome:
            return shard.write(key, data, now_ms, result)

        begun_s = self.coordinator.measures.now_s()

        def note() -> None:
            self.write_times.record(self.coordinator.measures.ms_since(begun_s))

        return self._run(group_id, asked, act, "Unable to write share group state: ", note)

    def read(self, group_id: str, asked: RequestEntries[int]) -> Later[AnswersByPartition]:
        """Return the state of share partitions for leaders that load them. The data of each: its leader epoch, by which
        earlier leaders are fenced, or -1."""

        def act(shard: ShareStateShard, key: SharePartitionKey, data: int, now_ms: int, result: Result) -> StateOutcome:
            return shard.read(key, data, now_ms, result)

        return self._run(group_id, asked, act, "Unable to read share group state: ")

    def read_summary(self, group_id: str, asked: RequestEntries[int]) -> Later[AnswersByPartition]:
        """Return the state of share partitions for the coordinator of the group, which shows start offsets and lags.
        The leader epoch, the data of each, is not looked at."""

        def act(shard: ShareStateShard, key: SharePartitionKey, data: int, now_ms: int, result: Result) -> StateOutcome:
            return shard.summary(key)

        return self._run(group_id, asked, act, "Unable to read share group state summary: ")

    def delete(self, group_id: str, asked: RequestEntries[None]) -> Later[AnswersByPartition]:
        """Remove the state of share partitions. Unknown ones are no error."""

        def act(
            shard: ShareStateShard, key: SharePartitionKey, data: None, now_ms: int, result: Result
        ) -> StateOutcome:
            return shard.delete(key, result)

        return self._run(group_id, asked, act, "Unable to delete share group state: ")

    def _run(
        self,
        group_id: str,
        asked: RequestEntries[D],
        act: Act[D],
        failed: str,
        ended: Callable[[], None] = lambda: None,
    ) -> Later[AnswersByPartition]:
        """Run `act` on each share partition. `failed` begins the message of an error that the coordinator has with its
        log. `ended` is called when all answers are there."""
        parts = list(self._parts(group_id, asked))
        keys = [key for _, part in parts for key, _ in part]
        if len(parts) == 1:
            # Leaders write to one partition most of the time, and each future costs a turn of the loop.
            [(index, part)] = parts
            found = self._submit(index, part, act, failed, lambda outcomes: _by_topic(keys, outcomes))
        else:
            outcomes = gather([self._submit(index, part, act, failed, list) for index, part in parts])
            found = then(outcomes, lambda each: _by_topic(keys, chain.from_iterable(each)))
        if isinstance(found, asyncio.Future):
            found.add_done_callback(lambda _: ended())
        else:
            ended()
        return found

    def _parts(
        self, group_id: str, asked: RequestEntries[D]
    ) -> Iterable[tuple[int, list[tuple[SharePartitionKey, D]]]]:
        """Return the operations of a request: the partition of `__share_group_state`, and the share partitions in it,
        each once."""
        rounds: list[dict[int, list[tuple[SharePartitionKey, D]]]] = []
        times: dict[SharePartitionKey, int] = {}
        for topic_id, index, data in asked:
            key = SharePartitionKey(group_id, topic_id, index)
            at = times[key] = times.get(key, -1) + 1
            if at == len(rounds):
                rounds.append({})
            rounds[at].setdefault(self.partition_of(key), []).append((key, data))
        for each in rounds:
            yield from each.items()

    def _submit(
        self,
        index: int,
        part: list[tuple[SharePartitionKey, D]],
        act: Act[D],
        failed: str,
        answer: Callable[[list[StateOutcome]], A],
    ) -> Later[A]:
        """Run `act` on share partitions of one shard, and return `answer` of the outcomes."""

        def operation(shard: ShareStateShard, token: Token, now_ms: int) -> Result:
            result = Result()
            result.reply(token, answer([act(shard, key, data, now_ms, result) for key, data in part]))
            result.atomic = sum(map(records.about_bytes, result.records)) <= BATCH_BYTES
            return result

        return self.coordinator.submit(
            index,
            operation,
            lambda code: answer([StateOutcome(code, failed + code.message)] * len(part)),
            barrier=lambda shard: shard.must_see([key for key, _ in part]),
            waits_for_load=True,
        )

    # -- what the coordinator does by itself --------------------------------------------------------------------------

    def _snapshot_cold(self) -> None:
        if share_version(self._metadata.image):
            interval_ms = self.settings.cold_interval_ms
            self.coordinator.input_all(lambda shard, now_ms: shard.snapshot_cold(interval_ms, now_ms))

    def _prune(self) -> None:
        """Ask each shard for the offset below which its log is redundant. The answer comes when everything that it
        follows from is committed."""
        if not share_version(self._metadata.image):
            return

        def operation(shard: ShareStateShard, token: Token, now_ms: int) -> Result:
            result = Result()
            result.reply(token, shard.redundant_before())
            return result

        for index in self.coordinator.led():
            offset: Later[int | None] = self.coordinator.submit(index, operation, lambda code: None)
            then(offset, partial(self._delete_before, index))

    def _leadership_changed(self, partition: Partition, is_leader: bool, epoch: int) -> None:
        if partition.topic == SHARE_STATE_TOPIC and not is_leader:
            self.pruned_before.pop(partition.index, None)

    def _delete_before(self, index: int, offset: int | None) -> None:
        """Delete the records of a partition below `offset`. The followers delete theirs with their next fetches."""
        if offset is None:
            return
        try:
            partition, _, _ = self._replicas.delete_records(SHARE_STATE_TOPIC, index, offset, may_be_internal=True)
        except KafkaError as error:
            if (left_out := self._lines.take(error.code.name)) is not None:
                logger.warning(
                    "%s-%d: records before offset %d are redundant, and cannot be deleted now: %s%s",
                    SHARE_STATE_TOPIC,
                    index,
                    offset,
                    error,
                    left_out,
                )
        else:
            self.pruned_before[index] = offset
            logger.debug("%r: records before offset %d are redundant and deleted", partition, offset)


def refused(asked: Iterable[tuple[bytes, int, object]], code: ErrorCode) -> AnswersByPartition:
    """Return one error for all share partitions of a request."""
    found: AnswersByPartition = {}
    for topic_id, index, _ in asked:
        found.setdefault(topic_id, {})[index] = StateOutcome(code, code.message)
    return found


def _by_topic(keys: Iterable[SharePartitionKey], answers: Iterable[StateOutcome]) -> AnswersByPartition:
    """Return the answers by topic id and partition, in the order of Kafka's HashMaps. The last one of a share partition
    counts."""
    found: AnswersByPartition = {}
    for key, answer in zip(keys, answers, strict=True):
        found.setdefault(key.topic_id, {})[key.partition] = answer
    return {
        topic_id: {index: found[topic_id][index] for index in hash_map_order(found[topic_id], lambda index: index)}
        for topic_id in hash_map_order(found, uuid_hash)
    }
