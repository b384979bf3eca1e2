"""Measure the cost of one message, for README.md: `python wire/bench.py`. Each figure is the best of several rounds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from timeit import repeat

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pykbroker_wire import headers
from pykbroker_wire.messages import fetch, metadata, produce

TOPIC = b"t" * 16


def measure(name: str, call: Callable[[], object], rounds: int = 20_000) -> None:
    print(f"{name:48} {min(repeat(call, number=rounds, repeat=7)) / rounds * 1e6:8.2f} µs")


def main() -> None:
    partition = produce.PartitionProduceData(index=3, records=bytes(170))
    topic = produce.TopicProduceData(topic_id=TOPIC, partition_data=[partition])
    request = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    frame = memoryview(bytearray(b"".join(headers.encode_request(0, 13, 7, "client-1", request))))[4:]
    _, start = headers.RequestHeader.decode(frame)
    measure("request header, decode", lambda: headers.RequestHeader.decode(frame))
    measure("Produce 13, one partition, decode", lambda: produce.ProduceRequest.decode(frame, start, 13))

    def produced() -> produce.ProduceResponse:
        answer = produce.PartitionProduceResponse(index=3, base_offset=12_345, log_start_offset=0)
        return produce.ProduceResponse(
            responses=[produce.TopicProduceResponse(topic_id=TOPIC, partition_responses=[answer])]
        )

    response = produced()
    body = response.encode(13)
    measure("Produce 13 response, make", produced)
    measure("Produce 13 response, encode", lambda: response.encode(13))
    measure("response header and size", lambda: headers.encode_response(7, 0, 13, body))

    wanted = fetch.FetchPartition(partition=1, fetch_offset=99, partition_max_bytes=1 << 20)
    fetching = fetch.FetchRequest(
        max_wait_ms=500, session_id=5, topics=[fetch.FetchTopic(topic_id=TOPIC, partitions=[wanted])]
    ).encode_bytes(18)
    again = fetch.FetchRequest(max_wait_ms=500, session_id=5).encode_bytes(18)
    measure("Fetch 18, one partition, decode", lambda: fetch.FetchRequest.decode(memoryview(fetching), 0, 18))
    measure("Fetch 18, nothing changed, decode", lambda: fetch.FetchRequest.decode(memoryview(again), 0, 18))

    slices = [memoryview(bytes(100_000)), memoryview(bytes(1_000))]
    data = fetch.PartitionData(partition_index=1, high_watermark=100, last_stable_offset=100, records=slices)
    fetched = fetch.FetchResponse(
        session_id=5, responses=[fetch.FetchableTopicResponse(topic_id=TOPIC, partitions=[data])]
    )
    received = memoryview(fetched.encode_bytes(18))
    measure("Fetch 18 response, two slices, encode", lambda: fetched.encode(18))
    measure("Fetch 18 response, decode", lambda: fetch.FetchResponse.decode(received, 0, 18))

    described = metadata.MetadataResponse(
        topics=[
            metadata.MetadataResponseTopic(
                name="topic",
                partitions=[
                    metadata.MetadataResponsePartition(partition_index=n, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])
                    for n in range(1_000)
                ],
            )
        ]
    )
    measure("Metadata 13 response, 1,000 partitions, encode", lambda: described.encode(13), 50)


if __name__ == "__main__":
    main()
