"""Directories that Apache Kafka and pykbroker left when they were stopped or killed: the data source finds in them what
those brokers said just before (tests/golden/data_directories)."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyspark_pykbroker.bounds import Bounds, bounds_of
from pyspark_pykbroker.directories import Replica, find_replicas
from pyspark_pykbroker.ranges import plan
from pyspark_pykbroker.source_options import Isolation, SourceOptions
from pyspark_pykbroker.splitting import split
from testkit.logs.data_directory import read

pytestmark = [pytest.mark.usefixtures("twin"), pytest.mark.slow]
GOLDEN = Path(__file__).parents[1] / "golden" / "data_directories"
ARCHIVES = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz"))


@dataclass
class Left:
    """A directory, and what its broker said of the partitions that it does not compact."""

    name: str
    path: str
    partitions: dict[tuple[str, int], dict[str, Any]]
    replicas: dict[tuple[str, int], Replica]

    def rows(self, topic: str, **given: object) -> list[dict[str, Any]]:
        texts = {"path": self.path, "subscribe": topic, **{name: str(value) for name, value in given.items()}}
        options = SourceOptions.parse(texts)
        return read(split(plan(options), options), options, ["partition", "offset"])


@pytest.fixture(scope="module", params=ARCHIVES)
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    folder = tmp_path_factory.mktemp(request.param)
    with tarfile.open(GOLDEN / f"{request.param}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    said = json.loads((GOLDEN / f"{request.param}.json").read_text())["partitions"]
    partitions = {}
    for name, content in said.items():
        topic, _, number = name.rpartition("-")
        if "stable" in content:
            partitions[topic, int(number)] = content
    path = str(folder / "data")
    found = {key: replicas[0] for key, replicas in find_replicas([path]).items()}
    return Left(request.param, path, partitions, found)


def known_to_the_end(left: Left) -> Iterator[tuple[tuple[str, int], dict[str, Any], Replica]]:
    """Partitions whose checkpoint was written after their last record: all of a broker that was stopped."""
    for key, said in left.partitions.items():
        replica = left.replicas[key]
        mark = replica.high_watermark
        if mark == said["end"]:
            yield key, said, replica
        else:
            assert left.name.endswith("-killed")
            # It is unknown if the records after the checkpoint are replicated.
            end = max(mark or 0, said["start"])
            assert bounds_of(replica, Isolation.READ_UNCOMMITTED) == Bounds(said["start"], end)


def test_the_bounds_are_those_that_the_broker_answered(left: Left) -> None:
    stable_before_the_end = 0
    for key, said, replica in known_to_the_end(left):
        assert bounds_of(replica, Isolation.READ_UNCOMMITTED) == Bounds(said["start"], said["end"]), key
        # Open, committed and aborted transactions; with and without a producer snapshot.
        assert bounds_of(replica, Isolation.READ_COMMITTED) == Bounds(said["start"], said["stable"]), key
        stable_before_the_end += said["stable"] < said["end"]
    assert stable_before_the_end or not left.name.endswith("-clean") or left.name.startswith("0.1.0")


def test_offsets_by_time_are_those_that_the_broker_answered(left: Left) -> None:
    for key, said, replica in known_to_the_end(left):
        for when, (offset, _) in said["by_time"].items():
            if int(when) < 0:
                continue
            options = SourceOptions.parse(
                {
                    "path": left.path,
                    "assign": json.dumps({key[0]: [key[1]]}),
                    "startingTimestamp": when,
                    "startingOffsetsByTimestampStrategy": "latest",
                }
            )
            starts = [each.start for each in plan(options)]
            assert starts == ([offset] if offset >= 0 else []), (key, when, replica)


def test_every_record_is_a_row_and_aborted_ones_only_uncommitted(left: Left) -> None:
    read_whole = 0
    for key, said, _ in known_to_the_end(left):
        assign = json.dumps({key[0]: [key[1]]})
        options = SourceOptions.parse({"path": left.path, "assign": assign})
        offsets = [row["offset"] for row in read(split(plan(options), options), options, ["offset"])]
        assert offsets == sorted(set(offsets))
        if key[0] != "transacted":
            assert len(offsets) == said["records"], key
            read_whole += 1
            continue
        committed = SourceOptions.parse({"path": left.path, "assign": assign, "isolation.level": "read_committed"})
        kept = [row["offset"] for row in read(split(plan(committed), committed), committed, ["offset"])]
        # 3, 5, 9 and 11 are markers; 6 to 10 was aborted, 12 and 13 are of a transaction that is open, or plain.
        if said["end"]:
            assert offsets == [0, 1, 2, 4, 6, 7, 8, 10, 12, 13]
            assert kept == [0, 1, 2, 4]
            assert {first for _, first in said["aborted"]} == {6, 10}
    assert read_whole > 50 or left.name.endswith("-killed")


def test_nothing_in_a_directory_is_opened_for_writing(left: Left) -> None:
    """Directories may be mounted read-only: a test that runs as root would not notice by their mode."""
    seen: list[tuple[str, Any]] = []
    watching = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # Another thread of this process may rename files of its own.
        if not watching[0] or not any(str(argument).startswith(left.path) for argument in arguments):
            return
        if event.startswith(("os.", "shutil.")):
            seen.append((event, arguments))
        elif event == "open":
            opened_for_more = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            seen.append(("writes" if opened_for_more else "reads", arguments))

    sys.addaudithook(hook)  # it cannot be taken away
    try:
        rows = left.rows("zstd", startingTimestamp=1)
        left.rows("transacted", **{"isolation.level": "read_committed"})
    finally:
        watching[0] = False
    assert rows or left.name.endswith("-killed")
    assert {event for event, _ in seen} <= {"reads", "os.listdir", "os.scandir"}
    assert any(event == "reads" for event, _ in seen)
