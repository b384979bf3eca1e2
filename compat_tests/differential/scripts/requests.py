"""Requests of classic groups and of committed offsets as short calls: builders for the scripts."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.session import Session
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pykbroker_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS = 30_000


def join(group: str, member: str = "", version: int = 9, **fields: Any) -> JoinGroupRequest:
    protocols = fields.pop("protocols", [("range", b"meta")])
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        **{
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": 60_000 if version > 0 else -1,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
            **fields,
        },
    )


def sync(
    group: str, generation: int, member: str, assignments: dict[str, bytes] | None = None, **fields: Any
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        assignments=[
            SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in (assignments or {}).items()
        ],
        **fields,
    )


def commit(
    group: str,
    *topics: tuple[str, list[tuple[int, int, str | None]]],
    ids: dict[str, bytes] | None = None,
    **fields: Any,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=(ids or {}).get(name, bytes(16)),
                partitions=[
                    OffsetCommitRequestPartition(partition_index=i, committed_offset=n, committed_metadata=text)
                    for i, n, text in partitions
                ],
            )
            for name, partitions in topics
        ],
        **fields,
    )


def fetch(
    group: str,
    *topics: tuple[str, list[int]],
    version: int,
    ids: dict[str, bytes] | None = None,
    everything: bool = False,
    **fields: Any,
) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(
            group_id=group,
            topics=None
            if everything
            else [OffsetFetchRequestTopic(name=name, partition_indexes=list(p)) for name, p in topics],
            **({"require_stable": fields["require_stable"]} if "require_stable" in fields else {}),
        )
    stable = fields.pop("require_stable", False)
    asked = OffsetFetchRequestGroup(
        group_id=group,
        topics=None
        if everything
        else [
            OffsetFetchRequestTopics(name=name, topic_id=(ids or {}).get(name, bytes(16)), partition_indexes=list(p))
            for name, p in topics
        ],
        **fields,
    )
    return OffsetFetchRequest(groups=[asked], require_stable=stable)


def joined(s: Session, label: str, group: str, version: int = 9, link: str = "", **fields: Any) -> Any:
    """Join as a new member, with the id that the coordinator assigns; returns the answer."""
    answer = s.call(label, join(group, version=version, **fields), version, link=link)
    if answer is not None and answer.error_code == 79:
        answer = s.call(f"{label} with its id", join(group, answer.member_id, version, **fields), version, link=link)
    return answer
