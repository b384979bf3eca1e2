"""`pykbroker storage` prints the same as `kafka-storage`, for the same arguments and the same directories.

Each command line is run with both, in a place of its own with the same name. The exit code and every printed line are
compared. Ids of directories that a tool generates are replaced, and lines are sorted, because Apache Kafka's tool names
directories in the order of a hash table. For arguments that the parser refuses only the exit code is compared, because
the text is Java's there and Python's here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compat_tests.on_disk.formatting import (
    BOTH,
    CLUSTER_ID,
    RUN,
    STATIC,
    Ended,
    Place,
    described,
    run_kafka,
    without_4_4,
)
from compat_tests.on_disk.home import Home, Owner
from testkit import needs
from testkit.oracle.kafka import NEWEST, kafka_libs

pytestmark = pytest.mark.slow

VOTERS = "1@localhost:19093:JEXY6aqzQY-32P5TStzaFg,2@[::1]:1234:MvDxzVmcRsaTz33bUuRU6A"
BROKER = {"process.roles": "broker", "listeners": "PLAINTEXT://localhost:19092"}
FIRST = f"cluster.id={CLUSTER_ID}\nnode.id=1\nversion=1\ndirectory.id=JEXY6aqzQY-32P5TStzaFg\n"
SECOND = FIRST.replace("JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A")
NO_ID = FIRST.replace("directory.id=JEXY6aqzQY-32P5TStzaFg\n", "")
FORMAT = f"format -t {CLUSTER_ID} -c"


@dataclass(frozen=True)
class Asked:
    """Command lines, one after another, in which CONFIG is the path of server.properties; `files` exist before them."""

    lines: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    #: refused by the parser of arguments, or Java prints only a path, so only the exit code is compared
    by_parser: bool = False

    def __str__(self) -> str:
        return "; ".join(self.lines) + "".join(f" [{name}]" for name in (*self.files, *self.config))


def asked(*lines: str, files: Mapping[str, str] | None = None, **more: object) -> Asked:
    return Asked(lines, files or {}, **more)  # type: ignore[arg-type]


def metas(first: str, second: str | None = None) -> dict[str, str]:
    """Return meta.properties of the two directories."""
    found = {"first/meta.properties": first}
    return found if second is None else {**found, "second/meta.properties": second}


INFO = [
    asked("info -c CONFIG"),
    asked(f"{FORMAT} CONFIG -s", "info --config CONFIG"),
    asked("info -c /nonexistent", by_parser=True),
    asked("info", by_parser=True),
    asked("info -c CONFIG -x", by_parser=True),
    asked("info -c CONFIG", files={"first/x": "", "second": ""}),
    asked("info -c CONFIG", files={"first": "", "second": ""}),
    asked("info -c CONFIG", files=metas(FIRST)),
    asked("info -c CONFIG", files=metas(FIRST, FIRST)),
    asked("info -c CONFIG", files=metas(FIRST, SECOND), config={"node.id": "2"}),
    asked("info -c CONFIG", files=metas(FIRST, SECOND.replace("Ag", "Bg"))),
    asked("info -c CONFIG", files=metas(FIRST, SECOND.replace("node.id=1", "node.id=2"))),
    asked("info -c CONFIG", files=metas(FIRST, SECOND.replace("version=1\n", ""))),
    asked("info -c CONFIG", files=metas(FIRST, "version=1\nnode.id=1\n")),
    asked("info -c CONFIG", files=metas(FIRST, "version=1\ncluster.id=x\n")),
    asked("info -c CONFIG", files=metas(FIRST, "version=1\ncluster.id=x\nnode.id=y\n")),
    asked("info -c CONFIG", files=metas(FIRST, "version=7\ncluster.id=x\nnode.id=1\n")),
    asked("info -c CONFIG", files=metas(FIRST, "version=x\ncluster.id=x\nnode.id=1\n")),
    asked("info -c CONFIG", files=metas("version=1\n", SECOND)),
    asked("info -c CONFIG", files=metas("broker.id=1\nversion=0\n", "broker.id=1\nversion=0\n")),
    asked("info -c CONFIG", files=metas("", "")),
    asked("info -c CONFIG", files=metas(FIRST + "extra=1\n", SECOND)),
    asked("info -c CONFIG", files=metas(NO_ID, SECOND)),
]
FORMATS = [
    asked(f"{FORMAT} CONFIG"),
    asked("format -c CONFIG -s", by_parser=True),
    asked(f"format -t {CLUSTER_ID} -s", by_parser=True),
    asked(f"{FORMAT} CONFIG -s -N", by_parser=True),
    asked(f"{FORMAT} CONFIG -s -I {VOTERS}", by_parser=True),
    asked(f"{FORMAT} CONFIG -s", f"{FORMAT} CONFIG -s", f"{FORMAT} CONFIG -s -g"),
    asked(f"{FORMAT} CONFIG -s", "format -c CONFIG -t BAAAAAAAAAAAAAAAAAAAAg -s -g"),
    asked("format -c CONFIG -t no-id-of-ours -s", "info -c CONFIG"),
    asked(f"format --config CONFIG --cluster-id {CLUSTER_ID} --standalone --ignore-formatted"),
    asked(f"{FORMAT} CONFIG --no-initial-controllers"),
    asked(f"{FORMAT} CONFIG --initial-controllers {VOTERS}"),
    asked(f"{FORMAT} CONFIG -I 7@other:1234:MvDxzVmcRsaTz33bUuRU6A"),
    asked(f"{FORMAT} CONFIG -I 1"),
    asked(f"{FORMAT} CONFIG -I ,"),
    asked(f"{FORMAT} CONFIG -I 1@localhost:65536:MvDxzVmcRsaTz33bUuRU6A"),
    asked(f"{FORMAT} CONFIG", config=BROKER),
    asked(f"{FORMAT} CONFIG -s", config=BROKER),
    asked(f"{FORMAT} CONFIG -I {VOTERS}", config=BROKER),
    asked(f"{FORMAT} CONFIG", config=dict(STATIC)),
    asked(f"{FORMAT} CONFIG -s", config=dict(STATIC)),
    asked(f"{FORMAT} CONFIG -I {VOTERS}", config=dict(STATIC)),
    asked(f"{FORMAT} CONFIG -N -f kraft.version=0", config=dict(STATIC)),
    asked(f"{FORMAT} CONFIG -f kraft.version=1", config=dict(STATIC)),
    asked(f"{FORMAT} CONFIG -s -f kraft.version=1"),
    asked(f"{FORMAT} CONFIG -s -f kraft.version=0"),
    asked(f"{FORMAT} CONFIG -s -f kraft.version=2"),
    *(
        asked(f"{FORMAT} CONFIG -s -r {release}")
        for release in ("3.7-IV0", "3.9", "4.0-IV1", "4.3.1", "3.2", "4.5-IV0")
    ),
    *(asked(f"{FORMAT} CONFIG -s -f metadata.version={level}") for level in (6, 7, 26, 34)),
    asked(f"{FORMAT} CONFIG -s -f metadata.version=30 -f metadata.version=29"),
    asked(f"{FORMAT} CONFIG -s -r 4.3 -f metadata.version=30"),
    asked(f"{FORMAT} CONFIG -s -f group.version=1 --feature group.version=0"),
    asked(f"{FORMAT} CONFIG -s -r 4.0-IV0 -f eligible.leader.replicas.version=1"),
    *(
        asked(f"{FORMAT} CONFIG -s -f {feature}")
        for feature in ("nope=1", "group.version", "group.version=x", "group.version=99999", "group.version=-1")
    ),
    asked(f"{FORMAT} CONFIG -s", files={"first/something": "x"}),
    asked(f"{FORMAT} CONFIG -s", files={"first": ""}),
    asked(f"{FORMAT} CONFIG -s", files={"first": "", "second": ""}),
    asked(f"{FORMAT} CONFIG -s", files=metas(FIRST.replace("node.id=1", "node.id=2"))),
    asked(f"{FORMAT} CONFIG -s -g", files=metas(FIRST)),
    asked(f"{FORMAT} CONFIG -s", files=metas("version=1\n")),
    asked(f"{FORMAT} CONFIG -s -g", files=metas("version=1\ncluster.id=x\n")),
    asked(f"{FORMAT} CONFIG -s -g", files=metas(FIRST, FIRST)),
]
FEATURES = [
    asked("version-mapping"),
    *(
        asked(f"version-mapping --release-version {release}")
        for release in ("3.3", "3.3-IV3", "3.9", "4.0-IV1", "4.2", "4.3.1", "3.3-IV0", "5.0", "x")
    ),
    asked("feature-dependencies", by_parser=True),
    *(
        asked(f"feature-dependencies -f {feature}")
        for feature in (
            *("metadata.version=5", "metadata.version=7", "metadata.version=30", "metadata.version=34"),
            *("metadata.version=x", "metadata.version=99999"),
            *(
                "kraft.version=0",
                "kraft.version=1",
                "kraft.version=2",
                "transaction.version=2",
                "transaction.version=3",
            ),
            *("group.version=1", "group.version", "group.version=1=2", "group.version=", "=1", "nope=1"),
            *("eligible.leader.replicas.version=0", "eligible.leader.replicas.version=1", "share.version=1"),
            "streams.version=2",
        )
    ),
    asked("feature-dependencies -f group.version=1 --feature eligible.leader.replicas.version=1 -f nope=2"),
    asked("random-uuid"),
    asked("random-uuid -x", by_parser=True),
    asked("nonsense", by_parser=True),
]
CASES = [*INFO, *FORMATS, *FEATURES]
Outcomes = dict[Owner, list[tuple[Place, list[Ended]]]]


def all_of(root: Path, owner: Owner) -> list[tuple[Place, list[Ended]]]:
    """Run every case with one of the two, in places with the same names."""
    shutil.rmtree(root, ignore_errors=True)
    places, lines = [], []
    for number, each in enumerate(CASES):
        place = Place(root / str(number), each.config)
        for name, text in each.files.items():
            file = root / str(number) / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        places.append(place)
        lines += [line.replace("CONFIG", str(place.properties)).split() for line in each.lines]
    ended = iter(RUN[owner](lines))
    found = [(place, [next(ended) for _ in each.lines]) for place, each in zip(places, CASES, strict=True)]
    root.rename(root.with_name(owner))
    return [(place.moved(root, root.with_name(owner)), outcome) for place, outcome in found]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Apache Kafka's tool runs in one JVM for all of them."""
    needs.java()
    kafka_libs()
    root = tmp_path_factory.mktemp("storage") / "places"
    return {owner: all_of(root, owner) for owner in BOTH}


#: the tool may name any one of several first
_FORMATTED = re.compile(r"Log directory \S+ is already formatted")
_ID = re.compile(r"\b[A-Za-z0-9_-]{22}\b")
#: in meta.properties of the tests, and so not generated by a tool
_KNOWN = (
    CLUSTER_ID,
    CLUSTER_ID.replace("Ag", "Bg"),
    "BAAAAAAAAAAAAAAAAAAAAg",
    "JEXY6aqzQY-32P5TStzaFg",
    "MvDxzVmcRsaTz33bUuRU6A",
)


def lines_of(ended: Ended) -> list[str]:
    def known(match: re.Match[str]) -> str:
        return match[0] if match[0] in _KNOWN else "ID"

    return sorted(
        _FORMATTED.sub("Log directory ONE is already formatted", _ID.sub(known, line))
        for line in without_4_4(ended.said).splitlines()
    )


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: f"{number}: {CASES[number]}")
def test_both_tools_say_the_same(number: int, outcomes: Outcomes) -> None:
    (theirs_at, theirs), (ours_at, ours) = (outcomes[owner][number] for owner in BOTH)
    assert [ended.status for ended in ours] == [ended.status for ended in theirs], (ours, theirs)
    assert not any("Traceback" in ended.said for ended in ours)
    if not CASES[number].by_parser:
        assert [lines_of(ended) for ended in ours] == [lines_of(ended) for ended in theirs]
    for their_folder, our_folder in zip(theirs_at.folders, ours_at.folders, strict=True):
        assert our_folder.is_dir() == their_folder.is_dir()
        if (their_folder / "bootstrap.checkpoint").exists():
            assert described(our_folder) == described(their_folder)


OF_4_4 = [
    *(
        ["version-mapping", "--release-version", release]
        for release in ("4.4", "4.4.0", "4.4-IV0", "4.4-IV1", "4.5", "x")
    ),
    *(["feature-dependencies", "-f", f"metadata.version={level}"] for level in (30, 31, 32, 33)),
    *(["feature-dependencies", "-f", f"share.version={level}"] for level in (1, 2, 3)),
]


def test_the_tool_of_4_4_says_the_same_of_its_levels() -> None:
    needs.java()
    kafka_libs(NEWEST)
    theirs, ours = run_kafka(OF_4_4, NEWEST), RUN["pykbroker"](OF_4_4)
    assert [(ended.status, lines_of(ended)) for ended in ours] == [(ended.status, lines_of(ended)) for ended in theirs]


@pytest.mark.parametrize(("by", "starts"), [("pykbroker", "kafka"), ("kafka", "pykbroker")])
def test_what_one_tool_formats_the_other_system_starts(by: Owner, starts: Owner) -> None:
    """Also with an id of the cluster that is not a UUID, which both tools accept."""
    needs.java()
    with Home() as home:
        words = ["format", "-c", str(home.properties), "-t", "no-id-of-ours"]
        voters = f"1@localhost:{home.port + 1}:JEXY6aqzQY-32P5TStzaFg"
        assert RUN[by]([[*words, "-I", voters]])[0].status == 0
        home.start(starts)
        home.stop()
        info = [RUN[owner]([["info", "-c", str(home.properties)]])[0] for owner in BOTH]
    assert info[0] == info[1]
    assert "cluster.id=no-id-of-ours, directory.id=JEXY6aqzQY-32P5TStzaFg" in info[0].said
