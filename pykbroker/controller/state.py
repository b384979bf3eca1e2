"""The state of the active controller: the image with all replayed records, committed or not, and its soft state.

Operations (the other modules of this folder) are functions of this state: `(state, request, now_ms) -> Result`. They
only read it; `replay` alone changes the image. The caller passes in time and randomness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from random import Random
from typing import NamedTuple, TypeAlias

from pykbroker.config.dynamic import DynamicConfigs, apply_valid
from pykbroker.config.key_table import TOPIC_KEYS
from pykbroker.config.typed_config import Config
from pykbroker.controller.heartbeats import BrokerSession, BrokerSessions, Heartbeats
from pykbroker.controller.name_collisions import NameCollisions
from pykbroker.controller.placement import UsableBroker
from pykbroker.liveness import EARLY_FENCING
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    EMPTY_IMAGE,
    BrokerImage,
    ConfigResource,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from pykbroker.metadata.replay import Change, MetadataReplay
from pykbroker.metadata.restored import Restored
from pykbroker.plugins.topic_policies import Policies
from pykbroker.security.acl import Acl
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

#: A batch of the metadata log: its records, base offset and epoch.
LoggedBatch: TypeAlias = tuple[Sequence[TopLevel], int, int]


class Checkpoint(NamedTuple):
    """The replicated state at one offset. `unfinished` has the batches (records, base offset, epoch) of a metadata
    transaction that has not ended by then, from its BeginTransaction on. `image` does not have its changes."""

    image: MetadataImage
    unfinished: tuple[LoggedBatch, ...] = ()


class HeldElections:
    """Unclean elections that wait for brokers that were fenced early. An election waits at most until the broker's
    session would have ended without the early fence.

    If only an unclean election can give a partition a leader, the election waits as long as it would without the early
    fence, because the broker may come back with the records. The wait ends once the broker serves again. Then the
    broker itself leads, as an in-sync replica or as the only last known leader (KIP-966). An administrator's own
    ElectLeaders does not wait. This is soft state of the active controller. A new controller cannot find out which
    fenced brokers were fenced early, so it holds the elections of all of them for a whole session.

    `now_ms`: the loop's clock.
    """

    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}

    def hold(self, broker_id: int, until_ms: int) -> None:
        """Delay the unclean elections of this broker's partitions until `until_ms`."""
        self._until_ms[broker_id] = until_ms

    def release(self, broker_id: int) -> None:
        self._until_ms.pop(broker_id, None)

    def clear(self) -> None:
        self._until_ms.clear()

    def holds(self, partition: PartitionImage) -> bool:
        """Return True if elections wait for a broker that may have all committed records of the partition."""
        return bool(self._until_ms) and any(
            broker_id in self._until_ms for broker_id in (*partition.isr, *partition.elr, *partition.last_known_elr)
        )

    def over(self, now_ms: int) -> list[int]:
        """Return the brokers whose wait is over."""
        return [broker_id for broker_id, until_ms in self._until_ms.items() if until_ms < now_ms]

    def next_deadline_ms(self) -> int | None:
        """Return the time at which the next wait is over, None if there is no wait."""
        return min(self._until_ms.values()) + 1 if self._until_ms else None


class ControllerState:
    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        config: Config,
        random: Random,
        policies: Policies | None = None,
        restored: Restored | None = None,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.config = config
        self.random = random
        self.policies = policies or Policies()
        self.image: MetadataImage = EMPTY_IMAGE
        self.heartbeats = Heartbeats()
        self.sessions = BrokerSessions(config.int("broker.session.timeout.ms"))
        #: elections that wait because of an early fence
        self.held = HeldElections()
        #: the offset of each broker's newest registration record: a broker is caught up once it has read that record
        self.registration_offsets: dict[int, int] = {}
        #: the limits of a cluster that was put back to an earlier state
        self.restored = restored
        #: topics that would share metric names
        self.collisions = NameCollisions()
        # Made when the first ACL is created.
        self._existing_acls: set[Acl] | None = None
        # The image without the changes of an open metadata transaction, which `image` includes.
        self._checkpoint = Checkpoint(EMPTY_IMAGE)
        self._replay = MetadataReplay()
        self._effective: tuple[DynamicConfigs, Config] = (DynamicConfigs(), config)

    @property
    def transaction_offset(self) -> int:
        """The offset of an open metadata transaction's beginning, otherwise -1."""
        return self._replay.begun_at

    @property
    def first_leader_epoch(self) -> int:
        """The leader epoch of a new partition. Clients of a cluster that was put back may have seen another topic of
        its name."""
        return 0 if self.restored is None else self.restored.leader_epoch + 1

    def is_restored(self, broker: BrokerImage) -> bool:
        """Return True if the broker registered before the state that was put back, so that its process has ended. Its
        directories are as they were in that state."""
        return self.restored is not None and broker.epoch < self.restored.end_offset

    # Replaying.

    def replay(self, records: Sequence[TopLevel], base_offset: int, epoch: int) -> None:
        """Replay a batch that was just appended or was read from the log."""

        def visit(delta: MetadataDelta, record: TopLevel, offset: int) -> None:
            if type(record) in _ABOUT_BROKERS:
                self._replay_broker(delta, record, offset)

        replay = self._replay
        was_open, aborted = replay.unfinished is not None, replay.aborted
        for change in replay.batch(self._checkpoint.image, records, base_offset, epoch, visit=visit):
            self._install(change)
        if replay.unfinished is not None:
            self._show(replay.unfinished.apply(base_offset + len(records) - 1, epoch))
            if replay.begun_at >= base_offset:
                records = records[replay.begun_at - base_offset :]
                unfinished: tuple[LoggedBatch, ...] = ((records, replay.begun_at, epoch),)
            else:
                unfinished = (*self._checkpoint.unfinished, (records, base_offset, epoch))
            self._checkpoint = self._checkpoint._replace(unfinished=unfinished)
        else:
            self._checkpoint = Checkpoint(self._checkpoint.image)
            if was_open or replay.aborted != aborted:
                self._show(self._checkpoint.image)

    def checkpoint(self) -> Checkpoint:
        """Return a checkpoint to which `reset` can go back."""
        return self._checkpoint

    def reset(self, checkpoint: Checkpoint) -> None:
        """Start over from a snapshot, or from the committed state."""
        self._replay.restart()
        self._checkpoint = Checkpoint(checkpoint.image)
        self._show(checkpoint.image)
        for records, base_offset, epoch in checkpoint.unfinished:
            self.replay(records, base_offset, epoch)

    def _show(self, image: MetadataImage) -> None:
        """Set `image` to an image that does not follow from the last image by one delta."""
        self.image = image
        self._existing_acls = None
        self.collisions.clear()
        for name in image.topics.by_name:
            self.collisions.add(name)
        self.registration_offsets = {
            broker_id: self.registration_offsets.get(broker_id, image.offset) for broker_id in image.brokers
        }

    def restart_sessions(self, now_ms: int, own_incarnation: bytes | None = None) -> None:
        """Give a whole session to every broker that serves, before this new controller may fence it. A fenced broker
        gets a session with its next heartbeat. Unclean elections that may need a fenced broker are held
        (`HeldElections`).

        An earlier incarnation of the broker in this very process (`own_incarnation`) gets none, because it cannot be
        alive. So a combined node that was killed need not wait for its own former session (Apache Kafka waits 9 s
        here). The same holds for the brokers of a state that was put back.
        """
        self.stop_sessions()
        for broker in self.image.brokers.values():
            if own_incarnation is not None and broker.id == self.node_id and broker.incarnation_id != own_incarnation:
                continue
            if self.is_restored(broker):
                continue
            self.heartbeats.register(broker.id, broker.fenced)
            if not broker.fenced:
                self.sessions.touch(BrokerSession(broker.id, broker.epoch), now_ms)
            elif self.config.bool(EARLY_FENCING):
                self.held.hold(broker.id, now_ms + self.sessions.timeout_ms)

    def stop_sessions(self) -> None:
        """Clear the sessions, because another controller watches the brokers now."""
        self.heartbeats.clear()
        self.sessions.clear()
        self.held.clear()

    def _install(self, change: Change) -> None:
        delta = change.delta
        for topic in delta.topics.deleted.values():
            self.collisions.remove(topic.name)
        for topic_delta in delta.topics.changed.values():
            if topic_delta.created:
                self.collisions.add(topic_delta.name)
        if self._existing_acls is not None:
            for acl_id, acl in delta.acls_changed.items():
                if (before := delta.image.acls.get(acl_id)) is not None:
                    self._existing_acls.discard(before)
                if acl is not None:
                    self._existing_acls.add(acl)
        self.image = change.image
        self._checkpoint = self._checkpoint._replace(image=change.image)

    def _replay_broker(self, delta: MetadataDelta, record: TopLevel, offset: int) -> None:
        if isinstance(record, UnregisterBrokerRecord):
            self.registration_offsets.pop(record.broker_id, None)
            self.heartbeats.remove(record.broker_id)
            return
        if isinstance(record, RegisterBrokerRecord):
            broker_id = record.broker_id
            self.registration_offsets[broker_id] = offset
            self.heartbeats.remove(broker_id)
        elif isinstance(record, BrokerRegistrationChangeRecord):
            broker_id = record.broker_id
        else:
            assert isinstance(record, (FenceBrokerRecord, UnfenceBrokerRecord))
            broker_id = record.id
        broker = delta.cluster.broker(broker_id)
        if broker is not None:
            self.heartbeats.register(broker_id, broker.fenced)

    # Questions.

    @property
    def existing_acls(self) -> Set[Acl]:
        """The ACLs without their ids."""
        if self._existing_acls is None:
            self._existing_acls = set(self.image.acls.values())
        return self._existing_acls

    @property
    def metadata_version(self) -> int:
        return self.image.features.metadata_version

    def is_active(self, broker_id: int) -> bool:
        return self.image.broker_is_active(broker_id)

    def check_broker_epoch(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
            )
        return broker

    def usable_brokers(self) -> Iterator[UsableBroker]:
        """Yield the brokers that may get replicas of new topics. A broker in controlled shutdown may get them only if
        it is fenced, because it is then expected to come back."""
        for broker in self.image.brokers.values():
            heartbeat = self.heartbeats.get(broker.id)
            if broker.is_cordoned:
                continue
            leaves = broker.in_controlled_shutdown or (heartbeat is not None and heartbeat.shutting_down)
            if broker.fenced or not leaves:
                yield UsableBroker(broker.id, broker.rack, broker.fenced)

    def default_directory(self, broker_id: int) -> bytes:
        """Return the directory of a new replica on the broker. If the broker has several directories, the broker will
        choose one of them (KIP-858)."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return DIRECTORY_UNASSIGNED
        directories = [d for d in broker.directories if d not in broker.cordoned_directories] or broker.directories
        if not broker.directories:
            return DIRECTORY_MIGRATING
        return directories[0] if len(directories) == 1 else DIRECTORY_UNASSIGNED

    def partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        for topic in self.image.topics.by_id.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def has_leaderships(self, broker_id: int) -> bool:
        return any(partition.leader == broker_id for _, _, partition in self.partitions())

    # Configuration.

    def effective_config(self) -> Config:
        """Return the node's own configuration with its dynamic layers from the metadata log."""
        configs = self.image.configs
        broker = configs.of(ConfigResource.BROKER, str(self.node_id))
        cluster = configs.of(ConfigResource.BROKER, "")
        known, effective = self._effective
        if known.broker is not broker or known.cluster is not cluster:
            dynamic = DynamicConfigs(broker=broker, cluster=cluster)
            # The log may have a value that a newer rule refuses. That must not stop the controller.
            effective = apply_valid(self.config, dynamic).config
            self._effective = (dynamic, effective)
        return effective

    def unclean_election_enabled(self, topic: str) -> bool:
        key = "unclean.leader.election.enable"
        text = self.image.configs.of(ConfigResource.TOPIC, topic).get(key)
        if text is not None:
            return TOPIC_KEYS[key].parse(text) is True
        return self.effective_config().bool(key)

    def min_isr(self, topic: str, replication_factor: int) -> int:
        key = "min.insync.replicas"
        text = self.image.configs.of(ConfigResource.TOPIC, topic).get(key)
        return min(replication_factor, int(text) if text is not None else self.effective_config().int(key))


_ABOUT_BROKERS = frozenset(
    {
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        BrokerRegistrationChangeRecord,
    }
)
