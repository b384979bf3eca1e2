"""The replicas of this node, which are created, changed and deleted to follow the metadata.

Responsible for the set of partitions on this node, for notifying coordinators of leaderships, and for the configuration
of topics. Not responsible for logs and directories (`logs`, in storage/), fetches that wait (parked.py), the protocol,
or the choice of the partitions that exist (the controller).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from pykbroker.config.topic import resolve_topic
from pykbroker.metadata.image import DIRECTORY_UNASSIGNED, ConfigResource, MetadataImage, PartitionImage
from pykbroker.metadata.topic_names import INTERNAL_TOPICS
from pykbroker.replica.broker_topic_metrics import BrokerTopicMetrics
from pykbroker.replica.containment import contained
from pykbroker.replica.follower import FollowerServices, PartitionFollower
from pykbroker.replica.isr_updates import AlterPartition, Answered, IsrExpiration, IsrUpdates
from pykbroker.replica.leader import Judgement
from pykbroker.replica.parked import FetchPurgatory
from pykbroker.replica.partition import Partition
from pykbroker.replica.partition_services import PartitionServices
from pykbroker.replica.quota import ReplicationQuotas
from pykbroker.replica.replica_metrics import register
from pykbroker.storage.logs import Logs
from pykbroker.storage.space import DiskSpace
from pykbroker_log.log_config import MAX_INT64, LogConfig, StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.alter_partition import RequestPartitionData, ResponsePartitionData

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.metadata.delta import MetadataDelta
    from pykbroker.metrics.registry import Metrics
    from pykbroker.replica.replica_traffic import PartitionTraffic
    from pykbroker.runtime import Runtime
    from pykbroker.runtime.cold_reads import ColdReads
    from pykbroker.storage.moves import DirectoryAssignments

Leadership = Callable[[Partition, bool, int], None]
OnFollower = Callable[[Partition, PartitionFollower], None]


def no_controller(topic_id: bytes, change: RequestPartitionData, answered: Answered) -> None:
    """Change no ISR, because there is no controller."""
    answered(
        ResponsePartitionData(partition_index=change.partition_index, error_code=ErrorCode.OPERATION_NOT_ATTEMPTED)
    )


class ReplicaTable:
    """The replicas of one node. It is a publisher of the metadata loader, and request handlers look replicas up in
    it."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        node_id: int,
        log_dirs: list[LogDir],
        metrics: Metrics,
        on_directory_failure: Callable[[LogDir, StorageError], None],
        cold_reads: ColdReads | None = None,
        *,
        assignments: DirectoryAssignments | None = None,
        move_throttle: Callable[[], int] = lambda: MAX_INT64,
        space: DiskSpace | None = None,
        alter_partition: AlterPartition = no_controller,
        quotas: ReplicationQuotas | None = None,
    ) -> None:
        """`assignments` is notified of each log that was opened, and its directory. `move_throttle` returns the number
        of bytes per second that moves between directories may copy. `alter_partition` asks the controller to change an
        ISR."""
        self.runtime = runtime
        self.config = config
        self.node_id = node_id
        space = DiskSpace(runtime) if space is None else space
        self.logs = Logs(
            runtime,
            config,
            log_dirs,
            metrics,
            self,
            on_directory_failure,
            cold_reads,
            assignments,
            move_throttle,
            space,
        )
        #: fetches that wait
        self.purgatory = FetchPurgatory(runtime.loop, config.int("pykbroker.max.parked.requests"))
        self.fetch_max_bytes = config.int("fetch.max.bytes")
        #: the quotas of throttled replicas
        self.quotas = quotas or ReplicationQuotas(config, node_id, runtime.loop.time, metrics)
        #: True if consumers get the id of a replica in their rack (KIP-392)
        self.selects_by_rack = config.optional_str("replica.selector.class") is not None
        self._partitions: dict[str, dict[int, Partition]] = {}
        self._image = MetadataImage()
        self._topic_configs: dict[str, LogConfig] = {}
        self._leadership: list[Leadership] = []
        self._following: OnFollower | None = None
        self.topic_metrics = BrokerTopicMetrics(metrics)
        max_lag_ms = config.int("replica.lag.time.max.ms")
        #: the owner of the table has to start it
        self.isr_expiration = IsrExpiration(runtime.loop, lambda: self, max_lag_ms)
        self._shared = PartitionServices(
            node_id,
            runtime.now_ms,
            lambda: int(runtime.loop.time() * 1000),
            self.logs.flusher.want,
            self.purgatory.changed,
            self._led,
            self.logs.directory_failed,
            space,
            Judgement(node_id, max_lag_ms, lambda broker_id: self._image.brokers.get(broker_id)),
            IsrUpdates(alter_partition, metrics),
            self.topic_metrics,
            FollowerServices(
                self.logs.truncations.begin,
                self.logs.truncations.begin_start_over,
                self.logs.directory_failed,
                space,
                self.logs.follower_gaps.note,
                self.topic_metrics.replication_bytes_in,
            ),
            self._follows,
            _new_traffic(config),
        )
        register(metrics, self, lambda: self.purgatory.count - self.purgatory.share_count)

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._partitions.values():
            yield from partitions.values()

    # -- look-up ------------------------------------------------------------------------------------------------------

    def find(self, topic: str, index: int) -> Partition | None:
        """Return the replica of this node, if it has one."""
        partitions = self._partitions.get(topic)
        return None if partitions is None else partitions.get(index)

    def get(self, topic: str, index: int) -> Partition:
        """Return the replica of this node. Raises UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER for a partition
        that only other nodes have."""
        partition = self.find(topic, index)
        if partition is not None:
            return partition
        if self.exists(topic, index):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index}: this node has no replica of it")
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} does not exist")

    def exists(self, topic: str, index: int) -> bool:
        """Return True if the metadata has the partition, on this node or elsewhere."""
        return self._image.topics.partition(topic, index) is not None

    def on_leadership(self, callback: Leadership) -> None:
        """Call `callback(partition, is_leader, leader_epoch)` when this node gains or loses a leadership, or leads
        again in a new epoch. Call it at once, too, for each partition that this node already leads."""
        self._leadership.append(callback)
        for partition in self:
            if partition.is_leader:
                callback(partition, True, partition.leader_epoch)

    def on_following(self, callback: OnFollower) -> None:
        """Call `callback(partition, role)` when this node follows in a new leader epoch, and at once for each partition
        that it already follows. When a role ends, it notifies its watcher."""
        assert self._following is None
        self._following = callback
        for partition in self:
            self._follows(partition)

    # -- metadata -----------------------------------------------------------------------------------------------------

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Apply a change of the metadata to the replicas of this node."""
        self._image = new
        for topic in delta.topics.deleted.values():
            for partition in list(self._partitions.get(topic.name, {}).values()):
                if partition.topic_id == topic.id:
                    self._remove(partition)
            # A request may have named a topic of which this node has no replica.
            self.topic_metrics.forget(topic.name)
            self.quotas.configure(topic.name, new.configs.of(ConfigResource.TOPIC, topic.name))
        self._follow_configs(delta, new)
        for changed in delta.topics.changed.values():
            for index, image in changed.partitions.items():
                if self.node_id in image.replicas:
                    self._apply(changed.name, changed.id, index, image)
                else:
                    mine = self._partitions.get(changed.name, {}).get(index)
                    if mine is not None:
                        self._remove(mine)
        if delta.cluster.brokers_changed:
            for partition in self:
                with contained(partition, "a change of the brokers could not be applied"):
                    partition.brokers_changed()

    def _apply(self, topic: str, topic_id: bytes, index: int, image: PartitionImage) -> None:
        partitions = self._partitions.setdefault(topic, {})
        partition = partitions.get(index)
        if partition is None:
            partition = partitions[index] = Partition(self.logs.add(topic, index, topic_id), self._shared)
        with contained(partition, "the changed metadata could not be applied"):
            partition.update(image)

    def _led(self, partition: Partition, is_leader: bool) -> None:
        """Report that this node gained or lost a leadership, or leads again in a new epoch."""
        if partition.leader is not None:
            self.purgatory.expect(replica for replica in partition.leader.replicas if replica != self.node_id)
        for callback in self._leadership:
            callback(partition, is_leader, partition.leader_epoch)

    def _follows(self, partition: Partition) -> None:
        """Report that this node follows a partition in a new leader epoch."""
        if self._following is not None and partition.follower is not None:
            self._following(partition, partition.follower)

    def _follow_configs(self, delta: MetadataDelta, new: MetadataImage) -> None:
        for resource_type, name in delta.configs_changed:
            if resource_type == ConfigResource.TOPIC:
                self._topic_configs.pop(name, None)
                self.quotas.configure(name, new.configs.of(ConfigResource.TOPIC, name))
                for partition in self._partitions.get(name, {}).values():
                    partition.configure(self.topic_config(name))

    def reconfigure(self, config: Config) -> None:
        """Apply a changed configuration of the broker at once, also to open logs, because the defaults of each topic's
        configuration come from the broker's."""
        self.config = config
        self._topic_configs.clear()
        for partition in self:
            partition.configure(self.topic_config(partition.topic))
        self.logs.reconfigure(config)

    def topic_config(self, topic: str) -> LogConfig:
        """Return the configuration in effect: the topic's own values, and the broker's for other keys (`config`
        includes the broker's dynamic values)."""
        config = self._topic_configs.get(topic)
        if config is None:
            overrides: Mapping[str, str] = self._image.configs.of(ConfigResource.TOPIC, topic)
            config = self._topic_configs[topic] = LogConfig.from_topic(resolve_topic(self.config, None, overrides))
        return config

    def assigned(self, topic: str, index: int) -> bytes:
        """Return the id of the log directory that the metadata has for this node's replica."""
        image = self._image.topics.partition(topic, index)
        return (image and image.directory(self.node_id)) or DIRECTORY_UNASSIGNED

    def _remove(self, partition: Partition) -> None:
        """Remove a partition that is gone. Its folder gets a name that ends in `-delete`, and is deleted after
        file.delete.delay.ms."""
        del self._partitions[partition.topic][partition.index]
        if not self._partitions[partition.topic]:
            del self._partitions[partition.topic]
            self._topic_configs.pop(partition.topic, None)
            self.topic_metrics.forget(partition.topic)
        delay_ms = self.topic_config(partition.topic).file_delete_delay_ms
        self._topic_configs.pop(partition.topic, None)
        self.logs.remove(partition.handle, delay_ms)
        partition.detach()

    def start(self) -> None:
        """Start the logs when the metadata is complete (see `Logs.start`)."""
        self.logs.start()

    def stop(self) -> None:
        """Stop the logs when the node stops (see `Logs.stop`)."""
        self.logs.stop()

    async def ended(self) -> None:
        """Wait until no thread works on a log. Call `stop` before."""
        await self.logs.ended()

    def delete_records(
        self, topic: str, index: int, offset: int, *, may_be_internal: bool = False
    ) -> tuple[Partition, int, int]:
        """Carry out a DeleteRecords for one partition. Return the partition, the resulting offset, and the low
        watermark. The deletion is complete when the low watermark has reached that offset. `may_be_internal`: True for
        a coordinator, False for a client. Raises KafkaError."""
        if topic in INTERNAL_TOPICS and not may_be_internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: its records are not deleted")
        partition = self.get(topic, index)
        partition.require_leader()
        config = self.topic_config(topic)
        if config.compact and not config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{partition}: records can be deleted only if cleanup.policy has delete"
            )
        return partition, *partition.delete_records_before(offset)


def _new_traffic(config: Config) -> Callable[[], PartitionTraffic] | None:
    """Return a function that makes the counters of one replica, or None if the node does not report its load."""
    if not config.bool("pykbroker.load.reporter.enable"):
        return None
    from pykbroker.replica.replica_traffic import PartitionTraffic  # only loaded by a node that needs it

    return PartitionTraffic
