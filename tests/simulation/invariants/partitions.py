"""The invariants of replicated partitions after every event: P2, P4 to P7, P9 to P13 and T9.

A replica is checked by its `Partition` and by the files of its log. A record is committed once any leader's high
watermark has passed it. When a leader moves its high watermark, every member of its ISR must have the records below it,
and the ISR must have at least min.insync.replicas members (KIP-966). From then on every later leader must have them.

Allowed losses: after an unclean election the records that the new leader lacks. Without the ELR, also records that a
power loss took from a leader, if the controller could not know of the loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykbroker.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from tests.simulation.invariants.broken import InvariantBroken, require
from tests.simulation.invariants.ledger import Ledger
from tests.simulation.invariants.metadata import Key, MetadataInvariants
from tests.simulation.invariants.shadow import Changes, Shadow

if TYPE_CHECKING:
    from pykbroker.replica.follower import PartitionFollower
    from pykbroker.replica.leader import PartitionLeader
    from pykbroker.replica.partition import Partition
    from pykbroker_log.partition_log import PartitionLog


class Replica:
    """One replica of a node, as at the last check. It stays when the node goes down."""

    __slots__ = (
        "agrees_to",
        "end",
        "follower",
        "handle",
        "high_watermark",
        "is_up",
        "isr",
        "key",
        "leader",
        "leader_epoch",
        "log",
        "may_lack",
        "node",
        "partition",
        "shadow",
        "start",
        "was_removed",
    )

    def __init__(self, node: int, key: Key) -> None:
        self.node = node
        self.key = key
        self.shadow = Shadow()
        #: the log was compared with the committed records up to this offset
        self.agrees_to = 0
        #: it has lost power, or its disk, and may lack committed records
        self.may_lack = False
        #: its node got metadata in which it is no replica, and has deleted it
        self.was_removed = False
        #: the newest leader epoch that it accepted in this life
        self.leader_epoch = -1
        self.is_up = False

    def begin(self, partition: Partition) -> None:
        """Begin a life."""
        if self.was_removed:
            # It begins again. Until now its leader may have counted on its records.
            self.shadow = Shadow()
            self.agrees_to = 0
            self.may_lack = self.was_removed = False
        self.is_up = True
        self.partition = partition
        self.handle = partition.handle
        self.log: PartitionLog | None = None
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self.isr: tuple[int, ...] | None = None
        self.high_watermark = self.end = self.start = self.leader_epoch = -1

    @property
    def compared_from(self) -> int:
        """The offset from which the log is compared with what is committed. The records before its start are deleted,
        and a follower may have had others there, if its leader has deleted them before they were compared."""
        log = self.handle.log
        return self.agrees_to if log is None else max(self.agrees_to, log.log_start_offset)

    def is_as_before(self) -> bool:
        """Return True if nothing has changed since the last check. Called after every event."""
        partition, log = self.partition, self.handle.log
        leader = partition.leader
        return (
            log is self.log
            and leader is self.leader
            and partition.follower is self.follower
            and (leader is None or leader.isr.maximal is self.isr)
            and (
                log is None
                or (
                    log.high_watermark == self.high_watermark
                    and log.log_end_offset == self.end
                    and log.log_start_offset == self.start
                )
            )
        )

    def __str__(self) -> str:
        return f"{self.partition} on node {self.node}"


class Committed(NamedTuple):
    """A leader has moved its high watermark; the members in sync at that moment."""

    replica: Replica
    leader: PartitionLeader
    high_watermark: int
    isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]


class PartitionInvariants:
    """The invariants of all partitions of the cluster."""

    def __init__(self, metadata: MetadataInvariants) -> None:
        self._metadata = metadata
        self.ledgers: dict[Key, Ledger] = {}
        #: by partition, by node
        self.replicas: dict[Key, dict[int, Replica]] = {}
        # (partition, leader epoch) -> the node that leads in it
        self._leaders: dict[tuple[Key, int], int] = {}
        #: the commits of this event
        self.commits_noted: list[Committed] = []

    def replica(self, node: int, partition: Partition) -> Replica:
        """Return the replica of a node for a life that begins."""
        key = partition.topic_id, partition.index
        if key not in self.ledgers:
            self.ledgers[key] = Ledger(str(partition), "P4")
            self.replicas[key] = {}
        replica = self.replicas[key].get(node)
        if replica is None:
            replica = self.replicas[key][node] = Replica(node, key)
        replica.begin(partition)
        return replica

    def not_held(self, node: int, image: MetadataImage) -> None:
        """Record that a node got this metadata: it deletes the replicas that the metadata does not have there."""
        for key, replicas in self.replicas.items():
            replica = replicas.get(node)
            if replica is not None and not replica.is_up:
                known = self._metadata.partition(key, image)
                if known is not None and node not in known.replicas:
                    replica.was_removed = True

    def ledger_of(self, topic: str, index: int) -> Ledger | None:
        """Return the ledger of the topic that has the name now."""
        found = self._metadata.image.topics.by_name.get(topic)
        return None if found is None else self.ledgers.get((found.id, index))

    # -- after an event -----------------------------------------------------------------------------------------------

    def commits(self, node: int, partition: Partition) -> None:
        """Record, in the middle of an event, that a leader has moved its high watermark. Later in the event it may lose
        members of its ISR, or its role."""
        leader, log = partition.leader, partition.handle.log
        replica = self.replicas.get((partition.topic_id, partition.index), {}).get(node)
        if log is None or leader is None or replica is None or not replica.is_up or replica.partition is not partition:
            return
        isr = leader.isr
        self.commits_noted.append(Committed(replica, leader, log.high_watermark, isr.committed, isr.maximal))

    def look(self, changed: list[Replica]) -> None:
        """Check the replicas that have changed: first the contents of their logs, then their offsets."""
        for replica in changed:
            self._follow_log(replica)
        noted, self.commits_noted = self.commits_noted, []
        for committed in noted:
            self._follow_log(committed.replica)
            self._extend(committed)
        for replica in changed:
            self._judge(replica)

    def _follow_log(self, replica: Replica) -> None:
        log = replica.handle.log
        if log is None or (log is replica.log and log.log_end_offset == replica.end):
            return
        ledger = self.ledgers[replica.key]
        ledger.is_compacted = log.config.compact
        changes = replica.shadow.follow(log)
        if log is not replica.log:
            replica.agrees_to = 0
        self._cut(replica, ledger, changes)
        self._added(replica, ledger, changes)

    def _cut(self, replica: Replica, ledger: Ledger, changes: Changes) -> None:
        if not changes.gone:
            return
        first = changes.gone[0].base
        replica.agrees_to = min(replica.agrees_to, first)
        if replica.may_lack or self._is_given_up(replica, first):
            return
        if replica.high_watermark > first:
            raise InvariantBroken(
                "P9",
                f"{replica} was cut at {first}, below its high watermark {replica.high_watermark}; it followed in "
                f"epoch {replica.leader_epoch}",
            )
        for batch in changes.gone:
            index = ledger.index_of(batch.base)
            if index < len(ledger.batches) and ledger.batches[index].is_same(batch):
                raise InvariantBroken("P9", f"{replica} was cut at {first}, and committed is {batch}")

    def _added(self, replica: Replica, ledger: Ledger, changes: Changes) -> None:
        shadow, epoch = replica.shadow, replica.partition.leader_epoch
        if not changes.added:
            return
        first = shadow.index_of(changes.added[0].base)
        before = shadow.batches[first - 1] if first else None
        for batch in changes.added:
            if before is not None:
                if batch.base < before.next or (batch.base > before.next and not ledger.is_compacted):
                    raise InvariantBroken("P12", f"{replica}: {batch} follows {before}")
                require(batch.epoch >= before.epoch, "P2", f"{replica}: {batch} follows {before}")
            if batch.epoch > epoch:
                raise InvariantBroken("P2", f"{replica}: {batch} stands in its log, and it knows epoch {epoch}")
            ledger.note(replica.node, batch)
            before = batch

    def _judge(self, replica: Replica) -> None:
        partition, log = replica.partition, replica.handle.log
        leader = partition.leader
        is_new_role = leader is not replica.leader or partition.follower is not replica.follower
        if partition.leader_epoch < replica.leader_epoch:
            raise InvariantBroken(
                "P2", f"{replica}: leader epoch {replica.leader_epoch} went back to {partition.leader_epoch}"
            )
        if leader is not None and is_new_role:
            known = self._leaders.setdefault((replica.key, leader.leader_epoch), replica.node)
            require(
                known == replica.node,
                "P2",
                f"{partition}: the nodes {known} and {replica.node} lead in epoch {leader.leader_epoch}",
            )
        if log is not None:
            self._bounds(replica, log)
            if leader is not None and (is_new_role or log is not replica.log):
                self._takes_over(replica, leader.leader_epoch)
            self._high_watermark(replica, log, leader, is_new_role=is_new_role)
        if leader is not None and not is_new_role and leader.isr.maximal is not replica.isr:
            self._joined(replica, leader)
        self._take(replica)

    def _take(self, replica: Replica) -> None:
        partition, log = replica.partition, replica.handle.log
        replica.leader, replica.follower = partition.leader, partition.follower
        replica.isr = None if partition.leader is None else partition.leader.isr.maximal
        replica.leader_epoch = partition.leader_epoch
        replica.log = log
        if log is not None:
            replica.high_watermark, replica.end = log.high_watermark, log.log_end_offset
            replica.start = log.log_start_offset

    def _bounds(self, replica: Replica, log: PartitionLog) -> None:
        start, stable = log.log_start_offset, log.last_stable_offset
        high_watermark, end = log.high_watermark, log.log_end_offset
        if not start <= stable <= high_watermark <= end:
            raise InvariantBroken(
                "P11",
                f"{replica}: log start {start}, last stable offset {stable}, high watermark {high_watermark}, log end "
                f"{end}",
            )
        shadow = replica.shadow
        if shadow.batches and not ledger_has_gaps(self.ledgers[replica.key]) and shadow.batches[-1].next != end:
            raise InvariantBroken("P12", f"{replica}: its log ends at {end}, its files with {shadow.batches[-1]}")
        if log is replica.log and start < replica.start and end >= replica.end:
            raise InvariantBroken("P11", f"{replica}: the log start went from {replica.start} back to {start}")

    # -- leaders ------------------------------------------------------------------------------------------------------

    def _takes_over(self, replica: Replica, epoch: int) -> None:
        """Check that a new leader has all committed records, and knows their producers, when it can use its log."""
        ledger = self.ledgers[replica.key]
        if self._is_older(replica.key, epoch):
            return
        lacks = ledger.difference(replica.shadow, replica.compared_from, ledger.end)
        if lacks is None:
            replica.agrees_to = ledger.end
            replica.may_lack = False
        elif self._may_lose(replica, epoch):
            ledger.give_up(lacks[0].base, epoch)
            for other in self.replicas[replica.key].values():
                other.agrees_to = min(other.agrees_to, lacks[0].base)
            replica.may_lack = False
        else:
            raise InvariantBroken(
                "P6",
                f"{replica} leads epoch {epoch} with a log that ends at {replica.shadow.end}, and lacks what is "
                f"committed: {lacks[0]}; there it has {lacks[1]}; {self._about(replica.key)}",
            )
        self._knows_producers(replica)

    def _is_older(self, key: Key, epoch: int) -> bool:
        """Return True if the metadata has another leader epoch by now."""
        known = self._metadata.partition(key)
        return known is None or known.leader_epoch > epoch

    def _may_lose(self, replica: Replica, epoch: int) -> bool:
        if any(unclean <= epoch for unclean in self._metadata.unclean.get(replica.key, ())[-1:]):
            newest = self._metadata.unclean[replica.key][-1]
            # Every leader since the unclean election, until the records that it lacks are given up.
            if all(newest > given for _, _, given in self.ledgers[replica.key].lost):
                return True
        return replica.may_lack and not self._metadata.image.features.elr_enabled

    def _is_given_up(self, replica: Replica, offset: int) -> bool:
        """Return True if another history has begun at or before the offset."""
        unclean = self._metadata.unclean.get(replica.key)
        if unclean and unclean[-1] >= replica.leader_epoch:
            return True
        return any(first <= offset < end for first, end, _ in self.ledgers[replica.key].lost)

    def _knows_producers(self, replica: Replica) -> None:
        """T9: the last batch of each producer, according to the log's state, is the one in the files."""
        log = replica.log or replica.handle.log
        if log is None or self.ledgers[replica.key].is_compacted:
            return
        last: dict[int, tuple[int, int, int]] = {}
        for batch in replica.shadow.batches:
            if batch.producer_id >= 0 and batch.base >= log.log_start_offset:
                if batch.is_control:
                    last.pop(batch.producer_id, None)
                elif batch.base_sequence >= 0:
                    last[batch.producer_id] = batch.producer_epoch, batch.last_sequence, batch.next - 1
        entries = log.producers.entries
        for producer, wrote in last.items():
            entry = entries.get(producer)
            knows = None if entry is None else (entry.epoch, entry.last_sequence, entry.last_offset)
            if knows != wrote:
                raise InvariantBroken(
                    "T9",
                    f"{replica} leads: producer {producer} wrote (epoch, sequence, offset) {wrote} last, and the "
                    f"leader knows of {knows}",
                )

    # -- commits ------------------------------------------------------------------------------------------------------

    def _high_watermark(
        self, replica: Replica, log: PartitionLog, leader: PartitionLeader | None, *, is_new_role: bool
    ) -> None:
        high_watermark, before = log.high_watermark, replica.high_watermark
        if high_watermark == before and log is replica.log:
            return
        if high_watermark < before and log is replica.log and not is_new_role and leader is not None:
            raise InvariantBroken(
                "P7",
                f"{replica}: the high watermark went from {before} back to {high_watermark} in epoch "
                f"{replica.leader_epoch}",
            )
        ledger = self.ledgers[replica.key]
        epoch = replica.partition.leader_epoch
        if leader is not None:
            isr = leader.isr
            self._extend(Committed(replica, leader, high_watermark, isr.committed, isr.maximal))
        if self._is_superseded(replica.key, epoch) or replica.may_lack:
            return
        if high_watermark > ledger.end and replica.shadow.index_of(ledger.end) < replica.shadow.index_of(
            high_watermark
        ):
            raise InvariantBroken(
                "P7",
                f"{replica} follows in epoch {epoch} and takes everything before {high_watermark} for committed; no "
                f"leader does: {ledger.end}",
            )
        differs = ledger.difference(replica.shadow, replica.compared_from, high_watermark)
        if differs is not None:
            raise InvariantBroken(
                "P4",
                f"{replica} takes {differs[1]} for committed, in epoch {epoch}; committed is {differs[0]}; "
                f"{self._about(replica.key)}",
            )
        replica.agrees_to = max(replica.agrees_to, min(high_watermark, ledger.end))

    def _extend(self, committed: Committed) -> None:
        """Record what a leader has committed."""
        replica, high_watermark = committed.replica, committed.high_watermark
        ledger = self.ledgers[replica.key]
        if high_watermark > ledger.end and not self._is_superseded(replica.key, committed.leader.leader_epoch):
            self._isr_is_large_enough(committed)
            ledger.extend(replica.shadow, high_watermark)
            self._held_by_isr(committed)

    def _is_superseded(self, key: Key, epoch: int) -> bool:
        """Return True if an unclean election has begun another history since."""
        unclean = self._metadata.unclean.get(key)
        return bool(unclean) and unclean[-1] > epoch  # type: ignore[index]

    def _isr_is_large_enough(self, committed: Committed) -> None:
        replica, leader, isr = committed.replica, committed.leader, committed.isr
        log = replica.handle.log or replica.log
        least = 1 if log is None else min(log.config.min_insync_replicas, len(leader.replicas))
        if len(isr) < least and not leader.is_alone:
            raise InvariantBroken(
                "P10",
                f"{replica} commits everything before {committed.high_watermark} in epoch {leader.leader_epoch} with "
                f"the ISR {isr}; min.insync.replicas is {least}",
            )

    def _held_by_isr(self, committed: Committed) -> None:
        """Check that every member of the ISR has what is committed now."""
        replica, leader = committed.replica, committed.leader
        ledger = self.ledgers[replica.key]
        members = self.replicas[replica.key]
        known = self._metadata.partition(replica.key)
        isr = set(committed.maximal_isr)
        # A node that has died in this event may have received metadata that `known` does not have yet.
        if replica.is_up and known is not None and known.leader_epoch >= leader.leader_epoch:
            isr.update(known.isr)
        for number in sorted(isr - {replica.node}):
            member = members.get(number)
            if member is None or member.may_lack or (member.is_up and member.handle.log is None):
                continue
            lacks = ledger.difference(member.shadow, member.compared_from, ledger.end)
            if lacks is not None:
                raise InvariantBroken(
                    "P4",
                    f"{replica} commits {lacks[0]} in epoch {leader.leader_epoch}, and node {number} of the ISR "
                    f"{committed.maximal_isr}, whose log ends at {member.shadow.end}, has {lacks[1]} there; "
                    f"{self._about(replica.key)}",
                )
            member.agrees_to = ledger.end

    def _joined(self, replica: Replica, leader: PartitionLeader) -> None:
        """Check replicas that the leader now counts as in sync: each has every record that is committed now."""
        ledger = self.ledgers[replica.key]
        if self._is_superseded(replica.key, leader.leader_epoch) or self._is_older(replica.key, leader.leader_epoch):
            return
        for number in sorted(set(leader.isr.maximal).difference(replica.isr or ())):
            member = self.replicas[replica.key].get(number)
            if member is None or not member.is_up or member.handle.log is None:
                continue
            lacks = ledger.difference(member.shadow, member.compared_from, ledger.end)
            if lacks is not None:
                raise InvariantBroken(
                    "P6",
                    f"{replica} takes node {number} into its ISR {leader.isr.maximal} in epoch {leader.leader_epoch}, "
                    f"and it lacks what is committed: {lacks[0]}; there it has {lacks[1]}; {self._about(replica.key)}",
                )
            member.agrees_to = ledger.end

    # -- changes of the metadata --------------------------------------------------------------------------------------

    def metadata_changed(self, keys: set[Key], is_running: dict[int, bool]) -> None:
        """Check partitions that committed metadata has changed. P6: no running member of ISR or ELR lacks a committed
        record. P5: the leader's maximal ISR contains that of the controller."""
        for key in sorted(keys):
            image = self._metadata.partition(key)
            if image is not None and key in self.ledgers:
                self._members_complete(key, image, is_running)
                self._leader_knows_isr(key, image)

    def _members_complete(self, key: Key, image: PartitionImage, is_running: dict[int, bool]) -> None:
        ledger = self.ledgers[key]
        if image.leader != NO_LEADER and self._metadata.unclean.get(key, [-1])[-1] == image.leader_epoch:
            return  # its new leader determines what is lost
        for number in (*image.isr, *image.elr):
            member = self.replicas[key].get(number)
            if member is None or not is_running.get(number, False) or not member.is_up or member.handle.log is None:
                continue
            if member.log is not member.handle.log:
                continue
            lacks = ledger.difference(member.shadow, member.compared_from, ledger.end)
            if lacks is None:
                member.agrees_to = ledger.end
                member.may_lack = False
            elif not member.may_lack or self._metadata.image.features.elr_enabled:
                raise InvariantBroken(
                    "P6",
                    f"{member} is in the ISR {image.isr} or the ELR {image.elr}, and its log, which ends at "
                    f"{member.shadow.end}, lacks what is committed: {lacks[0]}; there it has {lacks[1]}; "
                    f"{self._about(key)}",
                )

    def _leader_knows_isr(self, key: Key, image: PartitionImage) -> None:
        replica = self.replicas[key].get(image.leader)
        if replica is None or not replica.is_up:
            return
        leader = replica.partition.leader
        if (
            leader is None
            or leader.leader_epoch != image.leader_epoch
            or leader.isr.partition_epoch > image.partition_epoch
        ):
            return
        require(
            set(image.isr) <= set(leader.isr.maximal),
            "P5",
            f"{replica} leads epoch {leader.leader_epoch} with the ISR {leader.isr.maximal} at most; the controller's "
            f"is {image.isr}",
        )

    def _about(self, key: Key) -> str:
        image = self._metadata.partition(key)
        ends = {number: replica.shadow.end for number, replica in sorted(self.replicas[key].items())}
        said = (
            "deleted"
            if image is None
            else (f"leader {image.leader} of epoch {image.leader_epoch}, ISR {image.isr}, ELR {image.elr}")
        )
        return f"the metadata: {said}; the logs end at {ends}, committed is everything before {self.ledgers[key].end}"

    # -- the end ------------------------------------------------------------------------------------------------------

    def at_rest(self) -> None:
        """P13: every replica that is up has the same records, and knows that they are committed."""
        for key, replicas in sorted(self.replicas.items()):
            if self._metadata.partition(key) is None:
                continue
            ledger = self.ledgers[key]
            for replica in replicas.values():
                image = self._metadata.partition(key)
                if not replica.is_up or replica.handle.log is None or image is None:
                    continue
                if replica.node not in image.replicas:
                    continue
                lacks = ledger.difference(replica.shadow, replica.compared_from, ledger.end)
                if lacks is not None:
                    raise InvariantBroken("P13", f"{replica} lacks {lacks[0]} and has {lacks[1]}; {self._about(key)}")


def ledger_has_gaps(ledger: Ledger) -> bool:
    return ledger.is_compacted
