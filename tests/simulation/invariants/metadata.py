"""The invariants of the cluster's metadata. Every node's image is a prefix of one history (R14). One controller acts
per epoch (C1), after it has seen everything that was committed up to its epoch (C2), and it fences early only a broker
that refuses connections or is silent (C3). P2 and P3 hold for each partition in every image.

The history is replayed here once, from the records that the quorum has committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from pykbroker.liveness.broker_deaths import GRACE_MS
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import (
    EMPTY_IMAGE,
    NO_LEADER,
    RECOVERING,
    ConfigResource,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from pykbroker.metadata.records import decode_record
from pykbroker.metadata.replay import MetadataReplay
from pykbroker_raft import batches
from pykbroker_wire.stored.metadata import PartitionChangeRecord
from tests.simulation.invariants.broken import InvariantBroken, require
from tests.simulation.invariants.shadow import StoredBatch

if TYPE_CHECKING:
    from pykbroker.controller.active import ActiveController
    from pykbroker_wire.primitives import TopLevel

#: topic id and index
Key = tuple[bytes, int]

_PARTS = (
    "features",
    "brokers",
    "controllers",
    "topics",
    "configs",
    "client_quotas",
    "producer_ids_next",
    "acls",
    "scram",
    "delegation_tokens",
)


class MetadataInvariants:
    """The metadata invariants of the whole cluster."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        #: images by the offset of their last record
        self.history: dict[int, MetadataImage] = {-1: EMPTY_IMAGE}
        #: the offset and the leader epoch of every election that may have lost records
        self.unclean: dict[Key, list[int]] = {}
        #: epoch -> the node whose controller is active
        self.active: dict[int, int] = {}
        #: the last offset with a record, by the epoch of its batch
        self._last_offsets = {-1: -1}
        self._replay = MetadataReplay()
        # By node: the last image that was compared, with that of the history.
        self._agreed: dict[int, tuple[MetadataImage, MetadataImage]] = {}

    # -- the history --------------------------------------------------------------------------------------------------

    def committed(self, added: list[StoredBatch]) -> set[Key]:
        """Replay batches that the quorum has committed. Return the partitions that they change."""
        changed: set[Key] = set()
        for stored in added:
            for batch in batches.intact(stored.data):
                values = batches.values(stored.data, batch)
                if values:
                    records = [decode_record(value) for value in values]
                    self._last_offsets[batch.epoch] = batch.next_offset - 1
                    changed |= self._take(records, batch)
        return changed

    def _take(self, records: list[TopLevel], batch: batches.Batch) -> set[Key]:
        changes = Counter(
            (record.topic_id, record.partition_id) for record in records if isinstance(record, PartitionChangeRecord)
        )
        changed: set[Key] = set()
        before = self.image
        for change in self._replay.batch(self.image, records, batch.base_offset, batch.epoch, batch.timestamp_ms):
            self.image = change.image
            self.history[change.image.offset] = change.image
            changed |= _partitions_changed(change.delta)
        if self._replay.begun_at < 0:
            for key in sorted(changed):
                self._judge(key, before, self.image, changes[key])
        if self.image.brokers is not before.brokers:
            self._judge_brokers()
        return changed

    def partition(self, key: Key, image: MetadataImage | None = None) -> PartitionImage | None:
        topic = (image or self.image).topics.by_id.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def _judge(self, key: Key, before: MetadataImage, after: MetadataImage, changes: int) -> None:
        old, new = self.partition(key, before), self.partition(key, after)
        if new is None:
            return
        name = f"{after.topics.by_id[key[0]].name}-{key[1]}"
        isr, elr = set(new.isr), set(new.elr)
        require(isr <= set(new.replicas), "P3", f"{name}: the ISR {new.isr} is not among the replicas {new.replicas}")
        require(
            new.leader == NO_LEADER or new.leader in isr,
            "P3",
            f"{name}: the leader {new.leader} is not in the ISR {new.isr}",
        )
        require(not isr & elr, "P3", f"{name}: ISR {new.isr} and ELR {new.elr} share a replica")
        require(elr <= set(new.replicas), "P3", f"{name}: the ELR {new.elr} is not among the replicas {new.replicas}")
        require(
            set(new.last_known_elr) <= set(new.replicas),
            "P3",
            f"{name}: the last known leader {new.last_known_elr} is not among the replicas {new.replicas}",
        )
        if old is None:
            return
        require(
            new.partition_epoch == old.partition_epoch + changes or not changes,
            "P3",
            f"{name}: {changes} changes took the partition epoch from {old.partition_epoch} to {new.partition_epoch}",
        )
        require(
            new.leader_epoch >= old.leader_epoch,
            "P2",
            f"{name}: the leader epoch went from {old.leader_epoch} back to {new.leader_epoch}",
        )
        require(
            new.leader == old.leader or new.leader_epoch > old.leader_epoch,
            "P2",
            f"{name}: leader epoch {new.leader_epoch} has the leaders {old.leader} and {new.leader}",
        )
        if new.leader != old.leader and new.leader != NO_LEADER:
            is_clean = new.leader in old.isr or new.leader in old.elr or _has_joined(old, new)
            if not is_clean or (new.leader_recovery_state == RECOVERING != old.leader_recovery_state):
                self.unclean.setdefault(key, []).append(new.leader_epoch)
                require(
                    new.leader_recovery_state == RECOVERING,
                    "P3",
                    f"{name}: {new.leader} leads, which was neither in the ISR {old.isr} nor in the ELR {old.elr}, "
                    "and need not recover",
                )
                require(
                    is_clean or new.leader in old.last_known_elr or _may_be_unclean(after, after.topics.by_id[key[0]]),
                    "P3",
                    f"{name}: {new.leader} leads, which was neither in the ISR {old.isr} nor in the ELR {old.elr}, nor "
                    f"leads it as the last that is known, {old.last_known_elr}; no unclean election is allowed",
                )

    def _judge_brokers(self) -> None:
        """Check that no fenced or stopping broker is in an ISR, except as the last one."""
        brokers = self.image.brokers
        out = {number for number, broker in brokers.items() if broker.fenced}
        if not out:
            return
        for topic in self.image.topics.by_id.values():
            for index, partition in topic.partitions.items():
                if out.intersection(partition.isr) and len(partition.isr) > 1:
                    raise InvariantBroken(
                        "P3", f"{topic.name}-{index}: fenced are {sorted(out)}, and the ISR is {partition.isr}"
                    )

    # -- images and controllers of nodes ------------------------------------------------------------------------------

    def shows(self, number: int, image: MetadataImage) -> None:
        """Check another image of a node."""
        expected = self.history.get(image.offset)
        if expected is None:
            raise InvariantBroken(
                "R14",
                f"node {number} shows the metadata up to offset {image.offset}, at which no change that is committed "
                f"ends; committed is everything up to {max(self._last_offsets.values())}",
            )
        image_before, expected_before = self._agreed.get(number, (EMPTY_IMAGE, EMPTY_IMAGE))
        require(
            image.epoch == expected.epoch,
            "R14",
            f"node {number}: the image at {image.offset} is of epoch {image.epoch}, not of {expected.epoch}",
        )
        for part in _PARTS:
            here, there = getattr(image, part), getattr(expected, part)
            if here is getattr(image_before, part) and there is getattr(expected_before, part):
                continue
            if here != there:
                raise InvariantBroken(
                    "R14",
                    f"node {number}: {part} at offset {image.offset} are {here}; the history has {there}",
                )
        self._agreed[number] = image, expected

    def ended(self, number: int) -> None:
        self._agreed.pop(number, None)

    def fences_early(self, number: int, broker_id: int, refused: Collection[bool], silent_ms: int = 0) -> None:
        """Check that a node's controller may fence a broker before its session is over. `refused` is a flag for each
        endpoint of the broker. It is empty if the broker is not back; then its last heartbeat is `silent_ms` old."""
        require(
            all(refused) if refused else silent_ms >= GRACE_MS,
            "C3",
            f"the controller of node {number} fences broker {broker_id} early, which has not refused its connection",
        )

    def acts(self, number: int, controller: ActiveController, leaders: dict[int, int]) -> None:
        """Check that a node's controller may become active."""
        epoch = controller.epoch
        known = self.active.setdefault(epoch, number)
        require(known == number, "C1", f"in epoch {epoch} the controllers of the nodes {known} and {number} act")
        require(
            leaders.get(epoch) == number,
            "C1",
            f"the controller of node {number} acts in epoch {epoch}, which {leaders.get(epoch)} leads",
        )
        # A leader that was paused may see the commit of its epoch's record before it learns of its successor, as in
        # Apache Kafka. Its log has no records of later epochs, and its own new records are never committed.
        last_offset = max(offset for of_epoch, offset in self._last_offsets.items() if of_epoch <= epoch)
        require(
            controller.committed_offset >= last_offset,
            "C2",
            f"the controller of node {number} acts in epoch {epoch} and has seen what is committed up to "
            f"{controller.committed_offset}, not to {last_offset}",
        )


def _has_joined(old: PartitionImage, new: PartitionImage) -> bool:
    """The new leader joined the ISR at the old leader's request and leads from the same change on: the old leader moved
    away with it, or is being removed. (An unclean election keeps nothing of the earlier ISR.)"""
    if old.leader == NO_LEADER:
        return False
    has_moved = old.is_reassigning and not new.is_reassigning and old.leader in old.removing_replicas
    return has_moved or old.leader in new.isr


def _may_be_unclean(image: MetadataImage, topic: TopicImage) -> bool:
    known = image.configs.of(ConfigResource.TOPIC, topic.name).get("unclean.leader.election.enable")
    return known == "true"


def _partitions_changed(delta: MetadataDelta) -> set[Key]:
    return {(topic_id, index) for topic_id, topic in delta.topics.changed.items() for index in topic.partitions}
