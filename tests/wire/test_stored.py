"""The framing of stored records, and the small parts next to the messages."""

from __future__ import annotations

import pytest

from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.primitives import (
    DecodeError,
    EncodeError,
    TopLevel,
    read_varint,
    uuid_from_str,
    uuid_to_str,
    varint,
)
from pykbroker_wire.stored.group import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from pykbroker_wire.stored.metadata import FeatureLevelRecord, PartitionRecord, TopicRecord
from pykbroker_wire.stored.transaction import TransactionLogKey
from pykbroker_wire.stored_framing import (
    Home,
    UnknownRecordType,
    decode_key,
    decode_metadata_record,
    decode_remote_log_record,
    decode_value,
    encode_key,
    encode_metadata_record,
    encode_value,
)
from testkit.messages.catalogue import entries, make


def test_every_metadata_record_and_version_in_its_frame() -> None:
    read = {"metadata": decode_metadata_record, "storage": decode_remote_log_record}
    for item in entries():
        if item.message.kind != "metadata":
            continue
        for version in item.versions:
            message = make(item, version, "full")
            value = encode_metadata_record(message, version)
            assert value[:3] == bytes((1, item.cls.API_KEY, version))
            assert read[item.message.home](value) == message


def test_metadata_record_golden() -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert encode_metadata_record(record, 0) == b"\x01\x0c\x00\x11metadata.version\x00\x1e\x00"


@pytest.mark.parametrize(
    "value",
    [b"", b"\x00\x02\x00", b"\x02\x02\x00", b"\x01", b"\x01\x02\x09", b"\x01\x63\x00\x00", b"\x01\x14\x00\x00trailing"],
)
def test_a_broken_metadata_record_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_metadata_record(value)


def test_an_unknown_record_type_says_which() -> None:
    with pytest.raises(UnknownRecordType) as caught:
        decode_metadata_record(b"\x01\x63\x00\x00")
    assert caught.value.record_type == 99
    with pytest.raises(UnknownRecordType):
        decode_key("group", b"\x00\x63")


def test_every_coordinator_record_with_its_prefix() -> None:
    for item in entries():
        home = item.message.home
        if item.message.kind == "coordinator-key":
            assert home in ("group", "transaction", "share")
            found: Home = "group" if home == "group" else "transaction" if home == "transaction" else "share"
            message = make(item, 0, "full")
            key = encode_key(message)
            assert int.from_bytes(key[:2], "big") == item.cls.API_KEY
            assert decode_key(found, key) == message
        elif item.message.kind == "coordinator-value":
            found = "group" if home == "group" else "transaction" if home == "transaction" else "share"
            for version in item.versions:
                message = make(item, version, "full")
                value = encode_value(message, version)
                assert int.from_bytes(value[:2], "big") == version
                assert decode_value(found, item.cls.API_KEY, value) == message


def test_offset_commit_golden() -> None:
    key = encode_key(OffsetCommitKey(group="g", topic="t", partition=1))
    assert key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x01"
    value = encode_value(OffsetCommitValue(offset=5, metadata="", commit_timestamp=9), 3)
    assert value == b"\x00\x03" + (5).to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\x00\x00" + (9).to_bytes(8, "big")
    assert encode_value(GroupMetadataValue())[:2] == b"\x00\x04"
    assert encode_key(TransactionLogKey(transactional_id="x")) == b"\x00\x00\x00\x01x"


def test_only_records_with_a_type_have_a_frame() -> None:
    from pykbroker_wire.stored.raft import QuorumStateData

    with pytest.raises(EncodeError):
        encode_metadata_record(QuorumStateData(), 1)


def test_partition_record_versions_differ_by_their_fields() -> None:
    record = PartitionRecord(partition_id=1, replicas=[1], isr=[1], leader=1)
    assert len(encode_metadata_record(record, 1)) == len(encode_metadata_record(record, 0)) + 1
    with pytest.raises(EncodeError, match="directories"):
        encode_metadata_record(PartitionRecord(directories=[bytes(16)]), 0)
    assert isinstance(TopicRecord(), TopLevel)


def test_uuids_as_kafka_writes_them() -> None:
    value = bytes(range(16))
    assert uuid_to_str(value) == "AAECAwQFBgcICQoLDA0ODw"
    assert uuid_from_str("AAECAwQFBgcICQoLDA0ODw") == value
    assert uuid_from_str("AAAAAAAAAAAAAAAAAAAAAA") == bytes(16)
    assert uuid_from_str(uuid_to_str(b"\xff" * 16)) == b"\xff" * 16
    for text in ("", "AAECAwQFBgcICQoLDA0OD", "AAECAwQFBgcICQoLDA0ODw==", "AAECAwQFBgcICQoLDA0O+w", "é" * 22):
        with pytest.raises(ValueError, match="uuid"):
            uuid_from_str(text)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2**31 - 1, 2**32 - 1])
def test_varints(value: int) -> None:
    assert read_varint(b"\xff" + varint(value), 1) == (value, 1 + len(varint(value)))


def test_errors_carry_code_and_words() -> None:
    error = KafkaError(ErrorCode.NOT_CONTROLLER)
    assert (error.code, error.message) == (41, ErrorCode.NOT_CONTROLLER.message)
    assert str(KafkaError(ErrorCode.INVALID_REQUEST, "no")) == "INVALID_REQUEST: no"
    assert ErrorCode.NOT_CONTROLLER.retriable
    assert not ErrorCode.INVALID_REQUEST.retriable
    assert len(ErrorCode) == 138
    assert all(code.message for code in ErrorCode if code)
