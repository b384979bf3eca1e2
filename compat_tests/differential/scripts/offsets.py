"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from compat_tests.differential.session import NOW_MS, Session
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def _list(
    *topics: tuple[str, list[tuple[int, int]]], epoch: int = -1, replica_id: int = -1, isolation_level: int = 0
) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=i, timestamp=at, current_leader_epoch=epoch)
                    for i, at in partitions
                ],
            )
            for name, partitions in topics
        ],
    )


def list_offsets(s: Session) -> None:
    """ListOffsets: times, specials, epochs, unknown topics and partitions."""
    topic = s.make_topic(partitions=2)
    s.make_records(topic, [b"a", b"b", b"c"], step_ms=1000)
    s.make_records(topic, [b"early"], at_ms=NOW_MS - 5000)
    for at in (
        NOW_MS,
        NOW_MS + 1,
        NOW_MS + 1000,
        NOW_MS + 2000,
        NOW_MS + 2001,
        NOW_MS - 6000,
        NOW_MS - 5000,
        0,
        1,
        2**63 - 1,
    ):
        s.each(f"time {at - NOW_MS if at > 1 else at}", lambda v, t=at: _list((topic, [(0, t)])))  # type: ignore[misc]
    for special in range(-1, -8, -1):
        s.each(f"special {special}", lambda v, t=special: _list((topic, [(0, t), (1, t)])))  # type: ignore[misc]
    s.each("special -99", lambda v: _list((topic, [(0, -99)])))
    s.each("special -2^63", lambda v: _list((topic, [(0, -(2**63))])))
    s.each("empty partition", lambda v: _list((topic, [(1, NOW_MS), (1, 0)])))
    s.each("partitions that are not there", lambda v: _list((topic, [(7, -1), (-1, -1), (0, -1)])))
    s.each("unknown topic", lambda v: _list(("no-such-topic", [(0, -1)]), (topic, [(0, -1)])))
    s.each("bad name", lambda v: _list(("a b", [(0, -1)])))
    s.each("the same partition twice", lambda v: _list((topic, [(0, -1), (0, -2)])))
    s.each("the same topic twice", lambda v: _list((topic, [(0, -1)]), (topic, [(0, -2)])))
    for epoch in (0, 1, 9, -2):
        s.each(f"leader epoch {epoch}", lambda v, n=epoch: _list((topic, [(0, -1)]), epoch=n), range(4, 12))  # type: ignore[misc]
    for level in (0, 1):
        s.each(
            f"isolation level {level}",
            lambda v, n=level: _list((topic, [(0, -1), (0, -3), (0, NOW_MS)]), isolation_level=n),  # type: ignore[misc]
            range(2, 12),
        )
    s.each("debugging consumer", lambda v: _list((topic, [(0, -1)]), replica_id=-2))
    s.each("a replica that is none", lambda v: _list((topic, [(0, -1)]), replica_id=5))
    s.each("no partitions", lambda v: _list((topic, [])))
    s.each("no topics", lambda v: _list())


def offsets_of_append_time(s: Session) -> None:
    """ListOffsets -3 where timestamps are equal, or in batches of several."""
    topic = s.make_topic()
    s.make_records(topic, [b"a", b"b", b"c"], step_ms=0)
    s.each("max timestamp among equals", lambda v: _list((topic, [(0, -3)])), range(7, 12))
    s.each("time of all", lambda v: _list((topic, [(0, NOW_MS)])))


def leader_epochs(s: Session) -> None:
    """OffsetForLeaderEpoch: known, unknown and future epochs."""
    topic = s.make_topic(partitions=2)
    s.make_records(topic, [b"a", b"b"])

    def ask(*topics: tuple[str, list[tuple[int, int, int]]], replica_id: int = -1) -> OffsetForLeaderEpochRequest:
        return OffsetForLeaderEpochRequest(
            replica_id=replica_id,
            topics=[
                OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        OffsetForLeaderPartition(partition=i, current_leader_epoch=current, leader_epoch=epoch)
                        for i, current, epoch in partitions
                    ],
                )
                for name, partitions in topics
            ],
        )

    for current in (-1, 0, 1, -2):
        for epoch in (0, 1, 5, -1, -2):
            s.each(f"epoch {epoch}, current {current}", lambda v, c=current, e=epoch: ask((topic, [(0, c, e)])))  # type: ignore[misc]
    s.each("empty partition", lambda v: ask((topic, [(1, -1, 0)])))
    s.each("unknown", lambda v: ask((topic, [(9, -1, 0), (-1, -1, 0)]), ("no-such-topic", [(0, -1, 0)])))
    s.each("bad name", lambda v: ask(("a b", [(0, -1, 0)])))
    s.each("the same twice", lambda v: ask((topic, [(0, -1, 0), (0, -1, 0)])))
    s.each("none", lambda v: ask())
    s.each("no partitions", lambda v: ask((topic, [])))
    s.each("debugging replica", lambda v: ask((topic, [(0, -1, 0)]), replica_id=-2))
    s.each("a replica", lambda v: ask((topic, [(0, -1, 0)]), replica_id=5))


def delete_records(s: Session) -> None:
    """DeleteRecords: up to an offset, up to the high watermark, beyond."""

    def ask(*topics: tuple[str, list[tuple[int, int]]]) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(
            timeout_ms=10000,
            topics=[
                DeleteRecordsTopic(
                    name=name, partitions=[DeleteRecordsPartition(partition_index=i, offset=n) for i, n in parts]
                )
                for name, parts in topics
            ],
        )

    for version in range(3):
        topic = s.make_topic(f"t-{version}", partitions=2)
        s.make_records(topic, [b"a", b"b", b"c", b"d"])
        s.call("before 1", ask((topic, [(0, 1)])), version)
        s.call("before 0", ask((topic, [(0, 0)])), version)
        s.call("offsets then", _list((topic, [(0, -2)])), 7)
        s.call("by time then", _list((topic, [(0, NOW_MS)])), 7)
        s.call("local start then", _list((topic, [(0, -4)])), 8)
        s.call("beyond the end", ask((topic, [(0, 5)])), version)
        s.call("negative", ask((topic, [(0, -5)])), version)
        s.call("empty partition", ask((topic, [(1, 0)])), version)
        s.call("empty partition, all", ask((topic, [(1, -1)])), version)
        s.call("all", ask((topic, [(0, -1)])), version)
        s.call("all again", ask((topic, [(0, -1)])), version)
        s.call("offsets at the end", _list((topic, [(0, -2), (0, -1), (0, -3), (0, NOW_MS)])), 7)
        s.call(
            "the epoch then",
            OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(leader_epoch=0)])],
            ),
            4,
        )
        s.call("unknown", ask((topic, [(9, 0), (-1, 0)]), ("no-such-topic", [(0, 0)])), version)
        s.call("bad name", ask(("a b", [(0, 0)])), version)
        s.call("the same twice", ask((topic, [(0, 4), (0, 2)])), version)
        s.call("none", ask(), version)
        s.call("no partitions", ask((topic, [])), version)
        s.call("internal", ask(("__cluster_metadata", [(0, 0)])), version)
    compacted = s.make_topic("compacted", cleanup_policy="compact")
    s.make_records(compacted, [b"a"])
    s.each("compacted", lambda v: ask((compacted, [(0, 1)])))
    for what, policy in (("both", "compact,delete"), ("neither", "")):
        name = s.make_topic(what, cleanup_policy=policy)
        s.make_records(name, [b"a", b"b"])
        s.each(what, lambda v, name=name: ask((name, [(0, 1)])))  # type: ignore[misc]
    s.each("twice, and an unknown partition", lambda v: ask((topic, [(1, 0), (1, -1), (7, 0), (-1, 0)])))


SCRIPTS = (list_offsets, offsets_of_append_time, leader_epochs, delete_records)
