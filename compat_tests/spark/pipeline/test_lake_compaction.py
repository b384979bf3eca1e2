"""The choice of the files that a compaction takes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.lake.commits import DataFile
from pipeline.lake.compaction import choose, predicate, threshold


def files(*sizes: int, date: str | None = "1") -> list[DataFile]:
    partition = (("date", date), ("topic", "t"))
    return [DataFile(f"date={date}/topic=t/{number}.parquet", size, partition) for number, size in enumerate(sizes)]


def sizes(groups: list[list[DataFile]]) -> list[list[int]]:
    return [[file.bytes for file in group] for group in groups]


def test_enough_small_files_become_one() -> None:
    assert sizes(choose(files(10, 10, 10), 3, 100)) == [[10, 10, 10]]
    assert choose(files(10, 10), 3, 100) == []


def test_files_of_the_target_size_stay() -> None:
    assert choose(files(100, 100, 100, 10), 2, 100) == []


def test_each_partition_for_itself() -> None:
    both = files(10, 10) + files(20, 20, 20, date="2")
    assert sizes(choose(both, 2, 100)) == [[10, 10], [20, 20, 20]]
    assert choose(files(10) + files(10, date="2"), 2, 100) == []


def test_a_large_file_waits_for_its_like() -> None:
    """Otherwise every few batches would rewrite what has been collected so far."""
    assert choose(files(90, 10, 10), 3, 100) == []
    assert sizes(choose(files(90, 10, 10, 10), 3, 100)) == [[10, 10, 10]]


def test_a_group_is_named_to_optimize_by_its_partition_and_a_size() -> None:
    [group] = choose(files(90, 10, 10, 20), 3, 100)
    assert (threshold(group), predicate(group)) == (21, "date = '1' AND topic = 't'")
    assert predicate(files(1, date=None)) == "date IS NULL AND topic = 't'"
    assert predicate([DataFile("p", 1, (("topic", "it's \\"),))]) == "topic = 'it\\'s \\\\'"


def test_a_rewrite_is_bounded() -> None:
    assert sizes(choose(files(*[60] * 50), 3, 100)) == [[60, 60]]


@pytest.mark.slow
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=300), st.integers(2, 10))
def test_a_row_is_rewritten_a_few_times_only(arriving: list[int], min_files: int) -> None:
    target = 10**7
    lake: list[tuple[int, int]] = []  # bytes, and how often its oldest row was rewritten
    for size in arriving:
        lake.append((size, 0))
        named = [DataFile(f"p/{number}", each, ()) for number, (each, _) in enumerate(lake)]
        for group in choose(named, min_files, target):
            members = [int(file.path[2:]) for file in group]
            merged = (sum(lake[number][0] for number in members), 1 + max(lake[number][1] for number in members))
            lake = [entry for number, entry in enumerate(lake) if number not in members] + [merged]
    assert sum(size for size, _ in lake) == sum(arriving)
    assert max(times for _, times in lake) <= math.log2(target / min(arriving)) + 1
    assert len([size for size, _ in lake if size < target]) < min_files + math.log2(target)
