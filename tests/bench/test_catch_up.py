"""The rate of a node that comes back: its files, and when they grew."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.replication import log_bytes, rate


def test_the_start_of_the_process_is_no_part_of_the_rate() -> None:
    samples = [(0.0, 100), (3.0, 100), (3.5, 1_100), (4.0, 1_100), (5.0, 4_100), (9.0, 4_100)]
    assert rate(samples) == 4_000 / 2.0


def test_a_node_that_fetched_nothing_has_no_rate() -> None:
    with pytest.raises(ValueError, match="do not grow"):
        rate([(0.0, 5), (1.0, 5)])


def test_only_segments_count(tmp_path: Path) -> None:
    folders = [tmp_path / "topic-0", tmp_path / "topic-1"]
    for folder in folders:
        folder.mkdir()
        (folder / "00000000000000000000.log").write_bytes(bytes(10))
        (folder / "00000000000000000007.log").write_bytes(bytes(5))
        (folder / "00000000000000000000.index").write_bytes(bytes(99))
    assert log_bytes(folders) == 30
    assert log_bytes([tmp_path / "not-there-yet"]) == 0
