"""The leaders of share partitions on one broker, and the sessions of members that read them.

Responsible for which leaders exist: one for each group and partition from the first fetch on, as long as this broker
leads the partition in the same epoch, and as long as the group has a session here. Responsible for what the end of a
session releases. Not responsible for the leaders' states (share_partition_leader.py), nor for requests (fetches/).

No sockets: connections are any objects. The metadata comes as calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.net.promise import Promise
from pykbroker.share_leaders.share_partition_leader import LeaderServices, SharePartitionLeader, StateKeeper
from pykbroker.share_partitions.share_sessions import EndedSession, SessionPartitionId, ShareSessions
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.replica.partition import Partition
    from pykbroker.share_leaders.leader_configs import ShareLeaderConfig

logger = logging.getLogger(__name__)

K = TypeVar("K")
L = TypeVar("L")

#: A node that stops waits at most this long until the locks of its sessions are released.
CLOSE_SECONDS: Final = 5.0


class ShareLeaders:
    """One for each broker. `sessions` are changed by the handlers of requests; each `EndedSession` that they get from
    it goes to `end_session`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        keeper: StateKeeper,
        config_of: Callable[[str], ShareLeaderConfig],
        find_start: Callable[[Partition, str], Promise],
        most_sessions: int,
    ) -> None:
        """`keeper` is the persister. `config_of` returns the present configuration of a group (`PerGroup.of` with
        `leader_config`). `find_start` is `StartOffsets.find`. `most_sessions` is group.share.max.share.sessions."""
        self.sessions = ShareSessions(most_sessions)
        self._loop = loop
        self._services = LeaderServices(loop, keeper, config_of, find_start, self._left)
        self._by_group: dict[str, dict[SessionPartitionId, SharePartitionLeader]] = {}
        self._by_partition: dict[SessionPartitionId, dict[str, SharePartitionLeader]] = {}
        #: the ends of sessions whose releases are under way
        self._ending: dict[Promise, None] = {}
        self._closed: asyncio.Future[None] | None = None

    def __iter__(self) -> Iterator[SharePartitionLeader]:
        for leaders in self._by_group.values():
            yield from leaders.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_group.values()))

    # -- leaders ------------------------------------------------------------------------------------------------------

    def leader_of(self, group: str, partition: Partition) -> SharePartitionLeader:
        """Return the leader of a share partition for a fetch of a session, or a new one, which begins to load.

        Raises:
            KafkaError: this broker does not lead the partition; or SHARE_SESSION_NOT_FOUND if the group has no session
                here any longer, because nothing would drop the leader.
        """
        partition.require_leader()
        if not self.sessions.has_group(group):
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        place = (partition.topic_id, partition.index)
        found = self.find(group, *place)
        if found is not None and found.partition is partition and found.leader_epoch == partition.leader_epoch:
            found.store_start()
            return found
        if found is not None:
            found.end()
        leader = SharePartitionLeader(SharePartitionKey(group, *place), partition, self._services)
        if not leader.has_left:
            self._by_group.setdefault(group, {})[place] = leader
            self._by_partition.setdefault(place, {})[group] = leader
        return leader

    def find(self, group: str, topic_id: bytes, index: int) -> SharePartitionLeader | None:
        """Return the leader of a share partition for an acknowledgement, or None if no fetch has made it. The answer is
        UNKNOWN_TOPIC_OR_PARTITION then, as in Apache Kafka."""
        return self._by_group.get(group, {}).get((topic_id, index))

    def _left(self, leader: SharePartitionLeader) -> None:
        group, topic_id, index = leader.key
        place = (topic_id, index)
        if self.find(group, *place) is leader:
            _remove(self._by_group, group, place)
            _remove(self._by_partition, place, group)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def end_session(self, ended: EndedSession) -> Promise:
        """Release the locks of a session that is over. Return a promise of the error of each partition, which is
        UNKNOWN_TOPIC_OR_PARTITION where the group has no leader. If it was the group's last session here, its leaders
        are dropped when the releases have their outcome."""
        group, member = ended.key
        errors: dict[SessionPartitionId, ErrorCode] = {}
        promise = Promise()
        self._ending[promise] = None
        missing = dict.fromkeys(ended.partitions)
        begun = False

        def released(place: SessionPartitionId, outcome: Promise) -> None:
            errors[place] = outcome.result()
            del missing[place]
            if begun and not missing:
                self._session_ended(group, promise, errors)

        for place in ended.partitions:
            leader = self.find(group, *place)
            if leader is None:
                errors[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                missing.pop(place, None)
            else:
                leader.release(member).add_done_callback(partial(released, place))
        begun = True
        if not missing:
            self._session_ended(group, promise, errors)
        return promise

    def _session_ended(self, group: str, promise: Promise, errors: dict[SessionPartitionId, ErrorCode]) -> None:
        if not self.sessions.has_group(group):
            for leader in list(self._by_group.get(group, {}).values()):
                leader.end()
        del self._ending[promise]
        promise.set_result(errors)
        if self._closed is not None and not self._ending and not self._closed.done():
            self._closed.set_result(None)

    def disconnected(self, connection: Hashable) -> None:
        """End the sessions of a connection that has ended, and release what their members hold."""
        for ended in self.sessions.disconnected(connection):
            self.end_session(ended)

    # -- the node -----------------------------------------------------------------------------------------------------

    def on_leadership(self, partition: Partition, is_leader: bool, leader_epoch: int) -> None:
        """End the leaders of another leader epoch (`ReplicaTable.on_leadership`)."""
        for leader in list(self._by_partition.get((partition.topic_id, partition.index), {}).values()):
            if not is_leader or leader.leader_epoch != leader_epoch:
                leader.end()

    def turn_off(self) -> None:
        """End all sessions and leaders, because share.version has become 0. Locks are released first."""
        for ended in self.sessions.end_all():
            self.end_session(ended)

    async def close(self) -> None:
        """End all sessions, and wait until the releases are stored, at most CLOSE_SECONDS. The persister and its
        connections close after this, and no request comes any longer."""
        self.turn_off()
        if self._ending:
            self._closed = self._loop.create_future()
            await asyncio.wait({self._closed}, timeout=CLOSE_SECONDS)
        if self._ending:
            logger.warning("The locks of %d share sessions could not be released before the stop", len(self._ending))
        for leader in list(self):
            leader.end()


def _remove(table: dict[K, dict[L, SharePartitionLeader]], outer: K, inner: L) -> None:
    row = table[outer]
    del row[inner]
    if not row:
        del table[outer]
