"""Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from compat_tests.differential.session import Session
from pykbroker_wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic

NO_SUCH_ID = bytes(range(16))
BAD_NAMES = ("", ".", "..", "../../etc/passwd", "a b", "a\nb", "ä", "x" * 250, "x/y")


def metadata(s: Session) -> None:
    """Metadata by name: known, unknown, bad and repeated names, null and empty lists, flags."""
    one, two = s.make_topic("one"), s.make_topic("two", partitions=3)

    def ask(*names: str | None, **flags: bool) -> MetadataRequest:
        return MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], **{"allow_auto_topic_creation": False, **flags}
        )

    s.each("one topic", lambda v: ask(one, allow_auto_topic_creation=v < 4))
    s.each("two topics", lambda v: ask(two, one, allow_auto_topic_creation=v < 4))
    s.each("the same twice", lambda v: ask(one, one, allow_auto_topic_creation=v < 4))
    s.each("unknown", lambda v: ask(s.name("unknown")), range(4, 14))
    s.each("unknown and known", lambda v: ask(s.name("unknown"), one), range(4, 14))
    for name in BAD_NAMES:
        s.each(f"name {name[:20]!r}", lambda v, n=name: ask(n, allow_auto_topic_creation=v < 4 or v == 9))  # type: ignore[misc]
    # Without a name and an id Kafka answers -1 from version 12 on, pykbroker does not (tests/badinput).
    s.each("the name is null", lambda v: ask(None), [10, 11])
    s.each("none", lambda v: ask(allow_auto_topic_creation=v < 4), range(1, 14))
    for version in range(14):
        s.call("all", MetadataRequest(topics=[] if version == 0 else None), version)
        s.only_mine()
    s.each("topic operations", lambda v: ask(one, s.name("unknown"), include_topic_authorized_operations=True))
    s.each("cluster operations", lambda v: ask(one, include_cluster_authorized_operations=True))
    s.until_coordinator()
    s.each("internal", lambda v: ask("__consumer_offsets", allow_auto_topic_creation=v < 4))
    s.call("operations of all", MetadataRequest(topics=None, include_topic_authorized_operations=True), 13)
    s.only_mine()


def metadata_by_id(s: Session) -> None:
    """Metadata by topic id."""
    one, two = s.make_topic("one"), s.make_topic("two", partitions=2)
    ids = [s.topic_id(one), s.topic_id(two)]

    def ask(*topics: tuple[bytes, str | None]) -> MetadataRequest:
        return MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=i, name=name) for i, name in topics], allow_auto_topic_creation=False
        )

    versions = [10, 11, 12, 13]
    s.each("id", lambda v: ask((ids[0], None)), versions)
    s.each("ids", lambda v: ask((ids[1], None), (ids[0], None)), versions)
    s.each("the same id twice", lambda v: ask((ids[1], None), (ids[1], None)), versions)
    s.each("unknown id", lambda v: ask((NO_SUCH_ID, None)), versions)
    s.each("unknown and known id", lambda v: ask((NO_SUCH_ID, None), (ids[0], None)), versions)
    s.each("id and its name", lambda v: ask((ids[0], one)), versions)
    s.each("id and another name", lambda v: ask((ids[0], two)), versions)
    s.each("an id and a name", lambda v: ask((ids[0], None), (bytes(16), two)), versions)
    s.each("zero id", lambda v: ask((bytes(16), None)), [10, 11])
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=NO_SUCH_ID, name=None)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    s.each("unknown id with operations", lambda v: asked, versions)


def auto_creation(s: Session) -> None:
    """Metadata that creates a topic."""
    for version in (0, 1, 4, 8, 9, 12, 13):
        name = s.name(f"auto-{version}")
        s.call(
            "first asked",
            MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True),
            version,
        )
        s.until_served(name)
        s.call(
            "asked again",
            MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True),
            version,
        )
    name = s.name("not-created")
    s.call(
        "not allowed", MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False), 12
    )
    s.call(
        "collides",
        MetadataRequest(
            topics=[MetadataRequestTopic(name=s.name("auto_0").replace(".", "_"))], allow_auto_topic_creation=True
        ),
        12,
    )


def describe_topic_partitions(s: Session) -> None:
    """DescribeTopicPartitions: cursors, limits, order, unknown and bad names."""
    one, two, three = s.make_topic("a", 3), s.make_topic("b", 2), s.make_topic("c", 4)

    def ask(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
        return DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=RequestCursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
        )

    s.call("one", ask(one))
    s.call("in another order", ask(three, one, two))
    s.call("the same twice", ask(one, one))
    s.call("unknown", ask("no-such-topic"))
    s.call("unknown between", ask(three, s.name("b2"), one))
    for name in BAD_NAMES[1:]:  # the empty one: Kafka answers -1, pykbroker 17 (tests/badinput)
        s.call(f"name {name[:20]!r}", ask(name))
    for limit in (0, -1, 1, 2, 3, 4, 5, 8, 9, 2001):
        s.call(f"limit {limit}", ask(one, two, three, limit=limit))
    for cursor in (
        (one, 0),
        (one, 1),
        (one, 2),
        (one, 3),
        (one, 99),
        (two, 1),
        (two, -1),
        (three, 2),
        (s.name("b2"), 0),
        ("zzz", 0),
        ("", 0),
        ("no-such-topic", 1),
    ):
        s.call(f"cursor {cursor[0]} {cursor[1]}", ask(one, two, three, cursor=cursor))
        s.call(f"cursor {cursor[0]} {cursor[1]} and limit 2", ask(one, two, three, cursor=cursor, limit=2))
    s.call("cursor on a topic that was not asked for", ask(one, three, cursor=(two, 1)))
    s.call("all", ask())
    s.only_mine()
    s.call("all from a cursor", ask(cursor=(two, 1)))
    s.only_mine()


SCRIPTS = (metadata, metadata_by_id, auto_creation, describe_topic_partitions)
