"""Apache Kafka's tools read our metadata log and its snapshots, and find the same in them as in those of Apache
Kafka."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.mixed_cluster.members import Cluster
from compat_tests.on_disk.dumps import differences
from compat_tests.three_nodes.clusters import Both, texts
from compat_tests.three_nodes.printed import compared
from compat_tests.tool_server import Ended
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire
from testkit.oracle.kafka import tool_command

pytestmark = pytest.mark.slow

METADATA = "__cluster_metadata"
DECODED = ("--cluster-metadata-decoder",)
SHELL = "org.apache.kafka.shell.MetadataShell"
CHANGE = "BROKER_REGISTRATION_CHANGE_RECORD"


@pytest.fixture(scope="module")
def copies(both: Both, tmp_path_factory: pytest.TempPathFactory) -> dict[Cluster, Path]:
    """Copy the metadata log of node 1, and a snapshot of all that was changed before."""
    found = {}
    for cluster in both.clusters:
        folder = tmp_path_factory.mktemp("metadata") / f"{METADATA}-0"
        folder.mkdir()
        snapshot = _newest_snapshot(cluster)
        for path in (*snapshot.parent.glob("*.log"), snapshot):
            shutil.copy(path, folder)
        found[cluster] = folder
    return found


def _newest_snapshot(cluster: Cluster) -> Path:
    with Wire(cluster.address(1)) as wire:
        end = wire.quorum().topics[0].partitions[0].high_watermark

    def look() -> Path | None:
        newest = max((cluster.data(1) / f"{METADATA}-0").glob("*.checkpoint"))
        return newest if int(newest.name.partition("-")[0]) >= end else None

    return eventually("there is a snapshot of all of it", look)


def dumped(both: Both, cluster: Cluster, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records in a file, as DumpLogSegments prints them."""
    done = both.run(cluster, "DumpLogSegments", "--files", str(path), *DECODED, where="")
    assert (done.status, done.err) == (0, "")
    for line in done.out.splitlines():
        found = re.search(r" payload: (\{.*\})$", line)
        if found is not None:
            yield json.loads(found[1])
        elif line.startswith("baseOffset"):
            assert " isvalid: true" in line


def test_our_own_tool_prints_the_same(both: Both, copies: dict[Cluster, Path]) -> None:
    folder = copies[both.ours]
    assert {path.suffix for path in folder.iterdir()} == {".log", ".checkpoint"}
    assert not differences([folder.parent], [(f"{folder.name}/*", DECODED)])


def test_the_same_kinds_of_records_are_written(both: Both, copies: dict[Cluster, Path]) -> None:
    """Each kind has the same version, whatever the order of the records."""

    def kinds(cluster: Cluster) -> set[tuple[str, int]]:
        found = (record for path in copies[cluster].glob("*.log") for record in dumped(both, cluster, path))
        return {(record["type"], record["version"]) for record in found if not says_nothing(record)}

    theirs, ours = map(kinds, both.clusters)
    assert theirs == ours
    assert len(ours) > 8


def says_nothing(record: dict[str, Any]) -> bool:
    """Return True for the record that no directory is cordoned. Apache Kafka writes it once after each registration,
    without a change."""
    told = record["data"]
    is_of_them = told.keys() == {"brokerId", "brokerEpoch", "cordonedLogDirs"}
    return record["type"] == CHANGE and is_of_them and not told["cordonedLogDirs"]


def test_snapshots_hold_the_same(both: Both, copies: dict[Cluster, Path]) -> None:
    """Compare every record field by field, except for what `_plain` changes."""

    def held(cluster: Cluster) -> list[str]:
        (path,) = copies[cluster].glob("*.checkpoint")
        records = list(dumped(both, cluster, path))
        names = {r["data"]["topicId"]: r["data"]["name"] for r in records if r["type"] == "TOPIC_RECORD"}
        return sorted(_plain(cluster, record, names) for record in records)

    theirs, ours = map(held, both.clusters)
    assert sum("PARTITION_RECORD" in line for line in ours) > 3
    both.equal("the records of the snapshots", "\n".join(theirs), "\n".join(ours))


def _plain(cluster: Cluster, record: dict[str, Any], names: dict[str, str]) -> str:
    """Return the record without what printed.py does not compare either (offsets of the log, counts of changes, and ids
    that a node draws)."""
    data = record["data"]
    for field in ("brokerEpoch", "partitionEpoch", "incarnationId", "producerId"):
        if field in data:
            data[field] = f"‹{field}›"
    if "topicId" in data:
        data["topicId"] = names[data["topicId"]]
    for field in ("isr", "features"):
        if field in data:
            data[field].sort(key=str)
    if not data.get("cordonedLogDirs"):
        data.pop("cordonedLogDirs", None)  # of `says_nothing`
    text = json.dumps(record, sort_keys=True)
    for own, name in texts(cluster).items():
        text = re.sub(rf"(?<!\d){re.escape(own)}(?!\d)", name, text)
    return text


def test_the_shell_shows_the_same(both: Both, copies: dict[Cluster, Path]) -> None:
    printed = []
    for cluster in both.clusters:
        (path,) = copies[cluster].glob("*.checkpoint")
        said = _shell(path, "tree", *(f"/image/{part}" for part in ("cluster", "configs", "features", "topics/byName")))
        printed.append(compared(SHELL, said, texts(cluster)))
    shown = both.equal("MetadataShell", *printed)
    assert "BrokerRegistration(id=3" in shown
    assert shown.count("PartitionRegistration(") > 3


def _shell(snapshot: Path, *words: str) -> Ended:
    """Run the shell in a JVM of its own. Apache Kafka's shell races with its own reader of the snapshot: sometimes it
    waits without end, or shows an empty image. Then it is run again."""
    command = tool_command(SHELL, ["--snapshot", str(snapshot), *words])
    for _ in range(5):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except subprocess.TimeoutExpired:
            continue
        if "BrokerRegistration(" in done.stdout:
            return Ended(done.returncode, done.stdout, "")
    raise AssertionError("the shell has not read the snapshot in five tries")


def test_the_shell_finds_a_directory_in_use(both: Both) -> None:
    """Our node locks its directory as Apache Kafka's node does."""
    printed = []
    for cluster in both.clusters:
        newest = max((cluster.data(1) / f"{METADATA}-0").glob("*.checkpoint"))
        said = both.run(cluster, SHELL, "--snapshot", str(newest), "ls", "/", where="")
        printed.append(compared(SHELL, said, texts(cluster)))
    assert "Unable to lock ‹folder›/1/data" in both.equal("MetadataShell", *printed)
