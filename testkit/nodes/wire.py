"""A blocking client of one connection, and the few requests that most tests begin with.

It sends requests or exact bytes, and it receives a message, a frame, or the reason why there is none. Responsible for
the bytes of requests, for their correlation ids and for the end of a connection. Not responsible for many connections
at once: a load takes `frame` and the socket, and waits by itself (bench/).

It is one of the three Kafka clients in this repository, beside that of the node (pykbroker/net/client.py) and that of
the tools (pykbroker/tools/cluster/node_connection.py). `tests/test_clients.py` allows no fourth.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

from pykbroker_wire.apis import APIS
from pykbroker_wire.errors import DecodeError, ErrorCode
from pykbroker_wire.headers import decode_response, encode_request
from pykbroker_wire.messages import create_topics, incremental_alter_configs
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.records.batch import build_batch, iter_batches
from pykbroker_wire.records.record import iter_records

TOPIC, BROKER, GROUP = 2, 4, 32
CLIENT_ID: Final = "test"
_PIECE_BYTES: Final = 1 << 20
_UNKNOWN_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Closed(ConnectionError):
    """The broker ended the connection."""


class Verdict(Enum):
    """The reason why there is no answer."""

    CLOSED = "the connection was closed"
    #: The time of the client was over, and the connection is open. A late answer would be taken for the next one.
    SILENT = "no answer"


CLOSED: Final = Verdict.CLOSED
SILENT: Final = Verdict.SILENT


def batch(*values: bytes, timestamp: int | None = None, **fields: Any) -> bytes:
    now_ms = time.time_ns() // 1_000_000 if timestamp is None else timestamp
    return build_batch([(None, value, (), now_ms) for value in values], **fields)


def frame_of(
    request: TopLevel, version: int | None = None, *, correlation_id: int = 1, client_id: str | None = CLIENT_ID
) -> bytes:
    """Return a whole request, size included. `version`: None is the newest one."""
    return b"".join(encode_request(request.API_KEY, _version_of(request, version), correlation_id, client_id, request))


def _version_of(request: TopLevel, version: int | None) -> int:
    return APIS[request.API_KEY].max_version if version is None else version


def framed(body: bytes) -> bytes:
    """Return bytes with their size, whatever they are."""
    return struct.pack(">i", len(body)) + body


def any_header(
    key: int, version: int, *, client_id: bytes = b"c", client_id_size: int | None = None, flexible: bool = False
) -> bytes:
    """Return a request header with correlation id 7, also of an API, a version or a client id that cannot be.

    `flexible`: with the tags of header version 2, of which there are none."""
    size = len(client_id) if client_id_size is None else client_id_size
    return struct.pack(">hhih", key, version, 7, size) + client_id + (b"\0" if flexible else b"")


class Wire:
    """`with Wire("localhost:9092") as wire: wire.call(request)`."""

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 60,
        receive_buffer: int | None = None,
        tls: ssl.SSLContext | None = None,
        client_id: str | None = CLIENT_ID,
        source: str | None = None,
    ) -> None:
        """Connect. `timeout`: the seconds for each piece of an answer. `source`: the own IP address."""
        bracketed, _, port = address.rpartition(":")
        # The brackets of an IPv6 address are no part of the name in a certificate.
        host = bracketed.strip("[]")
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        try:
            if source is not None:
                self.socket.bind((source, 0))
            self.socket.connect((host, int(port)))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        except BaseException:
            self.socket.close()
            raise
        #: the client id of the next requests
        self.client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- sending -------------------------------------------------------------------------------------------------------

    def frame(self, request: TopLevel, version: int | None = None) -> bytes:
        """Return the next request of this connection, size included, without sending it."""
        self._correlation_id += 1
        return frame_of(request, version, correlation_id=self._correlation_id, client_id=self.client_id)

    def send(self, request: TopLevel, version: int | None = None) -> tuple[int, int]:
        """Send a request. The result is what `receive` needs for its answer."""
        self.socket.sendall(self.frame(request, version))
        return request.API_KEY, _version_of(request, version)

    def send_bytes(self, data: bytes) -> None:
        """Send exactly these bytes. If the broker closes the connection before it has all, `answer` says it."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    # -- receiving: a message, or a frame without its size -------------------------------------------------------------

    def call(self, request: TopLevel, version: int | None = None) -> Any:
        """Send a request and return its answer. Raises Closed and TimeoutError."""
        api_key, version = self.send(request, version)
        return self._answer_to_last(api_key, version, self.read_frame())

    def ask(self, request: TopLevel, version: int | None = None, timeout_s: float | None = None) -> Any:
        """Send a request. Return its answer, or CLOSED, or SILENT. Raises DecodeError for an answer of other bytes."""
        self.send_bytes(self.frame(request, version))
        frame = self.answer(timeout_s)
        if isinstance(frame, Verdict):
            return frame
        return self._answer_to_last(request.API_KEY, _version_of(request, version), frame)

    def receive(self, api_key: int, version: int) -> Any:
        """Return the next answer, which is one to a request of this API in this version."""
        return decode_response(api_key, version, self.read_frame())[1]

    def answer(self, timeout_s: float | None = None) -> bytes | Verdict:
        """Return the next frame, or CLOSED, or SILENT. `timeout_s`: None is the timeout of this client."""
        before = self.socket.gettimeout()
        self.socket.settimeout(before if timeout_s is None else timeout_s)
        try:
            return self.read_frame()
        except TimeoutError:
            return SILENT
        except Closed:
            return CLOSED
        finally:
            self.socket.settimeout(before)

    def read_frame(self) -> bytes:
        """Return the next frame. Raises Closed and TimeoutError."""
        return self.read(int.from_bytes(self.read(4), "big"))

    def read(self, count: int) -> bytes:
        """Return exactly these bytes. Raises Closed and TimeoutError."""
        data = self._piece(count) if count else b""
        if len(data) == count:
            return data
        whole = bytearray(data)
        while len(whole) < count:
            whole += self._piece(count - len(whole))
        return bytes(whole)

    def _piece(self, most: int) -> bytes:
        try:
            piece = self.socket.recv(min(most, _PIECE_BYTES))
        except (ConnectionResetError, ssl.SSLEOFError) as error:
            raise Closed(str(error)) from error
        if not piece:
            raise Closed("the broker closed the connection")
        return piece

    def is_readable(self) -> bool:
        """Return True if the next bytes or the end of a plain connection have arrived."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def has_ended(self) -> bool:
        """Return True if the end of a plain connection has arrived, and no byte before it. Does not wait."""
        try:
            return self.is_readable() and not self.socket.recv(1, socket.MSG_PEEK)
        except ConnectionResetError:
            return True

    def closed_by_the_broker(self) -> bool:
        """Wait for the end."""
        try:
            self.read(1)
        except Closed:
            return True
        except TimeoutError:
            return False
        return False

    def _answer_to_last(self, api_key: int, version: int, frame: bytes) -> Any:
        number, message = decode_response(api_key, version, frame)
        if number != self._correlation_id:
            raise DecodeError(f"the answer has correlation id {number}, the request has {self._correlation_id}")
        return message

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

    def quorum(self) -> Any:
        """Return the answer of DescribeQuorum; a node that knows no leader may answer without the partition."""
        asked = RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)])
        return self.call(DescribeQuorumRequest(topics=[asked]))

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
        deadline = time.monotonic() + 120
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
