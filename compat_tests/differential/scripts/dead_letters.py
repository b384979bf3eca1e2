"""Dead letter queues of share groups (KIP-1191): which records become letters, where they go, and their bytes.

A case that must give no letter is followed by one that gives a letter of the same partition, and both nodes are done
with the first by then. Names of queues begin with the name of the script, which is the prefix of these nodes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from compat_tests.differential.scripts.asking_shares import GROUP_CONFIG, REJECT, RELEASE, ShareReader, make_share_group
from compat_tests.differential.session import NOW_MS, Session
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch, iter_batches
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.record import iter_records

_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
_QUEUE = "errors.deadletterqueue.topic.name"
_COPIES = "errors.deadletterqueue.copy.record.enable"
_ENABLED = "errors.deadletterqueue.group.enable"
_CREATES = "errors.deadletterqueue.auto.create.topics.enable"
_LONG_MS = 3_000
#: the configuration of a topic as keywords of `make_topic`
_TAKES_LETTERS: dict[str, Any] = {"errors_deadletterqueue_group_enable": "true"}


def _set(s: Session, kind: int, name: str, configs: Mapping[str, str], operation: int = _SET) -> None:
    values = [AlterableConfig(name=key, config_operation=operation, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=values)
    s.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    s.until_published()


def _members(
    s: Session, topic: str, what: str, queue: str, configs: Mapping[str, str] | None = None, partitions: int = 1
) -> partial[ShareReader]:
    new = make_share_group(s, topic, partitions, what)
    _set(s, GROUP_CONFIG, s.name(what), {_QUEUE: queue, **(configs or {})})
    return new


def _produce(
    s: Session, topic: str, *values: bytes, partition: int = 0, key: bytes | None = b"k", codec: Codec = Codec.NONE
) -> None:
    """Write one batch, whose records have a header."""
    records = [(key, value, [("h", b"x")], NOW_MS) for value in values]
    data = [PartitionProduceData(index=partition, records=build_batch(records, codec=codec))]
    topics = [TopicProduceData(topic_id=s.topic_id(topic), partition_data=data)]
    answer = s.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics))
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def _letters(s: Session, topic: str, partitions: int) -> list[Any]:
    """Return the letters of a topic, in the order of their offsets in the source."""
    asked = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(partitions)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 24,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=s.topic_id(topic), partitions=asked)],
    )
    found = []
    for answered in s.ask(request).responses:
        for partition in answered.partitions:
            data = bytes(partition.records or b"")
            for position, header in iter_batches(data):
                for letter in iter_records(data, position, header):
                    headers = [[name, _text(value)] for name, value in letter.headers]
                    place = [partition.partition_index, header.timestamp_type, header.producer_id]
                    recent = abs(letter.timestamp - time.time() * 1000) < 600_000
                    found.append([place, _text(letter.key), _text(letter.value), headers, recent])
    return sorted(found, key=lambda letter: repr(letter[3]))


def _text(value: Any) -> str | None:
    return None if value is None else str(bytes(value), "latin-1")


def _note(s: Session, label: str, topic: str, count: int, partitions: int = 1) -> None:
    s.until(lambda: len(_letters(s, topic, partitions)) >= count, f"{count} letters: {label}")
    s.note(label, _letters(s, topic, partitions))


def _reject(member: ShareReader, label: str, offset: int, last: int | None = None, partition: int = 0) -> None:
    end = offset if last is None else last
    member.acknowledge(label, {partition: [(offset, end, [REJECT])]})


def dead_letter_causes(s: Session) -> None:
    """Rejected records, and records at their delivery limit, with and without copies."""
    topic = s.make_topic(partitions=3)
    queue = s.make_topic("queue", partitions=2, **_TAKES_LETTERS)
    new = _members(s, topic, "plain", queue, partitions=3)
    for partition in range(3):
        _produce(s, topic, b"a", b"b", b"c", b"d", partition=partition)
    member = new()
    for partition in range(3):
        member.fetch("acquires", partition)
    _reject(member, "rejects one", 1)
    _reject(member, "rejects two", 0, 1, partition=1)
    _reject(member, "rejects a batch", 0, 3, partition=2)
    _note(s, "headers only", queue, 7, 2)
    member.acknowledge("a letter is done", {0: [(1, 1, [REJECT])]})

    copies = s.make_topic("copies", **_TAKES_LETTERS)
    other = _members(s, topic, "copying", copies, {_COPIES: "true"})()
    other.fetch("acquires for copies", 0)
    _reject(other, "rejects and copies", 1, 2)
    _note(s, "copies", copies, 2)

    source = s.make_topic("limits")
    limits = {_COPIES: "true", "share.delivery.count.limit": "2", "share.record.lock.duration.ms": "1000"}
    limited = _members(s, source, "limited", copies, limits)()
    _produce(s, source, b"released", b"forgotten", key=None)
    limited.fetch("the first delivery", 0)
    limited.acknowledge("releases", {0: [(0, 0, [RELEASE])]})
    limited.fetch("the second delivery", 0, max_wait_ms=_LONG_MS)
    limited.acknowledge("releases at the limit", {0: [(0, 0, [RELEASE])]})
    _note(s, "released at the limit", copies, 3)
    s.until(lambda: _is_acquired(limited), "the lock of the first delivery has ended")
    _note(s, "timed out at the limit", copies, 4)


def _is_acquired(member: ShareReader) -> bool:
    answer = member.peek(0)
    return any(partition.acquired_records for topic in answer.responses for partition in topic.partitions)


def dead_letter_topics(s: Session) -> None:
    """Queues that are missing, not enabled, compacted, misnamed, too small, created, and the source itself."""
    topic = s.make_topic()
    queue = s.name("late")
    member = _members(s, topic, "g", queue)()
    group = s.name("g")
    _produce(s, topic, *(b"v%d" % number for number in range(20)))
    member.fetch("acquires", 0)
    _reject(member, "no topic", 0)
    s.make_topic("late")
    _reject(member, "a topic that does not take letters", 1)
    _set(s, _TOPIC, queue, {_ENABLED: "true"})
    _reject(member, "a topic that takes letters", 2)
    _note(s, "the letter after it was enabled", queue, 1)

    wrong = f"wrong.{queue}"
    _set(s, GROUP_CONFIG, group, {_QUEUE: wrong})
    _reject(member, "a wrong prefix", 3)
    compacted = s.make_topic("compacted", cleanup_policy="compact", **_TAKES_LETTERS)
    _set(s, GROUP_CONFIG, group, {_QUEUE: compacted})
    _reject(member, "a compacted topic and no key", 4)
    _set(s, GROUP_CONFIG, group, {_COPIES: "true"})
    _reject(member, "a compacted topic and a key", 5)
    _note(s, "the letter of a compacted topic", compacted, 1)

    _set(s, GROUP_CONFIG, group, {_QUEUE: topic})
    _reject(member, "the source does not take letters", 6)
    _set(s, _TOPIC, topic, {_ENABLED: "true"})
    _reject(member, "the source takes letters", 7)
    s.until(lambda: len(_letters(s, topic, 1)) == 21, "the letter in the source")
    s.note("the letter in the source", [letter for letter in _letters(s, topic, 1) if len(letter[3]) > 1])

    # Groups and topics of their own, since a letter that is late would follow a change of the configuration.
    source = s.make_topic("source")
    _produce(s, source, *(b"v%d" % number for number in range(5)))
    small = s.make_topic("small", max_message_bytes="100", **_TAKES_LETTERS)
    without_room = _members(s, source, "without-room", small)()
    without_room.fetch("acquires for a small topic", 0)
    _reject(without_room, "a topic that is too small for a letter", 0, 1)
    narrow = s.make_topic("narrow", max_message_bytes="700", **_TAKES_LETTERS)
    with_room = _members(s, source, "with-room", narrow)()
    with_room.fetch("acquires for a narrow topic", 0)
    _reject(with_room, "a topic with room for a few letters", 0, 4)
    _note(s, "letters of several batches", narrow, 5)

    created = s.name("created")
    _set(s, GROUP_CONFIG, group, {_QUEUE: created, _COPIES: "false"})
    _reject(member, "a missing topic is not created", 8)
    _set(s, _BROKER, "", {_CREATES: "true"})
    _reject(member, "a missing topic is created", 9)
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=created)])
    s.until(lambda: s.ask(asked).topics[0].error_code == 0, "the topic is created")
    s.until_served(created)
    _note(s, "the letter of a created topic", created, 1)
    s.note("no letters of the small topic", _letters(s, small, 1))
    s.note("partitions of a created topic", len(s.ask(asked).topics[0].partitions))
    resource = DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=created, configuration_keys=[_ENABLED, "message.timestamp.type"]
    )
    s.call("the configuration of a created topic", DescribeConfigsRequest(resources=[resource]))
    _set(s, _BROKER, "", {_CREATES: ""}, _DELETE)


def dead_letter_copies(s: Session) -> None:
    """Copies of compressed records, of large ones, and of offsets without a record."""
    topic = s.make_topic()
    queue = s.make_topic("queue", max_message_bytes="900", **_TAKES_LETTERS)
    member = _members(s, topic, "g", queue, {_COPIES: "true"})()
    _produce(s, topic, b"a", b"b", codec=Codec.GZIP)
    _produce(s, topic, b"x" * 2_000, codec=Codec.LZ4)
    _produce(s, topic, b"x" * 2_000, key=None)
    _produce(s, topic, b"", key=b"")
    member.fetch("acquires", 0)
    _reject(member, "rejects all", 0, 4)
    _note(s, "copies that fit", queue, 5)


SCRIPTS = (dead_letter_causes, dead_letter_topics, dead_letter_copies)
