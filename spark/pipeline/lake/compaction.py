"""The choice of small files that become one file. Pure.

OPTIMIZE takes every file of a partition that is below a size; `threshold` is that size for a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from pipeline.lake.commits import DataFile


def choose(files: Iterable[DataFile], min_files: int, target_file_bytes: int) -> list[list[DataFile]]:
    """Return groups of files, each of one partition, each to be rewritten as one file.

    A partition has a group when at least `min_files` of its files are below the target and the largest of the group is
    not larger than the others together. So a rewritten file is at least twice as large as any of its sources: a row is
    rewritten log2(target / size of a batch) times at most, and not again every few batches. A group ends where it
    reaches the target, so one rewrite is at most about twice the target."""
    small = sorted((file for file in files if file.bytes < target_file_bytes), key=lambda file: str(file.partition))
    partitions = (list(group) for _, group in groupby(small, key=lambda file: file.partition))
    return [group for partition in partitions if (group := _group(partition, min_files, target_file_bytes))]


def threshold(group: Sequence[DataFile]) -> int:
    """Return the size that all files of a group are below, and no larger file of its partition."""
    return max(file.bytes for file in group) + 1


def predicate(group: Sequence[DataFile]) -> str:
    """Return the partition of a group as an SQL condition."""
    return " AND ".join(
        f"{column} IS NULL" if value is None else f"{column} = '{_escaped(value)}'"
        for column, value in group[0].partition
    )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")


def _group(files: list[DataFile], min_files: int, target_file_bytes: int) -> list[DataFile]:
    ascending = sorted(files, key=lambda file: (file.bytes, file.path))
    total = sum(file.bytes for file in ascending)
    while ascending and ascending[-1].bytes > total - ascending[-1].bytes:
        total -= ascending.pop().bytes
    if len(ascending) < max(2, min_files):
        return []
    return _until(ascending, target_file_bytes)


def _until(ascending: Sequence[DataFile], target_file_bytes: int) -> list[DataFile]:
    group: list[DataFile] = []
    for file in ascending:
        group.append(file)
        if len(group) >= 2 and sum(each.bytes for each in group) >= target_file_bytes:
            break
    return group
