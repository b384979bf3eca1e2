"""The leader's view of its partition: the replica set, and how far each follower has come; pure.

Responsible for: how far the in-sync replicas have the log, what a fetch of a follower proves, and how many replicas
acks=all asks for. Not responsible for the log and its high watermark (partition.py), nor for requests that wait
(commit.py). Which replicas are in sync the controller decides (KIP-497).

Invariant: a follower that has not fetched in this leader epoch has proved nothing.
"""

from __future__ import annotations

from pykbroker.replica.isr import high_watermark
from pykbroker_wire.errors import ErrorCode, KafkaError


class PartitionLeader:
    """The role of one leader epoch."""

    __slots__ = ("_fetched", "_node_id", "is_alone", "isr", "replicas")

    def __init__(self, node_id: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
        self._node_id = node_id
        # The log end offset of each follower that its last fetch proved.
        self._fetched: dict[int, int] = {}
        self.replicas = replicas
        self.isr = isr
        #: the leader is its whole ISR: what it appends is committed when it is written, unless it owes a flush
        self.is_alone = isr == (node_id,)

    def change(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
        """The metadata has another replica set or ISR in the same leader epoch."""
        self.replicas = replicas
        self.isr = isr
        self.is_alone = isr == (self._node_id,)

    def committed(self, current: int, end_offset: int) -> int:
        """The high watermark: up to where every in-sync replica has the log. `end_offset` is the leader's end."""
        return high_watermark(current, end_offset, self._fetched, self.isr, self._node_id)

    def min_isr(self, configured: int) -> int:
        """How many replicas acks=all asks for: min.insync.replicas, and never more than the partition has."""
        return min(configured, len(self.replicas))

    def has_enough_replicas(self, configured: int) -> bool:
        """As many are in sync as acks=all asks for. `configured`: min.insync.replicas."""
        # The configured number first: it is met by nearly every append, and costs less to ask for.
        return len(self.isr) >= configured or len(self.isr) >= self.min_isr(configured)

    def require_replica(self, replica_id: int) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER for a broker that has no replica of this partition."""
        if replica_id not in self.replicas:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica_id} is not one of its replicas")

    def note_fetched(self, replica_id: int, offset: int) -> bool:
        """A follower asked for records from `offset` on: it has everything before. Returns whether that is more than
        was known."""
        if self._fetched.get(replica_id, -1) >= offset:
            return False
        self._fetched[replica_id] = offset
        return True
