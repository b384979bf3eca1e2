"""`dump-log --verify` finds every flipped bit of a log, and every disagreement of the other files with it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.tools.dump.verify import DirectoryVerifier, Finding
from pykbroker_log.checkpoints import encode_epochs, encode_offsets, encode_properties
from pykbroker_log.disk import read_file, write_new
from pykbroker_log.log_config import AppendOrigin, LogConfig
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.records.batch import HEADER_SIZE, build_batch
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.control import end_txn_marker
from testkit.logs.helpers import NOW, open_log

FOLDER = "data/t-0"


@cache
def _files() -> dict[str, bytes]:
    """Return every file of a directory with one log: small segments, all codecs, idempotent and transactional
    producers, three leader epochs."""
    disk = MemoryDisk()
    log = open_log(disk, config=LogConfig(segment_bytes=1500, index_interval_bytes=100))
    for number in range(40):
        is_open = number % 10 == 7
        # No two batches have the same timestamp, because a time index may then name either of them.
        now = NOW + 2 * number
        records = [(b"k%d" % i, b"v" * (number % 7) + b"%d" % i, (), now) for i in range(1 + number % 3)]
        made = build_batch(
            records,
            codec=Codec(number % 5),
            producer_id=9 if is_open else number % 3,
            producer_epoch=number // 10 if is_open else number,
            base_sequence=0,
            transactional=is_open,
        )
        log.append_as_leader(bytearray(made), leader_epoch=number // 15, now_ms=NOW)
        if is_open:
            marker = end_txn_marker(
                commit=number % 20 == 7,
                producer_id=9,
                producer_epoch=number // 10,
                coordinator_epoch=1,
                timestamp=now + 1,
            )
            origin = AppendOrigin.COORDINATOR
            log.append_as_leader(bytearray(marker), leader_epoch=number // 15, now_ms=NOW, origin=origin)
        log.set_high_watermark(log.log_end_offset)
    log.close(clean=True)
    end = {("t", 0): log.log_end_offset}
    write_new(disk, "data/meta.properties", encode_properties({"cluster.id": "x", "version": "1"}, NOW))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        write_new(disk, f"data/{name}", encode_offsets(end))
    paths = [f"{FOLDER}/{name}" for name in disk.list(FOLDER)]
    paths += [f"data/{name}" for name in disk.list("data") if not disk.is_dir(f"data/{name}")]
    return {path: read_file(disk, path) for path in paths}


def verify(changed: Mapping[str, bytes | None], path: str = "data") -> tuple[list[Finding], str]:
    """Return the findings in a directory like that one with some files replaced."""
    disk = MemoryDisk()
    disk.make_dirs(FOLDER)
    for name, data in ({**_files(), **changed}).items():
        if data is not None:
            write_new(disk, name, data)
    verifier = DirectoryVerifier(disk)
    return list(verifier.verify(path)), verifier.summary()


def _of_kind(suffix: str) -> list[str]:
    return sorted(name for name in _files() if name.endswith(suffix))


def test_a_whole_directory_is_in_order() -> None:
    found, summary = verify({})
    assert found == []
    assert summary.endswith("nothing is wrong")
    assert len(_of_kind(".log")) == 3
    assert _of_kind(".txnindex")
    for path in _files():
        assert verify({}, path)[0] == [], path


def _flip(path: str, bit: int) -> dict[str, bytes | None]:
    data = bytearray(_files()[path])
    data[bit // 8] ^= 1 << bit % 8
    return {path: bytes(data)}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_bit_flipped_anywhere_in_a_log_is_found(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(_of_kind(".log")))
    bit = data.draw(st.integers(0, len(_files()[path]) * 8 - 1))
    found, summary = verify(_flip(path, bit))
    assert found
    assert summary.endswith(f"{len(found)} findings")


@pytest.mark.slow
def test_every_bit_of_a_header_counts() -> None:
    """The bits that no checksum covers count too (the base offset and the leader epoch)."""
    for path in (_of_kind(".log")[0], _of_kind(".log")[-1]):
        for bit in range(HEADER_SIZE * 8):
            assert verify(_flip(path, bit), FOLDER)[0], (path, bit)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_bit_flipped_in_an_index_or_a_snapshot_is_found(data: st.DataObject) -> None:
    kinds = [".index", ".timeindex", ".txnindex", ".snapshot"]
    path = data.draw(st.sampled_from([name for kind in kinds for name in _of_kind(kind) if _files()[name]]))
    size = len(_files()[path])
    bit = data.draw(st.integers(0, size * 8 - 1))
    if path.endswith(".txnindex") and bit // 8 % 34 >= 10:
        bit = bit % 80  # only the order of the offsets of an entry is checked, so flip its version or producer
    assert verify(_flip(path, bit))[0], (path, bit)


@pytest.mark.parametrize("cut", [1, 20, 61, 70])
def test_a_cut_off_tail_is_found(cut: int) -> None:
    path = _of_kind(".log")[-1]
    found, _ = verify({path: _files()[path][:-cut]})
    assert any(finding.path == path and finding.position is not None for finding in found), found


def test_a_segment_that_is_gone_is_found() -> None:
    path = _of_kind(".log")[1]
    gone = {name: None for name in _files() if name.startswith(path.removesuffix(".log"))}
    found, _ = verify(gone)
    assert any("are missing" in finding.text for finding in found)


@pytest.mark.parametrize("offset", [60, 0], ids=["cleaned", "interrupted while it was cleaned"])
def test_gaps_are_allowed_where_the_cleaner_has_been(offset: int) -> None:
    path = _of_kind(".log")[1]
    gone = {name: None for name in _files() if name.startswith(path.removesuffix(".log"))}
    cleaned: dict[str, bytes | None] = {"data/cleaner-offset-checkpoint": encode_offsets({("t", 0): offset})}
    found, _ = verify({**gone, **cleaned})
    assert not any("are missing" in finding.text for finding in found), found


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        ("data/recovery-point-offset-checkpoint", b"garbage", "malformed"),
        ("data/replication-offset-checkpoint", encode_offsets({("t", 0): 9999}), "t-0 at 9999"),
        ("data/meta.properties", b"version=1\n", "malformed"),
        (f"{FOLDER}/partition.metadata", b"version: 9", "malformed"),
        (f"{FOLDER}/leader-epoch-checkpoint", b"0\n1\n5", "malformed"),
        (f"{FOLDER}/leader-epoch-checkpoint", encode_epochs([(3, 0), (2, 9)]), "do not rise"),
        (f"{FOLDER}/leader-epoch-checkpoint", encode_epochs([(5, 0)]), "leader epoch 0, where"),
        (f"{FOLDER}/00000000000000009999.index", b"", "no log with this base offset"),
        (f"{FOLDER}/00000000000000000001.snapshot", b"", "malformed"),
    ],
)
def test_other_files(path: str, data: bytes, said: str) -> None:
    found, _ = verify({path: data})
    assert any(said in str(finding) for finding in found), found


def test_preallocated_indexes_of_apache_kafka_are_in_order() -> None:
    zeros = bytes(4096 * 24)
    larger = {name: _files()[name] + zeros for kind in (".index", ".timeindex") for name in _of_kind(kind)}
    assert verify({**larger})[0] == []


def test_what_is_not_there() -> None:
    assert [str(finding) for finding in verify({}, "nowhere")[0]] == ["nowhere: does not exist"]
