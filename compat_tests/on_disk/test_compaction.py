"""The same batches, compacted by Apache Kafka's cleaner and by pykbroker's: the remaining records are compared batch by
batch, and DumpLogSegments reads our files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compat_tests.node import Node, Pykbroker
from compat_tests.on_disk.test_dump_log_segments import COMPLAINTS
from compat_tests.tool_server import run_shared
from pykbroker_log.checkpoints import decode_offsets
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.txn_index import TxnIndex
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pykbroker_wire.records.batch import BatchHeader, build_batch, iter_batches, verify_crc
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.record import iter_records
from testkit import needs
from testkit.clients import wait_until
from testkit.nodes.wire import TOPIC, Wire
from testkit.oracle.kafka import ApacheKafka, kafka_libs

CONFIG = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.001",
    "log.cleaner.delete.retention.ms": "0",
    "log.initial.task.delay.ms": "100",
    # Transactions are written as they come, and ended by hand.
    "transaction.partition.verification.enable": "false",
}
#: A broker applies a new topic, and a policy that is no longer `compact`, after the controller has answered.
NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD)
#: of ListOffsets
NEWEST = -3
NOW_MS = 1_760_000_000_000


@pytest.fixture(scope="module")
def both() -> Iterator[list[Node]]:
    needs.java()
    kafka_libs()
    with ApacheKafka(CONFIG) as kafka:
        ours = Pykbroker(CONFIG).start()
        try:
            yield [kafka, ours]
        finally:
            ours.close()


def send(wire: Wire, topic: str, records: bytes, transactional_id: str | None = None) -> None:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data])

    def is_written() -> bool:
        answer = wire.call(request, 11).responses[0].partition_responses[0]
        assert answer.error_code in (ErrorCode.NONE, *NOT_YET), answer
        return bool(answer.error_code == ErrorCode.NONE)

    wait_until(is_written, f"{topic} has a leader")


def end(wire: Wire, topic: str, producer_id: int, *, commit: bool) -> None:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    answer = wire.call(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE, answer


def load(wire: Wire, topic: str, seed: int) -> None:
    """Write some hundred batches, the same for the same seed."""
    rng = random.Random(seed)
    sequences: dict[int, int] = {}
    for number in range(250):
        pairs = [
            (
                None if rng.random() < 0.1 else b"key-%d" % rng.randrange(60),
                None if rng.random() < 0.15 else rng.randbytes(rng.randrange(80)),
                [("h", b"x")] if rng.random() < 0.2 else [],
                NOW_MS + number * 10 + rng.randrange(-50, 50),
            )
            for _ in range(rng.randrange(1, 8))
        ]
        codec = rng.choice(list(Codec))
        kind = rng.random()
        producer_id = seed * 1000 + rng.randrange(10)
        if kind < 0.4:
            send(wire, topic, build_batch(pairs, codec=codec))
            continue
        is_transactional = kind > 0.7
        producer_id += 100 * is_transactional
        sequence = sequences.setdefault(producer_id, 0)
        sequences[producer_id] = sequence + len(pairs)
        batch = build_batch(
            pairs,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=is_transactional,
        )
        send(wire, topic, batch, "t" if is_transactional else None)
        if is_transactional:
            end(wire, topic, producer_id, commit=rng.random() < 0.5)


@dataclass
class Compacted:
    segments: list[str]
    batches: list[tuple[BatchHeader, list[tuple[object, ...]]]]
    aborted: list[tuple[int, ...]]


def compacted(node: Node, topic: str) -> Compacted:
    """Return the content of a topic's folder after the cleaner has finished."""
    folder = node.data_dir / f"{topic}-0"

    def is_clean() -> bool:
        checkpoint = node.data_dir / "cleaner-offset-checkpoint"
        active = int(sorted(folder.glob("*.log"))[-1].stem)
        return checkpoint.exists() and decode_offsets(checkpoint.read_bytes()).get((topic, 0), -1) >= active

    wait_until(is_clean, f"{topic} is cleaned", timeout_s=60)
    found = Compacted([], [], [])
    for path in sorted(folder.glob("*.log")):
        found.segments.append(path.name)
        data = path.read_bytes()
        for position, header in iter_batches(data):
            assert verify_crc(data, position, header)
            records: list[tuple[object, ...]] = [
                (record.offset, record.timestamp, _copy(record.key), _copy(record.value), record.headers)
                for record in iter_records(data, position, header)
            ]
            found.batches.append((header, records))
        index = TxnIndex(OsDisk(), str(path.with_suffix(".txnindex")))
        found.aborted += [tuple(entry) for entry in index.entries()]
    return found


def _copy(data: memoryview | None) -> bytes | None:
    return None if data is None else bytes(data)


def comparable(header: BatchHeader) -> BatchHeader:
    """Return the fields that must be the same. Two codecs of the same kind compress differently, and a delete horizon
    is the time of the cleaning."""
    return header._replace(
        batch_length=0, crc=0, base_timestamp=0 if header.has_delete_horizon else header.base_timestamp
    )


def assert_same(theirs: Compacted, ours: Compacted) -> None:
    assert ours.segments == theirs.segments
    for (our_header, our_records), (their_header, their_records) in zip(ours.batches, theirs.batches, strict=False):
        assert comparable(our_header) == comparable(their_header)
        assert our_records == their_records
    assert len(ours.batches) == len(theirs.batches)
    assert ours.aborted == theirs.aborted


@pytest.mark.slow
@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_the_same_survives(both: list[Node], timestamps: str) -> None:
    """Three times: when the topic becomes compacted; after more of the same keys; when tombstones and markers are
    due."""
    topic = f"compacted-{timestamps}"
    wires = [Wire(node.bootstrap) for node in both]
    for wire in wires:
        wire.create(
            topic,
            internal_segment_bytes=6000,
            index_interval_bytes=500,
            message_timestamp_type=timestamps,
            retention_ms=-1,
        )
    for seed in (1, 2, 3):
        for wire in wires:
            # Only topics without writes are cleaned in the same rounds on both sides.
            assert wire.alter(TOPIC, topic, {"cleanup.policy": "delete"}).error_code == ErrorCode.NONE
            load(wire, topic, seed)
            assert wire.alter(TOPIC, topic, {"cleanup.policy": "compact"}).error_code == ErrorCode.NONE
        assert_same(*(without_broker_times(compacted(node, topic), timestamps) for node in both))
    for wire in wires:
        wire.close()
    dump(both[1].data_dir / f"{topic}-0")


@pytest.mark.slow
def test_times_lead_past_emptied_batches(both: list[Node]) -> None:
    """An emptied batch keeps its times. If it is the newest, neither broker has a newest record; and Apache Kafka looks
    for a time only in the first segment whose maximum is large enough."""
    found = []
    for node in both:
        with Wire(node.bootstrap) as wire:
            wire.create("times", internal_segment_bytes=1000, retention_ms=-1, cleanup_policy="delete")
            # The second is superseded, and kept for its producer's sequence.
            times = [10, 100, 20, 30, *range(40, 48)]
            for number, time in enumerate(times):
                key = b"again" if number in (1, 3) else b"%d" % number
                sequence: dict[str, Any] = (
                    {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0} if number == 1 else {}
                )
                send(wire, "times", build_batch([(key, bytes(300), [], NOW_MS + time)], **sequence))
            assert wire.alter(TOPIC, "times", {"cleanup.policy": "compact"}).error_code == ErrorCode.NONE
            batches = [(header.base_offset, header.record_count) for header, _ in compacted(node, "times").batches]
            assert batches == [(offset, int(offset != 1)) for offset in range(len(times))]
            asked = {time: offset_at(wire, "times", NOW_MS + time) for time in (5, 15, 25, 45, 60, 101)}
            found.append((offset_at(wire, "times", NEWEST), asked))
    (their_newest, theirs), (our_newest, ours) = found
    assert our_newest == their_newest == -1
    assert ours == {5: 0, 15: 2, 25: 3, 45: 9, 60: -1, 101: -1}
    assert theirs == {5: 0, 15: -1, 25: -1, 45: -1, 60: -1, 101: -1}


def offset_at(wire: Wire, topic: str, timestamp: int) -> int:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
    answer = wire.call(request, 10).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE, answer
    return int(answer.offset)


def without_broker_times(found: Compacted, timestamps: str) -> Compacted:
    """Remove the times of markers, and with LogAppendTime all times, because they are the times of writing, which
    differ."""
    found.batches = [
        (
            header._replace(base_timestamp=0, max_timestamp=0),
            [(offset, 0, *rest) for offset, _, *rest in records],
        )
        if header.is_control or timestamps == "LogAppendTime"
        else (header, records)
        for header, records in found.batches
    ]
    return found


def dump(folder: Path) -> None:
    """Run Apache Kafka's tool on all our files."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex", ".txnindex"))
    assert len(files) > 3
    names = ",".join(map(str, files))
    done = run_shared("org.apache.kafka.tools.DumpLogSegments", ["--deep-iteration", "--files", names])
    wrong = [line for line in done.out.splitlines() if any(word in line for word in COMPLAINTS)]
    assert not wrong, wrong[:5]
    assert "isvalid: true" in done.out
