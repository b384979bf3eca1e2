"""Transactions per second: one Produce of a few records and one EndTxn each, as raw requests and with librdkafka.

The raw producers use transaction.version 2 (KIP-890): the first Produce adds its partition by itself, and the EndTxn
response has the epoch of the next transaction. A partition that still waits for the markers of the last transaction
answers CONCURRENT_TRANSACTIONS, and the request is sent again, as clients do.
"""

from __future__ import annotations

import heapq
import selectors
import struct
import time
import uuid

import crc32c

from bench import raw
from bench.measurements import Figure, Measure, Measurement, new_topic
from bench.servers import Server
from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch

END_TXN_VERSION = 5
#: the position of producer id and epoch in a batch
_PRODUCER_AT = 43
_CONCURRENT_TRANSACTIONS = 51
_RETRY_S = 0.001


class _Producer:
    """One connection with its transactional id and its partition; one transaction at a time."""

    def __init__(self, address: tuple[str, int], topic_id: bytes, partition: int, records: int) -> None:
        self._client = raw.Client(address)
        self.socket = self._client.socket
        self._id = f"bench-{uuid.uuid4().hex[:12]}"
        self._producer_id, self._epoch = self._init()
        now = int(time.time() * 1000)
        self._batch = build_batch(
            [(None, bytes(100), (), now)] * records,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [PartitionProduceData(index=partition, records=self._batch)]
        body = ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)],
        )
        self._frame = bytearray(self._client.frame(body, raw.PRODUCE_VERSION))
        self._at = self._frame.index(self._batch)
        self._received = bytearray()
        self._ending = False
        self.began = 0.0
        self.retries = 0

    def _init(self) -> tuple[int, int]:
        deadline = time.monotonic() + 60
        while True:
            self._client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[self._id]), 4)
            answer = self._client.call(
                InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=60_000), 4
            )
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            if time.monotonic() > deadline:
                raise RuntimeError(f"InitProducerId: error {answer.error_code}")
            time.sleep(0.05)

    def begin(self) -> None:
        self.began = time.perf_counter()
        self.produce()

    def produce(self) -> None:
        frame, at = self._frame, self._at
        struct.pack_into(">qh", frame, at + _PRODUCER_AT, self._producer_id, self._epoch)
        with memoryview(frame)[at + raw._CRC_FROM : at + len(self._batch)] as covered:
            struct.pack_into(">I", frame, at + raw._CRC_AT, crc32c.crc32c(covered))
        self._ending = False
        self.socket.sendall(frame)

    def _end(self) -> None:
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=True
        )
        self._ending = True
        self._client.send(request, END_TXN_VERSION)

    def receive(self) -> str:
        """Return the result: "more" to come, "retry" the Produce later, or "done" with the transaction."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the broker closed a connection")
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return "more"
        frame = bytes(self._received[4:])
        self._received.clear()
        if self._ending:
            answer = decode_response(EndTxnRequest.API_KEY, END_TXN_VERSION, frame)[1]
            assert isinstance(answer, EndTxnResponse)
            if answer.error_code:
                raise RuntimeError(f"EndTxn was answered with error {answer.error_code}")
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            return "done"
        (error,) = struct.unpack_from(">h", frame, raw._PRODUCE_ERROR_AT - 4)
        if error == _CONCURRENT_TRANSACTIONS:
            self.retries += 1
            return "retry"
        if error:
            raise RuntimeError(f"Produce was answered with error {error}")
        self._end()
        return "more"

    def close(self) -> None:
        self._client.close()


def run(address: tuple[str, int], topic_id: bytes, *, producers: int, records: int, seconds: float) -> raw.Load:
    """Let each producer end transactions one by one for a time; latencies are per transaction."""
    lanes = [_Producer(address, topic_id, partition, records) for partition in range(producers)]
    load = raw.Load()
    later: list[tuple[float, int]] = []
    selector = selectors.DefaultSelector()
    for number, lane in enumerate(lanes):
        selector.register(lane.socket, selectors.EVENT_READ, number)
    cpu, start = time.process_time(), time.perf_counter()
    end = start + seconds
    for lane in lanes:
        lane.begin()
    running = producers
    while running:
        wait = max(0.0, later[0][0] - time.perf_counter()) if later else 30.0
        for key, _ in selector.select(wait):
            lane = lanes[key.data]
            came = lane.receive()
            now = time.perf_counter()
            if came == "retry":
                heapq.heappush(later, (now + _RETRY_S, key.data))
            elif came == "done":
                load.requests += 1
                load.latencies.append(now - lane.began)
                if now < end:
                    lane.begin()
                else:
                    running -= 1
        while later and later[0][0] <= time.perf_counter():
            lanes[heapq.heappop(later)[1]].produce()
    load.seconds = time.perf_counter() - start
    load.driver_cpu = time.process_time() - cpu
    load.records = load.requests * records
    for lane in lanes:
        lane.close()
    return load


def _transactions(producers: int, records: int) -> Measure:
    def measure(server: Server, seconds: float) -> dict[str, float]:
        _, topic_id = new_topic(server, producers)
        # The coordinator's topic then exists and its code is warm, for both sides.
        run(server.address, topic_id, producers=producers, records=records, seconds=2.0)
        cpu = server.cpu_seconds()
        load = run(server.address, topic_id, producers=producers, records=records, seconds=seconds)
        return {
            "throughput": load.requests_per_second,
            "p50": load.percentile(0.5) * 1e3,
            "p99": load.percentile(0.99) * 1e3,
            "broker CPU, µs/transaction": (server.cpu_seconds() - cpu) / load.requests * 1e6,
            "driver, share of a core": load.driver_share,
        }

    return measure


def _librdkafka(records: int) -> Measure:
    def measure(server: Server, seconds: float) -> dict[str, float]:
        from confluent_kafka import Producer

        name, _ = new_topic(server)
        producer = Producer(
            {"bootstrap.servers": server.bootstrap, "transactional.id": f"bench-{name}", "linger.ms": 0}
        )
        producer.init_transactions(60)

        def transactions(until: float) -> int:
            count = 0
            while time.perf_counter() < until:
                producer.begin_transaction()
                for _ in range(records):
                    producer.produce(name, bytes(100))
                producer.commit_transaction(30)
                count += 1
            return count

        transactions(time.perf_counter() + 1.0)
        begin = time.perf_counter()
        count = transactions(begin + seconds)
        return {"throughput": count / (time.perf_counter() - begin)}

    return measure


_THROUGHPUT = Figure("throughput", "txn/s", target=2)
_LATENCY = (Figure("p50", "ms", more_is_better=False), Figure("p99", "ms", more_is_better=False, target=1))

TRANSACTIONS = [
    *(
        Measurement(
            f"transactions of {records} x 100 B, {'one producer' if producers == 1 else f'{producers} producers'}",
            _transactions(producers, records),
            (_THROUGHPUT, *_LATENCY),
        )
        for records in (1, 10, 100)
        for producers in (1, 20)
    ),
    Measurement("transactions of 10 x 100 B, librdkafka", _librdkafka(10), (Figure("throughput", "txn/s", target=1),)),
]
