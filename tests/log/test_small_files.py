"""Names, checkpoints and leader epochs: Kafka's bytes, and the errors for damaged files."""

from __future__ import annotations

import pytest

from pykbroker_log import names
from pykbroker_log.checkpoints import (
    MalformedFile,
    decode_clean_shutdown,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    decode_uuid,
    encode_clean_shutdown,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
)
from pykbroker_log.epochs import LeaderEpochs
from pykbroker_log.log_config import LogConfig
from pykbroker_wire.primitives import uuid_to_str


def test_checkpoints_are_kafkas_bytes() -> None:
    offsets = {("a", 0): 17, ("b-c", 12): 0}
    assert encode_offsets(offsets) == b"0\n2\na 0 17\nb-c 12 0\n"
    assert decode_offsets(encode_offsets(offsets)) == offsets
    assert encode_offsets({}) == b"0\n0\n"
    assert decode_offsets(b"") == {}
    assert encode_epochs([(0, 0), (3, 10)]) == b"0\n2\n0 0\n3 10\n"
    assert decode_epochs(b"0\n2\n0 0\n3 10\n") == [(0, 0), (3, 10)]
    assert encode_clean_shutdown(14) == b'{"version":0,"brokerEpoch":14}'
    assert decode_clean_shutdown(b'{"version":0,"brokerEpoch":14}') == 14
    assert decode_clean_shutdown(b"") == -1
    topic_id = bytes(range(16))
    assert encode_partition_metadata(topic_id) == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert decode_partition_metadata(encode_partition_metadata(topic_id)) == topic_id
    assert decode_uuid(uuid_to_str(topic_id)) == topic_id
    properties = encode_properties({"version": "1", "node.id": "7"}, 0)
    assert properties == b"#\n#Thu Jan 01 00:00:00 UTC 1970\nnode.id=7\nversion=1\n"
    assert decode_properties(properties) == {"version": "1", "node.id": "7"}


@pytest.mark.parametrize(
    "data",
    [
        b"garbage",
        b"xx\n",
        b"0\n",
        b"0\n1\n",
        b"1\n0\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"0\n1\na 0 17",
        b"\xff\xfe",
        b"0\n2\na 0 1\n",
    ],
)
def test_malformed_checkpoints(data: bytes) -> None:
    with pytest.raises(MalformedFile):
        decode_offsets(data)


@pytest.mark.parametrize(
    "data", [b"", b"version: 0\n", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\ntopic_id: AAEC"]
)
def test_malformed_partition_metadata(data: bytes) -> None:
    with pytest.raises(MalformedFile):
        decode_partition_metadata(data)


def test_names() -> None:
    assert names.segment_file(17, names.LOG) == "00000000000000000017.log"
    assert names.parse_segment_file("00000000000000000017.timeindex.deleted") == names.SegmentName(
        17, ".timeindex", ".deleted"
    )
    assert names.parse_segment_file("17.log") is None
    assert names.parse_partition_dir("a-b-3") == names.PartitionDirName("a-b", 3, "")
    assert names.parse_partition_dir("foo") is None
    deleted = names.marked_dir("a-b", 3, "0" * 32, names.DELETE_DIR)
    assert names.parse_partition_dir(deleted) == names.PartitionDirName("a-b", 3, "-delete")
    assert len(names.marked_dir("x" * 249, 3, "0" * 32, names.STRAY_DIR)) == 255


def test_epochs() -> None:
    epochs = LeaderEpochs()
    assert epochs.end_offset(0, 10) == (-1, -1)
    epochs.assign(1, 5)
    epochs.assign(1, 7)
    epochs.assign(4, 20)
    assert epochs.entries() == [(1, 5), (4, 20)]
    assert epochs.end_offset(0, 30) == (0, 5)
    assert epochs.end_offset(1, 30) == (1, 20)
    assert epochs.end_offset(3, 30) == (1, 20)
    assert epochs.end_offset(4, 30) == (4, 30)
    assert epochs.end_offset(5, 30) == (-1, -1)
    assert [epochs.of_offset(offset) for offset in (4, 5, 19, 20)] == [-1, 1, 1, 4]
    epochs.assign(5, 20)  # an epoch without records is replaced
    assert epochs.entries() == [(1, 5), (5, 20)]
    epochs.truncate_start(10)
    assert epochs.entries() == [(1, 10), (5, 20)]
    epochs.truncate_end(20)
    assert epochs.entries() == [(1, 10)]
    epochs.truncate_start(3)
    assert epochs.entries() == [(1, 10)]


def test_log_config_takes_kafkas_keys() -> None:
    config = LogConfig.from_topic({"segment.bytes": 1 << 20, "cleanup.policy": ["compact", "delete"], "foreign.key": 1})
    assert config.segment_bytes == 1 << 20
    assert config.compact
    assert config.delete
    assert LogConfig.from_topic({"cleanup.policy": "compact"}).cleanup_policy == {"compact"}
    assert LogConfig.from_topic({}) == LogConfig()
