"""The records of share groups, in the bytes of Apache Kafka 4.3.1 (GroupCoordinatorRecordHelpers and
GroupCoordinatorRecordSerde with the same values)."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.group.records import decode, encode
from pykbroker.coordinator.group.share.share_group import ShareGroup
from pykbroker.coordinator.group.share.share_member import ShareMember
from pykbroker.coordinator.group.share.share_partition_states import NamedPartitions, SharePartitionStates
from pykbroker.coordinator.group.share.share_records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    removed_member,
    replay_share,
    states_record,
    target_epoch_record,
    target_record,
)
from pykbroker.coordinator.result import CoordinatorRecord
from pykbroker_wire.errors import DecodeError

T, U = (high.to_bytes(8) + low.to_bytes(8) for high, low in ((1, 2), (3, 4)))
MEMBER = ShareMember("m", 5, 4, "r", "c", "/h", frozenset({"t"}), {T: frozenset({0, 1})})
STATES = SharePartitionStates(
    {T: NamedPartitions("t", frozenset({2}))}, {T: NamedPartitions("t", frozenset({0, 1}))}, {U: "u"}
)
TOPIC_OF_TWO = "00000000000000010000000000000002" + "03" + "00000000" + "00000001" + "00"
GOLDEN = {
    "member": (member_record("g", MEMBER), "000a00016700016d", "000002720263032f6802027400"),
    "member without anything": (member_record("g", ShareMember("m")), "000a00016700016d", "00000001010100"),
    "group epoch": (epoch_record("g", 7, -9), "000b000167", "000000000007fffffffffffffff700"),
    "target epoch": (target_epoch_record("g", 7, 1_000), "000c000167", "00000000000701000800000000000003e8"),
    "target epoch without a time": (target_epoch_record("g", 7, 0), "000c000167", "00000000000700"),
    "target": (target_record("g", "m", MEMBER.assigned), "000d00016700016d", f"000002{TOPIC_OF_TWO}00"),
    "current": (
        current_record("g", MEMBER),
        "000e00016700016d",
        "0000000000050000000400" + f"02{TOPIC_OF_TWO}00",
    ),
    "states": (
        states_record("g", STATES),
        "000f000167",
        "0000020000000000000001000000000000000202740200000002000200000000000000010000000000000002027403"
        "000000000000000100020000000000000003000000000000000402750000",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_has_apache_kafkas_bytes(name: str) -> None:
    record, key, value = GOLDEN[name]
    encoded = encode(record)
    assert encoded == (bytes.fromhex(key), bytes.fromhex(value))
    assert decode(*encoded) == record


def replayed(*written: CoordinatorRecord) -> ShareGroup | None:
    group: ShareGroup | None = None
    for record in written:
        read = decode(*encode(record))
        assert read is not None
        group = replay_share(group, read)
    return group


def test_a_group_begins_with_any_of_its_records() -> None:
    for record, _, _ in GOLDEN.values():
        group = replayed(record)
        assert group is not None
        assert group.group_id == "g"


def test_records_have_the_whole_group() -> None:
    group = replayed(*(record for name, (record, _, _) in GOLDEN.items() if "without" not in name))
    assert group is not None
    assert group.members == {"m": MEMBER}
    assert (group.epoch, group.metadata_hash, group.target_epoch, group.target_timestamp_ms) == (7, -9, 7, 1_000)
    assert group.target == {"m": MEMBER.assigned}
    assert group.states == STATES


def test_tombstones_remove_members_and_the_group() -> None:
    written = [record for name, (record, _, _) in GOLDEN.items() if "without" not in name]
    group = replayed(*written, *removed_member("g", "m"))
    assert group is not None
    assert (group.members, group.target, group.subscribers) == ({}, {}, {})
    assert replayed(*written, *removed_member("g", "m"), *group_tombstones(group)) is None


def test_tombstones_without_a_group_make_none() -> None:
    assert replayed(*removed_member("g", "m"), *group_tombstones(ShareGroup("g"))) is None


def test_a_value_of_a_later_version_ends_the_load() -> None:
    key, value = encode(epoch_record("g", 1, 0))
    assert value is not None
    with pytest.raises(DecodeError):
        decode(key, b"\0\x63" + value[2:])
