"""One share session of a member at one broker (KIP-932): its epochs, the partitions it has, and what is acknowledged.

Responsible for the fields of ShareFetch and ShareAcknowledge. Pure: bytes and answers come from share_group_reader.py.

Invariants: The epoch of a request is one more than that of the request before it. The first epoch is 0, and such a
request acknowledges nothing. A session that the broker has lost begins again at 0, and nothing that it acquired before
is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from pykbroker_wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from pykbroker_wire.messages.share_fetch import (
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

#: the id of a topic and the number of a partition
SharedPlace: TypeAlias = tuple[bytes, int]
#: first offset, last offset, and one acknowledgement for all of them
Acknowledged: TypeAlias = tuple[int, int, int]

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
#: The member keeps the record, and its lock begins again (KIP-1222). ShareAcknowledge has it from `WITH_RENEWALS` on.
RENEW: Final = 4
WITH_RENEWALS: Final = 2

_BATCHES: Final = 0
_EXACTLY: Final = 1
_LAST_EPOCH: Final = 2**31 - 1
_CLOSE: Final = -1
#: fetch.max.bytes
MOST_BYTES: Final = 50 * 1024 * 1024


class MemberSession:
    """The session of one member at one broker."""

    def __init__(self, group: str, member: str) -> None:
        self._group = group
        self._member = member
        self._epoch = 0
        #: the partitions that the broker has in the session
        self._known: set[SharedPlace] = set()

    @property
    def is_open(self) -> bool:
        return self._epoch > 0

    def fetch(
        self,
        wanted: Iterable[SharedPlace],
        *,
        max_records: int,
        exactly: bool,
        max_wait_ms: int,
        max_bytes: int = MOST_BYTES,
    ) -> ShareFetchRequest:
        """Return the request for records of these partitions. `exactly`: the broker acquires no more than
        `max_records`, where it else acquires whole batches."""
        places = set(wanted)
        added, forgotten = places - self._known, self._known - places
        self._known = places
        return ShareFetchRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=_EXACTLY if exactly else _BATCHES,
            topics=[
                FetchTopic(topic_id=topic, partitions=[FetchPartition(partition_index=number) for number in numbers])
                for topic, numbers in _by_topic(added).items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic, partitions=numbers) for topic, numbers in _by_topic(forgotten).items()
            ],
        )

    def acknowledge(
        self, acknowledged: Mapping[SharedPlace, Sequence[Acknowledged]], *, closes: bool = False
    ) -> ShareAcknowledgeRequest:
        """Return the request that acknowledges these offsets. `closes`: the session ends with it, and the broker
        releases everything else that the session has acquired. The session must be open."""
        assert self.is_open, "a session that is not open has acquired nothing"
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=_CLOSE if closes else self._epoch,
            is_renew_ack=any(kind == RENEW for ranges in acknowledged.values() for _, _, kind in ranges),
            topics=[
                AcknowledgeTopic(
                    topic_id=topic,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=number,
                            acknowledgement_batches=[
                                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                                for first, last, kind in acknowledged[topic, number]
                            ],
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in _by_topic(acknowledged).items()
            ],
        )

    def answered(self) -> None:
        """The broker has answered a request without an error of the whole session."""
        self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def lost(self) -> None:
        """The broker does not have the session, or may not have it. The next request opens another one."""
        self._epoch = 0
        self._known = set()


def acknowledgements(
    acquired: Iterable[AcquiredRecords], records: Mapping[int, int], last: int | None = None
) -> list[Acknowledged]:
    """Return the acknowledgements of what was acquired in one partition, which the answer has in its order. `records`:
    the offset of each of its records, in the same order, and the type that the record gets. The other acquired offsets
    hold no records for a consumer (markers of transactions, compaction), and are gaps. Nothing after the offset `last`
    is acknowledged."""
    found: list[Acknowledged] = []
    offsets = iter(records)
    offset = next(offsets, None)
    for one in acquired:
        at, end_of_range = one.first_offset, one.last_offset if last is None else min(one.last_offset, last)
        while at <= end_of_range:
            while offset is not None and offset < at:
                offset = next(offsets, None)
            if offset == at:
                _add(found, at, at, records[at])
                at += 1
            else:
                end = end_of_range if offset is None else min(end_of_range, offset - 1)
                _add(found, at, end, GAP)
                at = end + 1
    return found


def _add(found: list[Acknowledged], first: int, last: int, kind: int) -> None:
    """Append a range, or extend the last one with it."""
    if found and found[-1][1] == first - 1 and found[-1][2] == kind:
        found[-1] = (found[-1][0], last, kind)
    else:
        found.append((first, last, kind))


def _by_topic(places: Iterable[SharedPlace]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for topic, number in sorted(places):
        found.setdefault(topic, []).append(number)
    return found
