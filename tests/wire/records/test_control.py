"""Control batches against Apache Kafka's own bytes."""

from __future__ import annotations

import pytest

from pykbroker_wire.records import control
from pykbroker_wire.records.batch import BatchHeader
from pykbroker_wire.records.control import ControlType, parse_control
from pykbroker_wire.records.record import InvalidRecord, Record, iter_records
from tests.wire.records.test_batches import NOW, golden


@pytest.mark.parametrize("commit", [True, False])
def test_end_transaction_markers(commit: bool) -> None:
    expected = golden()["commit" if commit else "abort"]
    marker = control.end_txn_marker(
        commit=commit, producer_id=77, producer_epoch=3, coordinator_epoch=21, timestamp=NOW, base_offset=15,
        leader_epoch=4,
    )  # fmt: skip
    assert marker == expected
    header = BatchHeader.parse(expected)
    assert header.is_control
    assert header.is_transactional
    parsed = parse_control(next(iter_records(expected, 0, header)))
    assert parsed.type == (ControlType.COMMIT if commit else ControlType.ABORT)
    assert parsed.coordinator_epoch == 21


def kraft_voters(value: memoryview, *, timestamp: int, base_offset: int, leader_epoch: int) -> bytes:
    records = [(ControlType.KRAFT_VOTERS, value)]
    return control.control_batch(records, timestamp=timestamp, base_offset=base_offset, leader_epoch=leader_epoch)


@pytest.mark.parametrize(
    ("name", "kind", "build", "offset"),
    [
        ("leader-change", ControlType.LEADER_CHANGE, control.leader_change, 3),
        ("snapshot-header", ControlType.SNAPSHOT_HEADER, control.snapshot_header, 0),
        ("snapshot-footer", ControlType.SNAPSHOT_FOOTER, control.snapshot_footer, 6),
        ("kraft-version", ControlType.KRAFT_VERSION, control.kraft_version, 1),
        ("kraft-voters", ControlType.KRAFT_VOTERS, kraft_voters, 2),
    ],
)
def test_kraft_control_batches(name: str, kind: ControlType, build: object, offset: int) -> None:
    expected = golden()[name]
    header = BatchHeader.parse(expected)
    parsed = parse_control(next(iter_records(expected, 0, header)))
    assert parsed.type == kind
    assert parsed.coordinator_epoch == -1
    assert callable(build)
    assert build(parsed.value, timestamp=NOW, base_offset=offset, leader_epoch=8) == expected


def record(key: bytes | None, value: bytes | None = b"") -> Record:
    views = [None if part is None else memoryview(part) for part in (key, value)]
    return Record(0, 0, views[0], views[1], [])


def test_unknown_types_are_skippable() -> None:
    assert parse_control(record(b"\0\0\0\x63", None)).type == ControlType.UNKNOWN
    assert parse_control(record(b"\0\x05\0\x02more", b"x")).type == ControlType.LEADER_CHANGE


@pytest.mark.parametrize(
    "broken",
    [
        record(None),
        record(b"\0\0\0"),
        record(b"\xff\xff\0\0", bytes(6)),
        record(b"\0\0\0\0", bytes(5)),
        record(b"\0\0\0\x01", None),
        record(b"\0\0\0\x01", b"\xff\xff\0\0\0\0"),
    ],
)
def test_what_is_no_control_record(broken: Record) -> None:
    with pytest.raises(InvalidRecord):
        parse_control(broken)
