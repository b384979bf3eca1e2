"""The plan of a ShareFetch: the share session of the member, and the partitions that it reads (KIP-932).

Responsible for the session of a request. Not responsible for partitions, logs and locks. While a fetch waits, its plan
does not change. It is obsolete when its session has ended (`is_current`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pykbroker.replica.fetch_sessions import SessionKey, SessionPartition
from pykbroker.share_partitions.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    EndedSession,
    SessionMember,
    SessionPartitionId,
    ShareSession,
    ShareSessions,
)
from pykbroker_wire.messages.share_fetch import ShareFetchRequest

if TYPE_CHECKING:
    from pykbroker.metadata.image import MetadataImage

#: acquire modes of a ShareFetch (KIP-1206)
BATCH_OPTIMIZED: Final = 0
RECORD_LIMIT: Final = 1


@dataclass(slots=True)
class ShareFetchPlan:
    """The plan of one request. `members` has the partitions of the session in the order of their turns; it is empty for
    a request that closes its session. `displaced` is the session that this one replaces, whose locks are to be
    released, or None."""

    request: ShareFetchRequest
    member: SessionMember
    session: ShareSession
    members: dict[SessionKey, SessionPartition]
    is_full: bool
    is_final: bool
    displaced: EndedSession | None
    #: as in `FetchPlan`: a ShareFetch names topics by their ids, and every partition is read
    uses_topic_ids: bool = True
    skips_unchanged: bool = False

    @property
    def wants_records(self) -> bool:
        """False if the request asks for no record. It is then answered at once."""
        return self.request.max_records > 0 and self.request.max_bytes > 0

    def is_current(self, sessions: ShareSessions) -> bool:
        """Return False if the session has ended. A later request of the same session makes no difference: a client may
        send it without waiting, and gets an answer to each."""
        return sessions.peek(self.member) is self.session


def plan_share_fetch(
    request: ShareFetchRequest,
    member: SessionMember,
    sessions: ShareSessions,
    connection: Hashable,
    image: MetadataImage,
    most_bytes: int,
) -> ShareFetchPlan:
    """Open the session of a request, or take the next request of one. A session that the request closes stays, until
    the caller ends it.

    most_bytes: fetch.max.bytes. Raises KafkaError with the error of the whole answer; then nothing has changed.
    """
    asked = {
        (topic.topic_id, partition.partition_index): bool(partition.acknowledgement_batches)
        for topic in request.topics
        for partition in topic.partitions
    }
    epoch = request.share_session_epoch
    displaced = None
    if epoch == INITIAL_EPOCH:
        session, displaced = sessions.open(member, connection, asked, has_acknowledgements=any(asked.values()))
    elif epoch == FINAL_EPOCH:
        session = sessions.final(member)
    else:
        forgotten = ((topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions)
        session = sessions.fetch(member, epoch, asked, forgotten)
    members: dict[SessionKey, SessionPartition] = {}
    if epoch != FINAL_EPOCH:
        _find_topics(session, image)
        # As in Apache Kafka, the bytes of a request are divided evenly among its partitions.
        share = max(1, min(request.max_bytes, most_bytes) // max(1, len(session.partitions)))
        members = {named: _entry(session, named, share) for named in session.partitions}
    return ShareFetchPlan(
        request,
        member,
        session,
        members,
        is_full=epoch == INITIAL_EPOCH,
        is_final=epoch == FINAL_EPOCH,
        displaced=displaced,
    )


def _find_topics(session: ShareSession, image: MetadataImage) -> None:
    """Note the name of each topic of a session. A topic that was deleted keeps the name that it had."""
    before, by_id = session.topic_names, image.topics.by_id
    names: dict[bytes, str] = {}
    for topic_id in dict.fromkeys(topic_id for topic_id, _ in session.partitions):
        topic = by_id.get(topic_id)
        name = before.get(topic_id) if topic is None else topic.name
        if name is not None:
            names[topic_id] = name
    session.topic_names = names


def _entry(session: ShareSession, named: SessionPartitionId, max_bytes: int) -> SessionPartition:
    topic_id, index = named
    entry = SessionPartition(session.topic_names.get(topic_id), topic_id, index)
    entry.max_bytes = max_bytes
    return entry
