"""Members of share groups and what they need, as short calls: builders for the scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from compat_tests.differential.session import NOW_MS, Session
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import read_share_group_state_summary as summaries
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
from pykbroker_wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from pykbroker_wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from pykbroker_wire.messages.share_fetch import AcknowledgementBatch as FetchAcknowledgement
from pykbroker_wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from pykbroker_wire.primitives import uuid_to_str
from pykbroker_wire.records.batch import build_batch

GROUP_CONFIG = 32
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LONG_MS = 2_000
#: The wait of a fetch that finds nothing. Apache Kafka leaves out a partition that it has not looked at by then.
EMPTY_MS = 500
#: longer than a session waits for an answer
TOO_LONG_MS = 60_000

#: first offset, last offset, and the types of an acknowledgement
Ack = tuple[int, int, Sequence[int]]


class ShareReader:
    """A member of the script's share group, and its session. `link` is its connection."""

    def __init__(self, s: Session, topic_id: bytes, group: str, name: str = "m", link: str = "") -> None:
        self._s = s
        self._topic_id = topic_id
        self._group = group
        self._name = name
        self._link = link
        self._epoch = 0

    def _call(self, label: str, request: Any, version: int | None) -> Any:
        self._s.send(request, version, link=self._link)
        return self._receive(label, request, version)

    def _receive(self, label: str, request: Any, version: int | None = None) -> Any:
        answer = self._s.receive(label, request, version, link=self._link)
        if answer is not None and answer.error_code == ErrorCode.NONE:
            self._epoch = request.share_session_epoch + 1
        return answer

    def _fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"group_id": self._group, "member_id": self._name, "share_session_epoch": self._epoch, **fields}

    def fetching(self, *indexes: int, acks: Mapping[int, Sequence[Ack]] | None = None, **fields: Any) -> Any:
        """Return the request of `fetch`."""
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
            # The fetch that opens a session waits until the leaders of its share partitions have read their states.
            "max_wait_ms": 500 if self._epoch else 5_000,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": [FetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else [],
        }
        return ShareFetchRequest(**{**defaults, **self._fields(fields)})

    def acknowledging(self, acks: Mapping[int, Sequence[Ack]], **fields: Any) -> Any:
        """Return the request of `acknowledge`."""
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
        return ShareAcknowledgeRequest(**{"topics": topics, **self._fields(fields)})

    def fetch(
        self,
        label: str,
        *indexes: int,
        acks: Mapping[int, Sequence[Ack]] | None = None,
        version: int | None = None,
        **fields: Any,
    ) -> Any:
        return self._call(label, self.fetching(*indexes, acks=acks, **fields), version)

    def acknowledge(
        self, label: str, acks: Mapping[int, Sequence[Ack]], version: int | None = None, **fields: Any
    ) -> Any:
        return self._call(label, self.acknowledging(acks, **fields), version)

    def peek(self, *indexes: int, **fields: Any) -> Any:
        """Fetch without keeping the answer, which has no error of the whole."""
        answer = self._s.ask(self.fetching(*indexes, **fields), on=self._link)
        assert answer.error_code == ErrorCode.NONE, answer
        self._epoch += 1
        return answer

    def wait(self, *indexes: int, **fields: Any) -> Callable[[str], Any]:
        """Send a fetch that waits for records. Call the result with a label to take the answer, which only an event
        before the end of the max wait can bring."""
        request = self.fetching(*indexes, **{"max_wait_ms": TOO_LONG_MS, **fields})
        self._s.send(request, link=self._link)
        return lambda label: self._receive(label, request)

    def together(self, label: str, *requests: Any) -> None:
        """Send requests in one write, each with the session epoch after that of the one before it, except for one
        that closes the session. Then take their answers."""
        epoch = self._epoch
        for request in requests:
            if request.share_session_epoch >= 0:
                request.share_session_epoch = epoch
                epoch += 1
        self._s.send_together(requests, link=self._link)
        for number, request in enumerate(requests, 1):
            self._receive(f"{label}: {number}", request)


def make_share_group(
    s: Session, topic: str, partitions: int = 1, what: str = "g", **configs: str
) -> partial[ShareReader]:
    """Return members of a group whose share partitions start at offset 0, as its coordinator would prepare them."""
    group, topic_id = s.name(what), s.topic_id(topic)
    if configs:
        set_group_configs(s, group, **configs)
    for index in range(partitions):
        until_share_state(s, topic_id, group, index)
    return partial(ShareReader, s, topic_id, group)


def until_share_state(s: Session, topic_id: bytes, group: str, partition: int = 0, start: int = 0) -> None:
    """Prepare a share partition that begins at `start`. -1 leaves the start to the group's configuration."""
    until_share_coordinator(s, topic_id, group, partition)
    asked = PartitionData(partition=partition, state_epoch=1, start_offset=start)
    request = InitializeShareGroupStateRequest(
        group_id=group, topics=[InitializeStateData(topic_id=topic_id, partitions=[asked])]
    )
    s.until(lambda: s.ask(request).results[0].partitions[0].error_code == 0, "the share partition has a state")


def until_share_coordinator(s: Session, topic_id: bytes, group: str, partition: int = 0) -> None:
    """Wait until the coordinator of a share partition has loaded its state."""
    key = f"{group}:{uuid_to_str(topic_id)}:{partition}"
    found = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    s.until(lambda: s.ask(found).coordinators[0].error_code == 0, "the share partition has a coordinator")
    request = share_summary(topic_id, group, partition)
    s.until(lambda: s.ask(request).results[0].partitions[0].error_code == 0, "the share coordinator has loaded")


def share_summary(topic_id: bytes, group: str, partition: int = 0) -> ReadShareGroupStateSummaryRequest:
    """Return the request for the stored start of a share partition."""
    asked = summaries.PartitionData(partition=partition, leader_epoch=-1)
    topics = [ReadStateSummaryData(topic_id=topic_id, partitions=[asked])]
    return ReadShareGroupStateSummaryRequest(group_id=group, topics=topics)


def set_group_configs(s: Session, group: str, **configs: str) -> None:
    """Set configurations of a share group, by their names without `share.`."""
    values = [AlterableConfig(name=f"share.{key.replace('_', '.')}", value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=GROUP_CONFIG, resource_name=group, configs=values)
    s.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    s.until_published()


def write_batch(s: Session, topic: str, records: int, partition: int = 0) -> None:
    """Write one batch."""
    batch = build_batch([(b"k", b"v%d" % number, (), NOW_MS) for number in range(records)])
    data = [PartitionProduceData(index=partition, records=batch)]
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(topic_id=s.topic_id(topic), partition_data=data)]
    )
    assert s.ask(request).responses[0].partition_responses[0].error_code == ErrorCode.NONE
