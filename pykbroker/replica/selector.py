"""Which replica a consumer should read from (KIP-392): one in the consumer's rack; pure.

It is Kafka's RackAwareReplicaSelector. Responsible for the choice among the leader and the followers that may be read
(`PartitionLeader.readable`). Not responsible for how long a consumer reads there: its client asks the leader again
after metadata.max.age.ms, or when the follower does not have what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker.replica.leader import PartitionLeader


def preferred_replica(
    leader: PartitionLeader, leader_id: int, offset: int, rack: str, rack_of: Callable[[int], str | None]
) -> int | None:
    """The broker that a consumer in `rack` should read from `offset` on; None: the leader. `rack_of`: where a broker
    stands, None if the consumer cannot reach it."""
    if rack_of(leader_id) == rack:
        return None
    near = [follower for follower in leader.readable(offset) if rack_of(follower.broker_id) == rack]
    if not near:
        return None
    return max(near, key=lambda follower: (follower.end_offset, follower.caught_up_ms, follower.broker_id)).broker_id
