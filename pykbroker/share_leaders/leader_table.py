"""The leaders of share partitions on one broker, and the sessions of members that read them.

Responsible for the leaders that exist. There is one for each group and partition from the first fetch on. It ends when
this broker no longer leads the partition in the same epoch, or when the group has no session here any longer and its
dead letters are written. Also responsible for what the end of a session releases. Not responsible for the leaders'
states (share_partition_leader.py), nor for requests (fetches/).

No sockets: connections are any objects. The metadata comes as calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.net.promise import Promise
from pykbroker.share_leaders.share_measures import ShareMeasures
from pykbroker.share_leaders.share_partition_leader import LeaderServices, SharePartitionLeader, StateKeeper
from pykbroker.share_partitions.share_sessions import EndedSession, SessionPartitionId, ShareSession, ShareSessions
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.replica.partition import Partition
    from pykbroker.runtime.client_clock import ClientClock
    from pykbroker.share_leaders.dead_letters import DeadLetterWriter
    from pykbroker.share_leaders.leader_configs import ShareLeaderConfig
    from pykbroker.share_partitions.delivery_states import ShareLimits

logger = logging.getLogger(__name__)

K = TypeVar("K")
L = TypeVar("L")

#: A node that stops waits at most this long until the locks of its sessions are released and dead letters written.
CLOSE_SECONDS: Final = 5.0


class ShareLeaders:
    """One for each broker. `sessions` are changed by the handlers of requests; each `EndedSession` that they get from
    it goes to `end_session`."""

    def __init__(
        self,
        clock: ClientClock,
        keeper: StateKeeper,
        config_of: Callable[[str], ShareLeaderConfig],
        find_start: Callable[[Partition, str], Promise],
        dead_letters: DeadLetterWriter,
        most_sessions: int,
    ) -> None:
        """`keeper` is the persister. `config_of` returns the present configuration of a group (`PerGroup.of` with
        `leader_config`). `find_start` is `StartOffsets.find`. `dead_letters` writes dead letters for all groups.
        `most_sessions` is group.share.max.share.sessions."""
        self.sessions = ShareSessions(most_sessions, lambda group, place: self.find(group, *place) is not None)
        self.measures = ShareMeasures(clock.loop.time)
        self._loop = clock.loop
        self._services = LeaderServices(
            clock, keeper, config_of, find_start, dead_letters, self.measures, self._left, self._letters_ended
        )
        self._by_group: dict[str, dict[SessionPartitionId, SharePartitionLeader]] = {}
        self._by_partition: dict[SessionPartitionId, dict[str, SharePartitionLeader]] = {}
        #: the leaders whose group has no session here, and that stay for their dead letters
        self._kept: set[SharePartitionLeader] = set()
        #: how many sessions of each group have ended whose releases have no outcome yet
        self._ending: dict[str, int] = {}
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
        if found is not None:
            is_current = found.partition is partition and found.leader_epoch == partition.leader_epoch
            if is_current and found not in self._kept:
                found.store_start()
                return found
            # While no member was here, the group may have been deleted and made again. A new leader reads its state.
            found.end()
        key = SharePartitionKey(group, *place)
        self.measures.begin(key)
        leader = SharePartitionLeader(key, partition, self._services)
        if not leader.has_left:
            self._by_group.setdefault(group, {})[place] = leader
            self._by_partition.setdefault(place, {})[group] = leader
        return leader

    def find(self, group: str, topic_id: bytes, index: int) -> SharePartitionLeader | None:
        """Return the leader of a share partition for an acknowledgement, or None if no fetch has made it. The answer is
        UNKNOWN_TOPIC_OR_PARTITION then, as in Apache Kafka."""
        return self._by_group.get(group, {}).get((topic_id, index))

    def limits_of(self, group: str) -> ShareLimits:
        """Return the present limits of a group."""
        return self._services.config_of(group).limits

    def _left(self, leader: SharePartitionLeader) -> None:
        self.measures.end(leader.key)
        self._kept.discard(leader)
        group, topic_id, index = leader.key
        place = (topic_id, index)
        if self.find(group, *place) is leader:
            _remove(self._by_group, group, place)
            _remove(self._by_partition, place, group)
            self._note_closed()

    # -- sessions -----------------------------------------------------------------------------------------------------

    def end_session(self, ended: EndedSession) -> Promise:
        """Release the locks of a session that is over. Return a promise of the error of each partition, which is
        UNKNOWN_TOPIC_OR_PARTITION where the group has no leader. If it was the group's last session here, its leaders
        are dropped when the releases have their outcome, and their dead letters are written."""
        return self._end_sessions([ended])[0]

    def close_session(self, session: ShareSession) -> None:
        """End a session for the request that closes it, after its acknowledgements. Does nothing if the session has
        ended or was replaced meanwhile."""
        if self.sessions.peek(session.key) is session and (ended := self.sessions.close(session.key)) is not None:
            self.end_session(ended)

    def disconnected(self, connection: Hashable) -> None:
        """End the sessions of a connection that has ended, and release what their members hold."""
        self._end_sessions(self.sessions.disconnected(connection))

    def _end_sessions(self, ended: Sequence[EndedSession]) -> list[Promise]:
        # All are counted first, because the leaders of a group stay until the last of its releases has its outcome.
        for group, _ in (each.key for each in ended):
            self._ending[group] = self._ending.get(group, 0) + 1
        return [self._release(each) for each in ended]

    def _release(self, ended: EndedSession) -> Promise:
        group, member = ended.key
        promise = Promise()
        errors = dict.fromkeys(ended.partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leaders = {place: leader for place in errors if (leader := self.find(group, *place)) is not None}
        missing = len(leaders)

        def released(place: SessionPartitionId, outcome: Promise) -> None:
            nonlocal missing
            errors[place] = outcome.result()
            missing -= 1
            if not missing:
                self._session_ended(group, promise, errors)

        for place, leader in leaders.items():
            leader.release(member).add_done_callback(partial(released, place))
        if not leaders:
            self._session_ended(group, promise, errors)
        return promise

    def _session_ended(self, group: str, promise: Promise, errors: dict[SessionPartitionId, ErrorCode]) -> None:
        self._ending[group] -= 1
        if not self._ending[group]:
            del self._ending[group]
            self._drop(group)
        promise.set_result(errors)
        self._note_closed()

    def _letters_ended(self, leader: SharePartitionLeader) -> None:
        if leader.key.group_id not in self._ending:
            self._drop(leader.key.group_id)
        self._note_closed()

    def _drop(self, group: str) -> None:
        """End the leaders of a group that has no session here. A leader with dead letters on their way stays, because
        nothing would go on with them before a member of the group comes back. It serves no member again."""
        if not self.sessions.has_group(group):
            for leader in list(self._by_group.get(group, {}).values()):
                if leader.letters.is_idle:
                    leader.end()
                else:
                    self._kept.add(leader)

    def _note_closed(self) -> None:
        if self._closed is not None and not self._is_closing and not self._closed.done():
            self._closed.set_result(None)

    # -- the node -----------------------------------------------------------------------------------------------------

    def on_leadership(self, partition: Partition, is_leader: bool, leader_epoch: int) -> None:
        """End the leaders of another leader epoch (`ReplicaTable.on_leadership`)."""
        for leader in list(self._by_partition.get((partition.topic_id, partition.index), {}).values()):
            if not is_leader or leader.leader_epoch != leader_epoch:
                leader.end()

    def turn_off(self) -> None:
        """End all sessions and leaders, because share.version has become 0. Locks are released first."""
        self._end_sessions(self.sessions.end_all())

    def close(self) -> asyncio.Future[None]:
        """End all sessions, and refuse new ones. Clients may come back before the leaderships have moved, and the
        release of what they would lock can perhaps no longer be stored. Return a future that is done when the releases
        have their outcome and the dead letters are written, or after CLOSE_SECONDS. The persister and its connections,
        and the listener for a share coordinator on this node, close after this."""
        self.turn_off()
        self.sessions.refuse_new()
        closed: asyncio.Future[None] = self._loop.create_future()
        if self._is_closing:
            self._closed = closed
            timer = self._loop.call_later(CLOSE_SECONDS, self._give_up)
            closed.add_done_callback(lambda _: timer.cancel())
        else:
            closed.set_result(None)
        return closed

    @property
    def _is_closing(self) -> bool:
        """True until all releases have their outcome, and no leader has dead letters."""
        return bool(self._ending or self._by_group)

    def _give_up(self) -> None:
        if self._ending:
            count = sum(self._ending.values())
            logger.warning("The locks of %d share sessions could not be released before the stop", count)
        if letters := sum(not leader.letters.is_idle for leader in self):
            logger.warning("Dead letters of %d share partitions were not written before the stop", letters)
        for leader in list(self):
            leader.end()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)


def _remove(table: dict[K, dict[L, SharePartitionLeader]], outer: K, inner: L) -> None:
    row = table[outer]
    del row[inner]
    if not row:
        del table[outer]
