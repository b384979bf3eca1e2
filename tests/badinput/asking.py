"""Decoded requests over a separate connection. The result is the decoded response, CLOSED or SILENT."""

from __future__ import annotations

from typing import Any

from pykbroker_wire.headers import decode_response, encode_request
from pykbroker_wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.primitives import TopLevel
from tests.badinput.watched import CLOSED, SILENT, RawClient, WatchedNode

CLIENT_ID = "badinput"


class Asker:
    def __init__(self, node: WatchedNode) -> None:
        self.node = node
        self.client = RawClient(node.port)
        self._correlation_id = 0

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.socket.close()

    def ask(
        self, request: TopLevel, version: int | None = None, timeout_s: float = 10, *, client_id: str = CLIENT_ID
    ) -> Any:
        """Return the decoded response, or CLOSED, or SILENT."""
        version = request.MAX_VERSION if version is None else version
        self._correlation_id += 1
        frame = b"".join(encode_request(request.API_KEY, version, self._correlation_id, client_id, request))
        answer = self.client.ask(frame, timeout_s)
        if not isinstance(answer, bytes):
            return answer
        correlation_id, message = decode_response(request.API_KEY, version, answer)
        assert correlation_id == self._correlation_id
        return message

    def is_served(self) -> None:
        answer = self.ask(MetadataRequest(topics=[]))
        assert answer is not CLOSED
        assert answer is not SILENT
        assert len(answer.brokers) == 1

    def make_topic(self, name: str, **configs: str) -> str:
        topic = CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        made = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10000)).topics[0]
        assert made.error_code in (0, 36), made.error_message
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        while (
            any(p.error_code for p in self.ask(request).topics[0].partitions) or self.ask(request).topics[0].error_code
        ):
            pass
        return name

    def topic_id(self, name: str) -> bytes:
        topics = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics
        return bytes(topics[0].topic_id)

    def make_coordinator(self) -> None:
        while self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])).coordinators[0].error_code:
            pass

    def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        acks: int = -1,
        partition: int = 0,
        transactional_id: str | None = None,
        version: int = 9,
    ) -> Any:
        """Return the response for the partition, or CLOSED, or SILENT."""
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])]
        request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=5000, topic_data=data)
        answer = self.ask(request, version, 20)
        return answer if answer in (CLOSED, SILENT) else answer.responses[0].partition_responses[0]
