"""ShareFetch and ShareAcknowledge: sessions, acquisition, acknowledgements, and what each refuses.

Most cases are those in which brokers may differ: the order of checks, ranges that are wrong, sessions that end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from compat_tests.differential.session import NOW_MS, Session
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from pykbroker_wire.messages.share_fetch import AcknowledgementBatch as FetchAcknowledgement
from pykbroker_wire.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from pykbroker_wire.primitives import uuid_to_str
from pykbroker_wire.records.batch import build_batch

_NO_SUCH_ID = bytes(range(16))
_GROUP_CONFIG = 32
_ACCEPT, _RELEASE, _REJECT, _RENEW = 1, 2, 3, 4
_LONG_MS = 2_000

#: first offset, last offset, and the types of an acknowledgement
_Ack = tuple[int, int, Sequence[int]]


class _Member:
    """A member of the script's share group, and its session. `link` is its connection."""

    def __init__(self, s: Session, topic_id: bytes, group: str, name: str = "m", link: str = "") -> None:
        self._s = s
        self._topic_id = topic_id
        self._group = group
        self._name = name
        self._link = link
        self._epoch = 0

    def _call(self, label: str, request: Any, version: int | None) -> Any:
        answer = self._s.call(label, request, version, link=self._link)
        if answer is not None and answer.error_code == ErrorCode.NONE:
            self._epoch = request.share_session_epoch + 1
        return answer

    def _fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"group_id": self._group, "member_id": self._name, "share_session_epoch": self._epoch, **fields}

    def fetch(
        self,
        label: str,
        *indexes: int,
        acks: Mapping[int, Sequence[_Ack]] | None = None,
        version: int | None = None,
        **fields: Any,
    ) -> Any:
        given = acks or {}
        partitions = [
            FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    FetchAcknowledgement(first_offset=first, last_offset=last, acknowledge_types=list(types))
                    for first, last, types in given.get(index, ())
                ],
            )
            for index in dict.fromkeys((*indexes, *given))
        ]
        defaults: dict[str, Any] = {
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": [FetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else [],
        }
        request = ShareFetchRequest(**{**defaults, **self._fields(fields)})
        return self._call(label, request, version)

    def acknowledge(
        self, label: str, acks: Mapping[int, Sequence[_Ack]], version: int | None = None, **fields: Any
    ) -> Any:
        partitions = [
            AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
                    for first, last, types in ranges
                ],
            )
            for index, ranges in acks.items()
        ]
        topics = [AcknowledgeTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else []
        request = ShareAcknowledgeRequest(**{"topics": topics, **self._fields(fields)})
        return self._call(label, request, version)


def _make_group(s: Session, topic: str, partitions: int = 1, what: str = "g", **configs: str) -> partial[_Member]:
    """Return members of a group whose share partitions start at offset 0, as its coordinator would prepare them."""
    group, topic_id = s.name(what), s.topic_id(topic)
    if configs:
        values = [AlterableConfig(name=f"share.{key.replace('_', '.')}", value=value) for key, value in configs.items()]
        resource = AlterConfigsResource(resource_type=_GROUP_CONFIG, resource_name=group, configs=values)
        s.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        s.until_published()
    for index in range(partitions):
        key = f"{group}:{uuid_to_str(topic_id)}:{index}"
        found = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
        s.until(lambda: s.ask(found).coordinators[0].error_code == 0, "the share partition has a coordinator")  # noqa: B023
        asked = PartitionData(partition=index, state_epoch=1, start_offset=0)
        request = InitializeShareGroupStateRequest(
            group_id=group, topics=[InitializeStateData(topic_id=topic_id, partitions=[asked])]
        )
        s.until(lambda: s.ask(request).results[0].partitions[0].error_code == 0, "the share partition has a state")  # noqa: B023
    return partial(_Member, s, topic_id, group)


def _write(s: Session, topic: str, records: int, partition: int = 0) -> None:
    """Write one batch."""
    batch = build_batch([(b"k", b"v%d" % number, (), NOW_MS) for number in range(records)])
    data = [PartitionProduceData(index=partition, records=batch)]
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(topic_id=s.topic_id(topic), partition_data=data)]
    )
    assert s.ask(request).responses[0].partition_responses[0].error_code == ErrorCode.NONE


def share_sessions(s: Session) -> None:
    """Sessions of share groups: who may open one, epochs, incremental answers, the end."""
    topic = s.make_topic(partitions=2)
    new = _make_group(s, topic, 2)
    _write(s, topic, 3)
    for version in (1, 2):
        other = new(f"v{version}")
        other.fetch("no group", 0, version=version, group_id=None)
        other.fetch("an empty member id", 0, version=version, share_session_epoch=0, member_id="")
        other.fetch("no member id", 0, version=version, share_session_epoch=0, member_id=None)
        other.fetch("a long member id", 0, version=version, share_session_epoch=0, member_id="m" * 37)
        other.fetch("no session", 0, version=version, share_session_epoch=3)
        other.fetch("nothing to close", version=version, share_session_epoch=-1)
        other.fetch("opens with acknowledgements", acks={0: [(0, 0, [1])]}, version=version, share_session_epoch=0)
        other.acknowledge("no session", {0: [(0, 0, [1])]}, version=version, share_session_epoch=1)
        other.acknowledge("epoch 0", {0: [(0, 0, [1])]}, version=version, share_session_epoch=0)
        other.acknowledge("nothing to close", {}, version=version, share_session_epoch=-1)
        other.acknowledge("no group", {}, version=version, share_session_epoch=1, group_id=None)
        other.acknowledge("an empty member id", {}, version=version, share_session_epoch=1, member_id="")
    member = new()
    member.fetch("asks for no record", 0, max_records=0)
    member.fetch("asks for no byte", max_bytes=0)
    member.fetch("opens anew", 0, share_session_epoch=0)
    member.fetch("reads another partition", 1, max_wait_ms=50)
    member.fetch("nothing new", max_wait_ms=50)
    member.fetch("a wrong epoch", share_session_epoch=7)
    member.acknowledge("a wrong epoch", {}, share_session_epoch=8)
    member.acknowledge("the right epoch", {0: [(0, 0, [_ACCEPT])]})
    member.fetch("forgets", forgotten_topics_data=[ForgottenTopic(topic_id=s.topic_id(topic), partitions=[1])])
    _write(s, topic, 1, partition=1)
    member.fetch("does not read what it forgot", max_wait_ms=50)
    member.fetch("reads it again", 1)
    other = new("n", link="other")
    other.fetch("another member", 0, max_wait_ms=50)
    member.acknowledge("closes", {0: [(1, 1, [_ACCEPT])]}, share_session_epoch=-1)
    other.fetch("gets what was released", max_wait_ms=_LONG_MS)
    other.fetch("a partition that is not there", 5)
    # A fetch of an unknown topic id fails as a whole in 4.3.1, as it did not mean to: it is UNKNOWN_SERVER_ERROR.
    ranges = [AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[_ACCEPT])]
    partitions = [AcknowledgePartition(partition_index=0, acknowledgement_batches=ranges)]
    topics = [AcknowledgeTopic(topic_id=_NO_SUCH_ID, partitions=partitions)]
    other.acknowledge("an unknown topic", {}, topics=topics)


def share_acquisition(s: Session) -> None:
    """The records that a fetch acquires: limits, acquire modes, second and third deliveries, deleted records."""
    topic = s.make_topic(partitions=3)
    new = _make_group(s, topic, 3)
    for count in (4, 4, 4, 10):
        _write(s, topic, count)
    member = new()
    member.fetch("fewer than a batch", 0, max_records=2, batch_size=2)
    member.fetch("a batch and a half", max_records=6, batch_size=3)
    member.fetch("by records", max_records=3, batch_size=2, share_acquire_mode=1)
    member.fetch("the rest", share_acquire_mode=1)
    member.acknowledge("gives all back", {0: [(0, 21, [_RELEASE])]})
    member.fetch("a second time", max_records=6)
    member.acknowledge("gives these back", {0: [(0, 7, [_RELEASE])]})
    member.fetch("a third time, and others a second", max_records=100)
    strange = new("s", link="strange")
    strange.fetch("an unknown acquire mode", 0, share_acquire_mode=2)
    _write(s, topic, 3, partition=1)
    s.ask(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=1, offset=2)])],
            timeout_ms=10_000,
        )
    )
    deleted = new("d", link="deleted")
    deleted.fetch("the start of the log has moved", 1)
    deleted.fetch("the record that is left")
    deleted.acknowledge("before the start of the log", {1: [(0, 1, [_ACCEPT])]})
    _write(s, topic, 2, partition=2)
    one_byte = new("b", link="bytes")
    one_byte.fetch("one byte", 2, max_bytes=1)


def share_deliveries(s: Session) -> None:
    """Deliveries up to the limit of a group, and the end of locks."""
    topic = s.make_topic()
    new = _make_group(s, topic, delivery_count_limit="3")
    _write(s, topic, 4)
    member = new()
    member.fetch("a first time", 0)
    for number in range(2, 8):
        member.fetch(f"released and fetched {number}", acks={0: [(0, 3, [_RELEASE])]} if number == 2 else None)
        member.acknowledge(f"releases the rest {number}", {0: [(0, 0, [_RELEASE])]})


def share_acknowledgements(s: Session) -> None:
    """Acknowledgements: types, ranges, records of other members, renewals, both APIs."""
    topic = s.make_topic(partitions=3)
    new = _make_group(s, topic, 3)
    _write(s, topic, 20)
    member = new()
    member.fetch("acquires", 0)
    for label, ranges in (
        ("type 5", [(0, 0, [5])]),
        ("type -1", [(0, 0, [-1])]),
        ("the last before the first", [(1, 0, [1])]),
        ("no type", [(0, 0, [])]),
        ("too few types", [(0, 2, [1, 1])]),
        ("too many types", [(0, 0, [1, 1])]),
        ("descending", [(4, 5, [1]), (0, 1, [1])]),
        ("two that meet", [(0, 1, [1]), (1, 2, [1])]),
        ("a negative offset", [(-1, 0, [1])]),
        ("after all", [(19, 20, [1])]),
        ("far after all", [(100, 101, [1])]),
        ("one of each", [(0, 3, [0, 1, 2, 3])]),
        ("once more", [(1, 1, [1])]),
        ("one of them is bad", [(3, 4, [1])]),
        ("the good one of them", [(4, 4, [1])]),
        ("a renewal without the flag", [(5, 5, [_RENEW])]),
        ("nothing", []),
    ):
        member.acknowledge(label, {0: ranges})
    member.acknowledge("never fetched", {1: [(0, 0, [1])]})
    member.acknowledge("not there", {7: [(0, 0, [1])]})
    member.acknowledge("one without any", {0: [(5, 5, [1])]})
    member.acknowledge("a renewal in version 1", {0: [(6, 6, [_RENEW])]}, version=1)
    member.acknowledge("a renewal", {0: [(6, 6, [_RENEW])]}, is_renew_ack=True)
    member.acknowledge("a renewal and others", {0: [(6, 8, [_RENEW, 1, 2])]}, is_renew_ack=True)
    other = new("n", link="other")
    other.fetch("gets what was released", 0)
    other.acknowledge("another's record", {0: [(9, 9, [1])]})
    none = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    member.fetch("a renewal in a fetch", acks={0: [(9, 9, [_RENEW])]}, is_renew_ack=True, **none)
    member.fetch(
        "a renewal and a fetch",
        acks={0: [(9, 9, [_RENEW])]},
        is_renew_ack=True,
        **{**none, "max_records": 1},
    )
    member.acknowledge("closes", {}, share_session_epoch=-1)
    again = new("a", link="again")
    again.fetch("opens", 0, max_wait_ms=50)
    _write(s, topic, 2)
    again.fetch("acquires")
    again.fetch("accepts and fetches", acks={0: [(20, 20, [1])]}, max_wait_ms=50)
    again.fetch("releases and fetches", acks={0: [(21, 21, [2])]})
    again.fetch("wrong and fetches", acks={0: [(50, 51, [1])]}, max_wait_ms=50)
    again.fetch("a partition that only acknowledges joins", acks={2: [(0, 0, [1])]}, max_wait_ms=50)
    again.fetch("closes", acks={0: [(21, 21, [1])]}, share_session_epoch=-1)


def share_topic_deleted(s: Session) -> None:
    """Acknowledgements of a topic that was deleted."""
    topic = s.make_topic()
    new = _make_group(s, topic)
    _write(s, topic, 2)
    member = new()
    member.fetch("acquires", 0)
    s.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=20_000))
    s.until_gone(topic)
    time.sleep(0.2)
    member.acknowledge("of a topic that is gone", {0: [(0, 1, [1])]})


def share_of_nobody(s: Session) -> None:
    """A fetch for a group that no coordinator knows."""
    topic = s.make_topic()
    _write(s, topic, 1)
    _make_group(s, topic, what="other")
    member = _Member(s, s.topic_id(topic), s.name("nobody"))
    member.fetch("opens", 0)
    member.acknowledge("acknowledges", {0: [(0, 0, [1])]})


SCRIPTS = (
    share_sessions,
    share_acquisition,
    share_deliveries,
    share_acknowledgements,
    share_topic_deleted,
    share_of_nobody,
)
