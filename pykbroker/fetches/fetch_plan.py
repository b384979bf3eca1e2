"""The plan of a fetch: its partitions, its limits in bytes, and the client that gets the records (KIP-74, KIP-227,
KIP-392).

Responsible for the session of a request. Not responsible for partitions and logs. While a fetch waits, nothing in its
plan changes except the entries of its session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pykbroker.metadata.topic_names import MAX_NAME_LENGTH
from pykbroker.replica.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    FetchSessions,
    SessionKey,
    SessionPartition,
)
from pykbroker.replica.parked import Isolation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import FetchRequest

TOPIC_IDS_FROM: Final = 13
_SESSIONS_FROM: Final = 7
#: From this version on a request names the consumer's rack, and followers answer consumers (KIP-392).
RACKS_FROM: Final = 11
_REPLICA_STATE_FROM: Final = 15
#: From this version on an answer with certain errors names the leader to which the client should send the fetch
#: (KIP-951).
LEADERS_FROM: Final = 16
_READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


@dataclass(slots=True)
class FetchPlan:
    """The plan of one request. `request` has its limits; `members` has its partitions, or all partitions of its
    session."""

    request: FetchRequest
    version: int
    #: the broker that fetches as a follower; negative for a consumer
    replica_id: int
    # The entries of a session may change under a fetch that waits, when the client closes it and opens another.
    members: dict[SessionKey, SessionPartition]
    session: FetchSession | None
    #: the epoch of the session when the request came
    session_epoch: int
    #: True if the answer has every partition, False if it has only the partitions with changes
    is_full: bool

    @property
    def uses_topic_ids(self) -> bool:
        return self.version >= TOPIC_IDS_FROM

    @property
    def skips_unchanged(self) -> bool:
        """True if partitions without news need not be read: an incremental fetch of a follower."""
        return self.replica_id >= 0 and not self.is_full

    @property
    def isolation(self) -> Isolation:
        if self.replica_id >= 0:
            return Isolation.LOG_END
        committed = self.request.isolation_level == READ_COMMITTED
        return Isolation.TXN_COMMITTED if committed else Isolation.HIGH_WATERMARK


def plan_fetch(
    request: FetchRequest,
    version: int,
    sessions: FetchSessions,
    now: float,
    *,
    may_follow: Callable[[], bool],
) -> FetchPlan | ErrorCode:
    """Find, make or end the session of a request. Return the plan, or the error for the answer as a whole.

    now: monotonic seconds. may_follow: returns True if the client may fetch as a follower; it is called if a follower
    wants a session.
    """
    if request.isolation_level not in (_READ_UNCOMMITTED, READ_COMMITTED):
        return ErrorCode.INVALID_REQUEST
    replica_id = request.replica_state.replica_id if version >= _REPLICA_STATE_FROM else request.replica_id
    uses_ids = version >= TOPIC_IDS_FROM
    session: FetchSession | None = None
    wants_session = False
    if version >= _SESSIONS_FROM:
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                sessions.close(request.session_id)
            wants_session = request.session_epoch == INITIAL_EPOCH
        else:
            found = sessions.find(request.session_id, request.session_epoch, uses_ids, now)
            if isinstance(found, ErrorCode):
                return found
            session = found
    is_full = session is None
    # A session must not store names that are too long for a topic, because a client may send many names of 32 KiB each.
    has_no_topic = not uses_ids and any(len(topic.topic) > MAX_NAME_LENGTH for topic in request.topics)
    if session is not None:
        members = session.partitions
        before = len(members)
        _update(members, request, uses_ids)
        if not members:
            # As in Apache Kafka, a session without partitions ends.
            sessions.close(session.id)
            session = None
        elif has_no_topic or (len(members) > before and not session.privileged and not sessions.make_room(0, now)):
            sessions.close(session.id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    else:
        members = {}
        _update(members, request, uses_ids)
        if wants_session and not has_no_topic:
            # The privilege is checked before the session is made. In Apache Kafka, a client that only claims to be a
            # follower can take the places of all other sessions.
            follows = replica_id >= 0 and may_follow()
            session = sessions.create(members.items(), privileged=follows, uses_topic_ids=uses_ids, now=now)
            if session is not None:
                members = session.partitions
    epoch = 0 if session is None else session.epoch
    return FetchPlan(request, version, replica_id, members, session, epoch, is_full)


def _update(members: dict[SessionKey, SessionPartition], request: FetchRequest, uses_ids: bool) -> None:
    """Add the partitions of a request to `members`, and remove its forgotten partitions."""
    for topic in request.topics:
        name: bytes | str = topic.topic_id if uses_ids else topic.topic
        for asked in topic.partitions:
            key = (name, asked.partition)
            entry = members.get(key)
            if entry is None:
                entry = members[key] = SessionPartition(
                    None if uses_ids else topic.topic, topic.topic_id, asked.partition
                )
            entry.fetch_offset = asked.fetch_offset
            entry.log_start_offset = asked.log_start_offset
            entry.max_bytes = asked.partition_max_bytes
            entry.current_leader_epoch = asked.current_leader_epoch
            entry.last_fetched_epoch = asked.last_fetched_epoch
            entry.verified_epoch = -1
    for forgotten in request.forgotten_topics_data:
        name = forgotten.topic_id if uses_ids else forgotten.topic
        for index in forgotten.partitions:
            members.pop((name, index), None)
