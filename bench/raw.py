"""A raw load: prebuilt requests over plain sockets, the same for every broker.

Produce 13 with idempotent batches and Fetch 18, pipelined to a fixed depth. The driver counts responses and checks
their error codes, but decodes nothing else, so it needs little CPU; its share of a core is in the result. Not
responsible for starting brokers, for the meaning of the numbers, or for connections and frames, which are those of
the tests' client (testkit/nodes/wire.py).
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import crc32c

from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.compression import Codec
from testkit.nodes.wire import Wire, frame_of

Address = tuple[str, int]
CLIENT_ID = "bench"
PRODUCE_VERSION = 13
FETCH_VERSION = 18
_SIZE = struct.Struct(">i")
_INT16 = struct.Struct(">h")
#: in a Produce 13 response for one partition: correlation id, tags, lengths, topic id, index
_PRODUCE_ERROR_AT = 4 + 4 + 1 + 1 + 16 + 1 + 4
_SEQUENCE_AT = 53
_CRC_AT = 17
_CRC_FROM = 21


class Client(Wire):
    """The client that prepares a measurement. A load takes its socket."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None = None) -> None:
        host, port = address
        super().__init__(f"{host}:{port}", timeout=30, tls=tls, client_id=CLIENT_ID)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create with the broker's default replication factor, wait until every partition has a leader, return the
        topic id."""
        from pykbroker_wire.messages.create_topics import CreatableTopicConfig

        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        result = self.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0]
        if result.error_code:
            raise RuntimeError(f"creating {name}: error {result.error_code} {result.error_message}")
        self.wait_for_leaders(name, range(partitions))
        return bytes(result.topic_id)

    def wait_for_leaders(self, name: str, indexes: Iterable[int], timeout: float = 30) -> None:
        """Wait until this broker itself leads these partitions, which may be later than the metadata."""
        asked = ListOffsetsTopic(
            name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes]
        )
        deadline = time.monotonic() + timeout
        while True:
            found = self.call(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7).topics[0].partitions
            if len(found) == len(asked.partitions) and not any(partition.error_code for partition in found):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} got no leaders within {timeout} s")
            time.sleep(0.01)

    def producer_id(self) -> int:
        deadline = time.monotonic() + 30
        while True:
            answer = self.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
            if not answer.error_code:
                return int(answer.producer_id)
            if time.monotonic() > deadline:
                raise RuntimeError(f"InitProducerId: error {answer.error_code}")
            time.sleep(0.01)

    def end_offset(self, topic: str, partition: int) -> int:
        asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])
        found = self.call(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7).topics[0].partitions[0]
        return int(found.offset)


def fetched(frame: Buffer) -> FetchResponse:
    """Return the response to a Fetch of FETCH_VERSION in a frame (without its size)."""
    answer = decode_response(FetchRequest.API_KEY, FETCH_VERSION, frame)[1]
    assert isinstance(answer, FetchResponse)
    return answer


def records_of(partition: PartitionData) -> Buffer:
    records = partition.records or b""
    assert isinstance(records, bytes | bytearray | memoryview), "a response that was decoded has its records in one"
    return records


def make_batch(records: int, value_bytes: int, producer_id: int, codec: Codec = Codec.NONE) -> bytearray:
    """Return an idempotent batch of incompressible values; with a codec, of values that it makes half as long."""
    now = int(time.time() * 1000)
    random_bytes = value_bytes // 2 if codec else value_bytes
    values = [os.urandom(random_bytes) + bytes(value_bytes - random_bytes) for _ in range(records if codec else 1)]
    if not codec:
        values *= records
    return bytearray(
        build_batch(
            [(None, value, (), now) for value in values],
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
    )


class _ProduceLane:
    """One connection with its producer and partition."""

    def __init__(
        self,
        address: Address,
        topic_id: bytes,
        partition: int,
        records: int,
        value_bytes: int,
        tls: ssl.SSLContext | None,
        codec: Codec,
    ) -> None:
        client = Client(address, tls)
        self.socket = client.socket
        self.records = records
        self.batch = make_batch(records, value_bytes, client.producer_id(), codec)
        self.sequence = 0
        body = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    topic_id=topic_id, partition_data=[PartitionProduceData(index=partition, records=bytes(self.batch))]
                )
            ],
        )
        self.frame = bytearray(client.frame(body, PRODUCE_VERSION))
        self.at = self.frame.index(bytes(self.batch))
        self.received = bytearray()
        self.outstanding = 0
        #: when the one request in flight was sent
        self.sent_at = 0.0

    def next_frame(self) -> bytes:
        """Return the next request, with a new sequence and a new CRC."""
        frame, at = self.frame, self.at
        struct.pack_into(">i", frame, at + _SEQUENCE_AT, self.sequence)
        self.sequence = (self.sequence + self.records) & 0x7FFFFFFF
        view = memoryview(frame)[at + _CRC_FROM : at + len(self.batch)]
        struct.pack_into(">I", frame, at + _CRC_AT, crc32c.crc32c(view))
        view.release()
        return bytes(frame)

    def take_answers(self, data: bytes) -> int:
        """Count whole answers and check each one's error code."""
        received = self.received
        received += data
        position = count = 0
        end = len(received)
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(received, position)
            if end - position - 4 < size:
                break
            (error,) = _INT16.unpack_from(received, position + _PRODUCE_ERROR_AT)
            if error:
                raise RuntimeError(f"Produce was answered with error {error}")
            position += 4 + size
            count += 1
        del received[:position]
        return count


@dataclass
class Load:
    """The result of one run. Latencies (in seconds) exist only with one request in flight on each connection."""

    requests: int = 0
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    driver_cpu: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6

    @property
    def driver_share(self) -> float:
        """The share of one core."""
        return self.driver_cpu / self.seconds

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _received(sock: socket.socket) -> bytes:
    """Return all bytes that are there, with those that TLS has decrypted, which a selector does not report."""
    data = sock.recv(262144)
    while isinstance(sock, ssl.SSLSocket) and sock.pending():
        data += sock.recv(262144)
    return data


def produce(
    leaders: Address | Mapping[int, Address],
    topic_id: bytes,
    *,
    connections: int,
    in_flight: int,
    records: int,
    value_bytes: int,
    seconds: float,
    partitions: int = 0,
    max_bytes: int = 1 << 62,
    tls: ssl.SSLContext | None = None,
    codec: Codec = Codec.NONE,
) -> Load:
    """Keep `in_flight` unanswered requests on each connection for a time, or until about `max_bytes` are written. Each
    connection has its own partition, or they share the first `partitions`. `leaders`: the one broker that leads all, or
    the leader of each partition."""
    lanes = []
    for number in range(connections):
        partition = number % (partitions or connections)
        address = leaders[partition] if isinstance(leaders, Mapping) else leaders
        lanes.append(_ProduceLane(address, topic_id, partition, records, value_bytes, tls, codec))
    max_requests = max_bytes // len(lanes[0].batch)
    load = Load()
    if connections == 1 and in_flight == 1:
        lane = lanes[0]
        cpu, start = time.process_time(), time.perf_counter()
        end = start + seconds
        now = start
        while now < end and load.requests < max_requests:
            frame = lane.next_frame()
            before = time.perf_counter()
            lane.socket.sendall(frame)
            while not lane.take_answers(lane.socket.recv(65536)):
                pass
            now = time.perf_counter()
            load.latencies.append(now - before)
            load.requests += 1
    else:
        selector = selectors.DefaultSelector()
        for lane in lanes:
            selector.register(lane.socket, selectors.EVENT_READ, lane)
        cpu, start = time.process_time(), time.perf_counter()
        end = start + seconds
        single = in_flight == 1
        for lane in lanes:
            for _ in range(in_flight):
                lane.sent_at = time.perf_counter()
                lane.socket.sendall(lane.next_frame())
                lane.outstanding += 1
        running = len(lanes)
        while running:
            for key, _ in selector.select(30):
                lane = key.data
                data = _received(lane.socket)
                if not data:
                    raise ConnectionError("the broker closed a connection")
                answered = lane.take_answers(data)
                load.requests += answered
                lane.outstanding -= answered
                now = time.perf_counter()
                if single and answered:
                    load.latencies.append(now - lane.sent_at)
                if now < end and load.requests < max_requests:
                    if answered:
                        lane.sent_at = now
                        lane.socket.sendall(b"".join([lane.next_frame() for _ in range(answered)]))
                        lane.outstanding += answered
                elif not lane.outstanding:
                    selector.unregister(lane.socket)
                    running -= 1
    load.seconds = time.perf_counter() - start
    load.driver_cpu = time.process_time() - cpu
    load.records = load.requests * records
    load.bytes = load.requests * len(lanes[0].batch)
    for lane in lanes:
        lane.socket.close()
    return load


def fetch(
    address: Address,
    topic_id: bytes,
    end_offset: int,
    *,
    fetch_bytes: int,
    in_flight: int,
    seconds: float,
    tls: ssl.SSLContext | None = None,
) -> Load:
    """Read the same megabytes again and again, `in_flight` requests on one connection."""
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=fetch_bytes,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=0, fetch_offset=0, current_leader_epoch=-1, partition_max_bytes=fetch_bytes
                    )
                ],
            )
        ],
    )
    client = Client(address, tls)
    frame = client.frame(request, FETCH_VERSION)
    sock = client.socket
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
    sock.sendall(frame)
    first = client.read_frame()
    partition = fetched(first).responses[0].partitions[0]
    read = len(records_of(partition))
    if partition.error_code or read < fetch_bytes * 0.5:
        raise RuntimeError(f"Fetch: error {partition.error_code}, {read} bytes")
    buffer = memoryview(bytearray(4 * 1024 * 1024))
    load = Load()
    cpu, start = time.process_time(), time.perf_counter()
    end = start + seconds
    for _ in range(in_flight):
        sock.sendall(frame)
    outstanding = in_flight
    head = memoryview(bytearray(4))
    while outstanding:
        got = 0
        while got < 4:
            got += sock.recv_into(head[got:], 4 - got)
        (left,) = _SIZE.unpack(head)
        load.bytes += left
        while left:
            count = sock.recv_into(buffer, min(left, len(buffer)))
            if not count:
                raise ConnectionError("the broker closed the connection")
            left -= count
        load.requests += 1
        outstanding -= 1
        if time.perf_counter() < end:
            sock.sendall(frame)
            outstanding += 1
    load.seconds = time.perf_counter() - start
    load.driver_cpu = time.process_time() - cpu
    client.close()
    return load


class IdleConsumers:
    """Connections that long-poll in incremental fetch sessions and read nothing."""

    def __init__(self, address: Address, topic_id: bytes, count: int, wait_ms: int = 500) -> None:
        self._sockets: list[socket.socket] = []
        self._frames: dict[socket.socket, list[int]] = {}
        self._selector = selectors.DefaultSelector()
        self.polls = 0
        asked = FetchTopic(
            topic_id=topic_id,
            partitions=[
                FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=-1, partition_max_bytes=1 << 20)
            ],
        )
        for _ in range(count):
            client = Client(address)
            opening = FetchRequest(
                max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, session_id=0, session_epoch=0, topics=[asked]
            )
            answer = client.call(opening, FETCH_VERSION)
            if answer.error_code:
                raise RuntimeError(f"Fetch: error {answer.error_code}")
            self._sockets.append(client.socket)
            self._frames[client.socket] = [answer.session_id, 1]
            self._selector.register(client.socket, selectors.EVENT_READ)
        self._wait_ms = wait_ms
        self._open = False

    def _poll(self, sock: socket.socket) -> None:
        state = self._frames[sock]
        request = FetchRequest(
            max_wait_ms=self._wait_ms, min_bytes=1, max_bytes=50 << 20, session_id=state[0], session_epoch=state[1]
        )
        sock.sendall(frame_of(request, FETCH_VERSION, correlation_id=state[1], client_id=CLIENT_ID))
        state[1] += 1

    def run(self, seconds: float) -> None:
        """Poll for a time; every connection always has one fetch open, between two calls too."""
        for sock in self._sockets if not self._open else ():
            self._poll(sock)
        self._open = True
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for key, _ in self._selector.select(1):
                readable = key.fileobj
                assert isinstance(readable, socket.socket)
                if fetched(memoryview(readable.recv(65536))[4:]).error_code:
                    raise RuntimeError("a fetch of an idle consumer was refused")
                self.polls += 1
                self._poll(readable)

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
