"""`pykbroker start` on directories that this node must not use: exit status 1, one line with what to do, and not a byte
written. The directory is one that Apache Kafka 4.3.1 has left.

Nodes that a running cluster refuses are in test_bad_members.py. Apache Kafka's directories after kill -9 must recover,
and they do in compat_tests/on_disk/test_earlier_releases.py. Groups of the streams protocol stop no start
(compat_tests/on_disk/test_handover.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pykbroker.metadata.features import METADATA_VERSION, METADATA_VERSION_LATEST
from pykbroker_log import names
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_raft import batches
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_wire.primitives import uuid_to_str
from pykbroker_wire.stored.metadata import FeatureLevelRecord
from pykbroker_wire.stored_framing import encode_metadata_record
from testkit.nodes.processes import run, write_properties
from tests.tools.node_migration.nodes_to_check import settings, unpacked

pytestmark = pytest.mark.slow


def changed(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def of_another_node(data: Path) -> str:
    changed(data / names.META_PROPERTIES, "node.id=1", "node.id=2")
    return str(data)


def with_another_cluster(data: Path) -> str:
    more = data.parent / "more"
    more.mkdir()
    of_it = f"version=1\nnode.id=1\ncluster.id=other\ndirectory.id={uuid_to_str(bytes([7] * 16))}\n"
    (more / names.META_PROPERTIES).write_text(of_it)
    # An id would be written to the first directory, if all of them were this node's.
    meta = data / names.META_PROPERTIES
    meta.write_text("".join(line for line in meta.read_text().splitlines(True) if "directory.id" not in line))
    return f"{data},{more}"


def with_its_copy(data: Path) -> str:
    shutil.copytree(data, data.parent / "more")
    return f"{data},{data.parent}/more"


def half_moved(data: Path) -> str:
    """The metadata log went to another place, and its replicas are still here."""
    shutil.rmtree(data / DIRECTORY)
    return str(data)


def with_an_absent_half(data: Path) -> str:
    return f"{data},{data.parent}/absent"


def of_a_newer_release(data: Path) -> str:
    """The cluster has gone on to the first metadata.version that is not served."""
    folder = data / DIRECTORY
    segment = max(folder.glob("*.log"))
    *_, last = batches.intact(segment.read_bytes())
    level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LATEST + 1)
    with segment.open("ab") as file:
        file.write(batches.data_batch([encode_metadata_record(level, 0)], last.next_offset, last.epoch, 0))
    return str(data)


#: what is wrong -> (makes log.dirs, words of the one line)
REFUSED: dict[str, tuple[Callable[[Path], str], tuple[str, ...]]] = {
    "another node": (of_another_node, ("Stored node id 2", "Correct node.id, or name this node's own directories")),
    "another cluster": (with_another_cluster, ("Invalid cluster.id", "Name only directories of one cluster")),
    "a copy": (with_its_copy, ("have the same directory.id", "Take the copy out of log.dirs")),
    "half moved": (half_moved, ("has no records, but there are",)),
    "a newer release": (of_a_newer_release, ("metadata.version is at level 34", "Start a release that serves it")),
    "an absent half": (with_an_absent_half, ("No `meta.properties` found", "have you run `pykbroker format`")),
}


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return the bytes of each file, None for a folder. Locks have no bytes, and reading one would release it."""
    return {
        str(each.relative_to(folder)): each.read_bytes() if each.is_file() else None
        for each in sorted(folder.rglob("*"))
        if each.name != names.LOCK
    }


def refused(folder: Path, log_dirs: str) -> str:
    """Start on these directories, and return the one line."""
    properties = write_properties(folder.parent / "server.properties", settings(log_dirs))
    before = contents(folder)
    ended = run("start", str(properties))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("pykbroker: ")]
    assert contents(folder) == before
    return line


@pytest.mark.parametrize("what", REFUSED)
def test_a_directory_is_refused_with_one_line_and_stays_as_it_is(what: str, tmp_path: Path) -> None:
    prepare, words = REFUSED[what]
    folder = tmp_path / "directories"
    line = refused(folder, prepare(unpacked(folder)))
    for each in words:
        assert each in line, line


def test_a_directory_that_a_process_uses(tmp_path: Path) -> None:
    folder = tmp_path / "directories"
    data = unpacked(folder)
    lock = OsDisk().lock(str(data / names.LOCK))
    try:
        line = refused(folder, str(data))
    finally:
        lock.release()
    assert "locked by another process" in line
    assert "Stop the process that uses it and wait for its end" in line
