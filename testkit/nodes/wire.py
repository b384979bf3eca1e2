"""A blocking client of one connection, and the few requests that most tests begin with."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from pykbroker_wire.apis import APIS
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import decode_response, encode_request
from pykbroker_wire.messages import create_topics, incremental_alter_configs
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch, iter_batches
from pykbroker_wire.records.record import iter_records

TOPIC, BROKER, GROUP = 2, 4, 32
_UNKNOWN_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Closed(ConnectionError):
    """The broker ended the connection."""


def batch(*values: bytes, timestamp: int | None = None, **fields: Any) -> bytes:
    now_ms = time.time_ns() // 1_000_000 if timestamp is None else timestamp
    return build_batch([(None, value, (), now_ms) for value in values], **fields)


class Wire:
    """`with Wire("localhost:9092") as wire: wire.call(request)`."""

    def __init__(
        self, address: str, *, timeout: float = 10, receive_buffer: int | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect((host.strip("[]"), int(port)))
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        except BaseException:
            self.socket.close()
            raise
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, request: Any, version: int | None = None) -> tuple[int, int]:
        version = APIS[request.API_KEY].max_version if version is None else version
        self._correlation_id += 1
        frames = encode_request(request.API_KEY, version, self._correlation_id, "test", request)
        self.socket.sendall(b"".join(frames))
        return request.API_KEY, version

    def receive(self, api_key: int, version: int) -> Any:
        size = int.from_bytes(self.read(4), "big")
        return decode_response(api_key, version, self.read(size))[1]

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except (ConnectionResetError, ssl.SSLEOFError) as error:
                raise Closed(str(error)) from error
            if not piece:
                raise Closed("the broker closed the connection")
            data += piece
        return data

    def closed_by_the_broker(self) -> bool:
        """Wait for the end."""
        try:
            self.read(1)
        except Closed:
            return True
        except TimeoutError:
            return False
        return False

    def call(self, request: Any, version: int | None = None) -> Any:
        return self.receive(*self.send(request, version))

    # -- requests of most tests ----------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, replication: int = 1, **configs: object) -> Any:
        """Create a topic. Keys of `configs` are written with underscores. Fails unless the topic is there
        afterwards."""
        answer = self.try_create(
            name, partitions, replication, {key.replace("_", "."): str(value) for key, value in configs.items()}
        )
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    def try_create(self, name: str, partitions: int, replication: int, configs: Mapping[str, str]) -> Any:
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication,
            configs=[create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        return self.call(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0]

    def metadata(self, *names: str, create: bool = False) -> Any:
        from pykbroker_wire.messages.metadata import MetadataRequestTopic

        topics = [MetadataRequestTopic(name=name) for name in names] if names else None
        return self.call(MetadataRequest(topics=topics, allow_auto_topic_creation=create))

    def produce(self, topic: str, records: bytes, *, partition: int = 0, acks: int = -1, version: int = 12) -> Any:
        """Repeat it for a while, as every client does, until the broker knows what the controller knows."""
        deadline = time.monotonic() + 5
        while True:
            answer = self.produce_once(topic, records, partition=partition, acks=acks, version=version)
            if answer.error_code not in _UNKNOWN_YET or time.monotonic() > deadline:
                return answer
            time.sleep(0.01)

    def produce_once(
        self, topic: str | bytes, records: bytes, *, partition: int = 0, acks: int = -1, version: int = 12
    ) -> Any:
        """`topic`: its name, or, from version 13 on, its id."""
        data = TopicProduceData(partition_data=[PartitionProduceData(index=partition, records=records)])
        if isinstance(topic, bytes):
            data.topic_id = topic
        else:
            data.name = topic
        request = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=[data])
        return self.call(request, version).responses[0].partition_responses[0]

    def fetch_request(
        self, topic: str, offset: int = 0, *, partition: int = 0, max_wait_ms: int = 500, **fields: Any
    ) -> FetchRequest:
        asked = FetchPartition(
            partition=partition, fetch_offset=offset, current_leader_epoch=-1, partition_max_bytes=1 << 26
        )
        defaults: dict[str, Any] = {"min_bytes": 1, "max_bytes": 1 << 26, "session_epoch": -1}
        return FetchRequest(
            max_wait_ms=max_wait_ms, topics=[FetchTopic(topic=topic, partitions=[asked])], **{**defaults, **fields}
        )

    def fetch(self, topic: str, offset: int = 0, *, partition: int = 0, max_wait_ms: int = 500, **fields: Any) -> Any:
        """Fetch from the leader, because in this version no follower answers."""
        answer = self.call(
            self.fetch_request(topic, offset, partition=partition, max_wait_ms=max_wait_ms, **fields), 10
        )
        return answer.responses[0].partitions[0]

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        """Return every value of a partition; while its log is being recovered, the fetch is repeated, as in every
        client."""
        found: list[bytes] = []
        offset = 0
        deadline = time.monotonic() + 60
        while True:
            answer = self.fetch(topic, offset, partition=partition, max_wait_ms=0)
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            assert answer.error_code == ErrorCode.NONE, answer
            if not answer.records:
                return found
            for position, header in iter_batches(answer.records):
                found += [bytes(record.value or b"") for record in iter_records(answer.records, position, header)]
                offset = header.next_offset

    def alter(self, resource_type: int, name: str, values: Mapping[str, str | None]) -> Any:
        """Send IncrementalAlterConfigs: SET, or DELETE for None."""
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=[
                        incremental_alter_configs.AlterableConfig(
                            name=key, config_operation=0 if value is not None else 1, value=value
                        )
                        for key, value in values.items()
                    ],
                )
            ],
            validate_only=False,
        )
        return self.call(request).responses[0]

    def describe(self, resource_type: int, name: str, keys: Iterable[str] | None = None) -> dict[str, Any]:
        resource = DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None if keys is None else list(keys)
        )
        found = self.call(DescribeConfigsRequest(resources=[resource])).results[0]
        assert found.error_code == ErrorCode.NONE, found
        return {entry.name: entry for entry in found.configs}
