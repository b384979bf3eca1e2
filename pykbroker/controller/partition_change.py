"""One change of a partition as a record: its leader, its ISR and ELR (KIP-966), its reassignment (KIP-455).

It is pure. It takes the partition and the wanted change, elects a leader, and returns only the differences. Each change
of a partition goes through here, so that leader epochs and the ELR always follow the same rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pykbroker.metadata.image import NO_LEADER, RECOVERING, PartitionImage
from pykbroker.metadata.snapshot import DIRECTORIES_FROM
from pykbroker.metadata.topics_delta import NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE
from pykbroker_wire.stored.metadata import PartitionChangeRecord

#: Before this metadata.version (3.6-IV0) a shrinking ISR needs a new leader epoch (KAFKA-15021).
_NO_EPOCH_BUMP_FROM = 12


class ElectionKind(Enum):
    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


@dataclass(slots=True, kw_only=True)
class PartitionChange:
    """The wanted change of a partition. A field that is None stays as it is. Call `build` only once."""

    partition: PartitionImage
    topic_id: bytes
    index: int
    acceptable: Callable[[int], bool]
    metadata_version: int
    min_isr: int
    default_directory: Callable[[int], bytes]
    elr_enabled: bool = False
    election: ElectionKind = ElectionKind.ONLINE
    isr: list[int] | None = None
    replicas: list[int] | None = None
    removing: list[int] | None = None
    adding: list[int] | None = None
    recovery_state: int | None = None
    unclean_shutdown: tuple[int, ...] = ()
    #: replica -> log directory, for directories that change
    directories: dict[int, bytes] | None = None

    def build(self) -> PartitionChangeRecord | None:
        """Return the record, None if nothing changes."""
        return _Builder(self).build()


class _Builder:
    def __init__(self, change: PartitionChange) -> None:
        before = self.before = change.partition
        self.change = change
        self.isr = list(before.isr) if change.isr is None else change.isr
        self.replicas = list(before.replicas) if change.replicas is None else change.replicas
        self.removing = list(before.removing_replicas) if change.removing is None else change.removing
        self.adding = list(before.adding_replicas) if change.adding is None else change.adding
        self.elr = list(before.elr)
        self.record = PartitionChangeRecord(partition_id=change.index, topic_id=change.topic_id)

    def build(self) -> PartitionChangeRecord | None:
        record, before, change = self.record, self.before, self.change
        self._complete_reassignment()
        self._update_elr()
        self._elect()
        if record.leader == NO_LEADER_CHANGE and not set(before.replicas) <= set(self.replicas):
            # A replica was removed. With a new leader epoch its late fetches are refused.
            record.leader = before.leader
        if record.isr is not None or not change.elr_enabled:
            self.elr = []
        if self.elr != list(before.elr):
            record.eligible_leader_replicas = self.elr
        # Without the ELR, the last replica in sync stays in the ISR, alive or not.
        if record.isr is None and (self.isr or change.elr_enabled) and self.isr != list(before.isr):
            record.isr = self.isr
        if (
            change.metadata_version < _NO_EPOCH_BUMP_FROM
            and record.leader == NO_LEADER_CHANGE
            and record.isr is not None
            and not set(before.isr) <= set(record.isr)
        ):
            record.leader = before.leader
        self._update_last_known_leader()
        self._update_assignment()
        if change.recovery_state is not None and change.recovery_state != before.leader_recovery_state:
            record.leader_recovery_state = change.recovery_state
        return None if _is_nothing(record) else record

    def _complete_reassignment(self) -> None:
        """End a reassignment when the replicas that it adds are in sync.

        The replicas that stay may be out of sync, so that a dead broker can be replaced while another one lags. The
        reassignment waits for them only if the partition gets fewer replicas, because the ISR could become smaller than
        now.
        """
        if not self.removing and not self.adding:
            return
        isr = [replica for replica in self.isr if replica not in self.removing]
        replicas = [replica for replica in self.replicas if replica not in self.removing]
        # The end of a reassignment does not wait for a replica that the first reassignment adds and the second removes.
        # Apache Kafka waits for it, and such a reassignment never ends there.
        awaited = set(self.adding) - set(self.removing)
        if len(self.adding) < len(self.removing):
            awaited |= set(replicas)
        if isr and replicas and awaited <= set(isr):
            self.isr, self.replicas, self.removing, self.adding = isr, replicas, [], []

    def _update_elr(self) -> None:
        if not self.change.elr_enabled:
            return
        if len(self.isr) >= self.change.min_isr:
            self.elr = []
            return
        gone = {*self.isr, *self.change.unclean_shutdown}
        eligible = sorted({*self.elr, *self.before.isr} - gone)
        self.elr = [replica for replica in eligible if self._stays(replica)]

    def _stays(self, replica: int) -> bool:
        """Return True if the broker is a replica before and after this change. Valid after `_complete_reassignment`.

        A broker that this change makes a replica again has no log, even if metadata from before still names it.
        """
        return replica in self.before.replicas and replica in self.replicas

    def _last_known(self) -> list[int]:
        return [replica for replica in self.before.last_known_elr if self._stays(replica)]

    def _may_lead(self, replica: int) -> bool:
        in_sync = replica in self.isr or (not self.isr and replica in self.elr)
        return in_sync and self.change.acceptable(replica)

    def _choose(self) -> tuple[int, bool]:
        """Return the leader, and True if choosing it may lose records."""
        current = self.before.leader
        if self.change.election is ElectionKind.PREFERRED and self._may_lead(self.replicas[0]):
            return self.replicas[0], False
        if current != NO_LEADER and self._may_lead(current):
            return current, False
        for replica in self.replicas:
            if self._may_lead(replica):
                return replica, False
        last = self._last_known()
        if (
            self.change.elr_enabled
            and not self.elr
            and not self.isr
            and len(last) == 1
            and self.change.acceptable(last[0])
        ):
            return last[0], True
        if self.change.election is ElectionKind.UNCLEAN:
            for replica in self.replicas:
                if self.change.acceptable(replica):
                    return replica, True
        return NO_LEADER, False

    def _elect(self) -> None:
        leader, unclean = self._choose()
        if leader == self.before.leader:
            return
        self.record.leader = leader
        if leader in self.elr:
            self.isr = [leader]
            self.elr = [replica for replica in self.elr if replica != leader]
        if unclean:
            # Records that only the other replicas have are lost, so only the new leader is in sync (KIP-704).
            self.record.isr = [leader]
            if self.before.leader_recovery_state != RECOVERING:
                self.record.leader_recovery_state = RECOVERING

    def _update_last_known_leader(self) -> None:
        if not self.change.elr_enabled:
            return
        record, before = self.record, self.before
        last = [] if record.leader >= 0 else self._last_known()
        if record.leader == NO_LEADER and not last and self._stays(before.leader):
            last = [before.leader]
        if last != list(before.last_known_elr):
            record.last_known_elr = last

    def _update_assignment(self) -> None:
        record, before = self.record, self.before
        if self.replicas and self.change.metadata_version >= DIRECTORIES_FROM:
            directories = dict(zip(before.replicas, before.directories, strict=True))
            directories.update(self.change.directories or {})
            wanted = [
                directories[replica] if replica in directories else self.change.default_directory(replica)
                for replica in self.replicas
            ]
            if wanted != list(before.directories):
                record.directories = wanted
        if self.replicas and self.replicas != list(before.replicas):
            record.replicas = self.replicas
        if self.removing != list(before.removing_replicas):
            record.removing_replicas = self.removing
        if self.adding != list(before.adding_replicas):
            record.adding_replicas = self.adding


def _is_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
        and record.isr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )
