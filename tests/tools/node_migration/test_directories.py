"""The check of log directories and of the metadata log, on a directory that Apache Kafka has left."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import ConfigResource
from pykbroker.tools.node_migration import directory_findings, node_files
from pykbroker.tools.node_migration.findings import FindingLevel
from pykbroker.tools.node_migration.log_start_findings import log_start_findings
from pykbroker.tools.node_migration.node_files import FoundDirectory
from pykbroker_log import names
from pykbroker_log.disk import Disk, read_file
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.files import OsFile
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_wire.primitives import uuid_to_str
from pykbroker_wire.stored.metadata import ConfigRecord
from testkit.logs.old_batches import old_batches
from tests.tools.node_migration.nodes_to_check import checked, files, settings, stops, unpacked, warnings

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return unpacked(tmp_path)


def replaced(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def stopped(data: Path | str, *named: str) -> None:
    """Check that there is one stop with these words, and that the check has changed nothing."""
    folder = Path(str(data).partition(",")[0]).parent
    before = files(folder)
    said = stops(checked(settings(data)).findings)
    assert len(said) == 1, said
    for each in named:
        assert each in said[0]
    assert files(folder) == before


def test_a_clean_directory_of_apache_kafka_is_fine_and_stays_as_it_is(data: Path) -> None:
    before = files(data)
    node = checked(settings(data))
    assert not stops(node.findings)
    assert {"small", "many", "transacted"} <= node.image.topics.by_name.keys()
    assert files(data) == before


def test_it_belongs_to_another_node(data: Path) -> None:
    replaced(data / names.META_PROPERTIES, "node.id=1", "node.id=2")
    stopped(data, "Stored node id 2", "node.id 1")


def test_it_is_not_formatted(data: Path) -> None:
    (data / names.META_PROPERTIES).unlink()
    stopped(data, f"No `{names.META_PROPERTIES}` found")


def test_it_is_of_zookeeper_times(data: Path) -> None:
    (data / names.META_PROPERTIES).write_text("version=0\nbroker.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAg\n")
    stopped(data, "has no node.id")


def test_a_second_directory_of_another_cluster(data: Path) -> None:
    more = data.parent / "more"
    more.mkdir()
    properties = f"version=1\nnode.id=1\ncluster.id=other\ndirectory.id={uuid_to_str(bytes([7] * 16))}\n"
    (more / names.META_PROPERTIES).write_text(properties)
    stopped(f"{data},{more}", "Invalid cluster.id", "other")


def test_a_copied_directory(data: Path) -> None:
    more = data.parent / "more"
    more.mkdir()
    shutil.copy(data / names.META_PROPERTIES, more)
    stopped(f"{data},{more}", "have the same directory.id: one is a copy of the other")


def test_a_second_directory_that_is_not_there(data: Path) -> None:
    stopped(f"{data},{data.parent}/absent", f"No `{names.META_PROPERTIES}` found in {data.parent}/absent")


def test_a_directory_that_is_a_file(data: Path) -> None:
    (data.parent / "file").write_text("")
    stopped(f"{data},{data.parent}/file", "cannot be used: it is not a directory")


def test_a_directory_that_cannot_be_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(disk: OsDisk, path: str) -> list[str]:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(OsDisk, "list", listed)
    (line,) = stops(checked(settings(data)).findings)
    assert line == "The directory cannot be used: Input/output error"


def test_files_of_a_running_node_may_go_while_they_are_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka writes each checkpoint to a file that it renames, and deletes the folders of deleted topics."""
    (data / "replication-offset-checkpoint.tmp").write_text("0\n0\n")
    (data / f"doomed-0.{'0' * 32}-delete").mkdir()
    listed = OsDisk.list

    def reading(disk: Disk, path: str) -> bytes:
        if path.endswith(".tmp"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return read_file(disk, path)

    def listing(disk: OsDisk, path: str) -> list[str]:
        if path.endswith("-delete"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return listed(disk, path)

    monkeypatch.setattr(node_files, "read_file", reading)
    monkeypatch.setattr(OsDisk, "list", listing)
    assert not stops(checked(settings(data)).findings)


@pytest.mark.parametrize(
    ("in_cluster", "level"), [(None, FindingLevel.STOP), (False, FindingLevel.STOP), (True, FindingLevel.OK)]
)
def test_a_directory_that_a_process_has_locked(data: Path, in_cluster: bool | None, level: FindingLevel) -> None:
    lock = OsDisk().lock(str(data / names.LOCK))
    try:
        node = checked(settings(data), runs_in_cluster=in_cluster)
    finally:
        lock.release()
    found = node.findings
    assert node.runs
    assert not checked(settings(data), runs_in_cluster=in_cluster).runs
    (line,) = [each for each in found if "runs on the directory" in each.what]
    assert (line.level, line.where) == (level, str(data))
    assert bool(stops(found)) == (level is FindingLevel.STOP)


def test_a_half_moved_directory(data: Path) -> None:
    shutil.rmtree(data / "small-0")
    shutil.rmtree(data / "zstd-1")
    stopped(data, "2 replicas that may lead by the metadata, without a folder here: small-0, zstd-1")


def test_a_directory_of_the_broker_is_not_named(data: Path) -> None:
    """The metadata has the directory ids of a broker."""
    meta = data / names.META_PROPERTIES
    own = next(line for line in meta.read_text().splitlines() if line.startswith("directory.id="))
    replaced(meta, own, f"directory.id={uuid_to_str(bytes([9] * 16))}")
    said = stops(checked(settings(data)).findings)
    assert any(f"Directories of this broker are not here: {own.replace('=', ' ', 1)}" in line for line in said), said


def test_a_partition_in_two_directories(data: Path) -> None:
    more = data.parent / "more"
    shutil.copytree(data / "small-0", more / "small-0")
    properties = (data / names.META_PROPERTIES).read_text().splitlines()
    changed = [line for line in properties if not line.startswith("directory.id=")]
    (more / names.META_PROPERTIES).write_text("\n".join([*changed, f"directory.id={uuid_to_str(bytes([9] * 16))}"]))
    said = stops(checked(settings(f"{data},{more}")).findings)
    assert said == ["1 partition in two directories: small-0"]


def test_an_unclean_stop_is_a_warning(data: Path) -> None:
    (data / names.CLEAN_SHUTDOWN).unlink()
    found = checked(settings(data)).findings
    assert not stops(found)
    assert f"The last stop was not clean ({names.CLEAN_SHUTDOWN} is missing)" in warnings(found)


def test_copies_and_strays_are_warnings(data: Path) -> None:
    (data / f"small-0.{'0' * 32}-future").mkdir()
    (data / f"zstd-0.{'0' * 32}-stray").mkdir()
    said = warnings(checked(settings(data)).findings)
    assert any("1 folder is being moved to this directory: small-0." in line for line in said), said
    assert any("1 folder was set aside as a stray: zstd-0." in line for line in said), said


def without_its_first_segment(data: Path) -> None:
    (data / names.LOG_START_OFFSETS).write_text("0\n1\nsmall 0 3\n")
    segment = data / "small-0" / names.segment_file(0, names.LOG)
    segment.rename(data / "small-0" / names.segment_file(50, names.LOG))


def test_a_checkpointed_start_below_the_first_segment_is_a_warning(data: Path) -> None:
    """The start reports the records as missing, see tests/simulation/test_missing_records.py."""
    without_its_first_segment(data)
    found = checked(settings(data)).findings
    assert not stops(found)
    assert "The first records of 1 log are missing: small-0 (offset 3 to 49)" in warnings(found)


def test_a_checkpointed_start_below_the_first_segment_is_a_stop_in_a_tiered_topic(data: Path) -> None:
    """The start refuses the topic, see the same test."""
    without_its_first_segment(data)
    node = checked(settings(data))
    assert node.directories is not None
    tiered = ConfigRecord(
        resource_type=ConfigResource.TOPIC, resource_name="small", name="remote.storage.enable", value="true"
    )
    delta = MetadataDelta(node.image)
    delta.replay(tiered)
    first = {("small", 0): 50}
    (log_dir,) = node.directories.log_dirs
    (found,) = log_start_findings(log_dir, first, delta.apply(10, 1))
    assert found.level is FindingLevel.STOP
    assert found.what == "The first records of 1 tiered log are not in this directory: small-0 (offset 3 to 49)"


@pytest.mark.parametrize("magic", [0, 1])
def test_record_batches_of_an_old_format(data: Path, magic: int) -> None:
    """The start refuses them, see tests/log/test_old_batches.py."""
    segment = data / "small-0" / names.segment_file(0, names.LOG)
    segment.write_bytes(old_batches(magic, 0))
    stopped(data, f"1 log with record batches of a format that is not served: small-0 (magic {magic})")


@pytest.mark.parametrize("segments", [[900], [900, 1000]], ids=["active", "in the middle"])
def test_an_old_format_in_another_segment_alone(data: Path, segments: list[int]) -> None:
    for base in segments:
        (data / "small-0" / names.segment_file(base, names.LOG)).write_bytes(b"")
    (data / "small-0" / names.segment_file(900, names.LOG)).write_bytes(old_batches(1, 900))
    stopped(data, "small-0 (magic 1)")


def test_the_first_batch_of_each_segment_is_looked_at(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "small-0" / names.segment_file(900, names.LOG)).write_bytes(b"")
    segments = sorted(each.name for each in (data / "small-0").glob("*.log"))
    assert len(segments) > 2
    opened: list[str] = []
    of_disk = OsDisk.open

    def opening(disk: OsDisk, path: str, *, create: bool = False) -> OsFile:
        opened.append(path)
        return of_disk(disk, path, create=create)

    monkeypatch.setattr(OsDisk, "open", opening)
    assert not stops(checked(settings(data)).findings)
    assert [Path(path).name for path in opened if "small-0" in path] == segments


def test_too_little_room_for_the_reserve(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OsDisk, "usage", lambda disk, path: (1 << 40, 1000))
    stopped(data, "1000 bytes are free, fewer than the reserve of the metadata log")


def test_a_reserve_that_is_there_needs_no_room(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OsDisk, "usage", lambda disk, path: (1 << 40, 1000))
    size = 1024
    (data / DIRECTORY / "pykbroker.reserve").write_bytes(bytes(size))
    assert not stops(checked(settings(data, {"pykbroker.metadata.reserve.bytes": str(size)})).findings)


def test_the_owner_of_the_files_is_named(data: Path) -> None:
    found = directory_findings._owners([FoundDirectory(str(data), owner=12345)], os.geteuid())
    assert ["The directory belongs to uid 12345" in each.what for each in found] == [True]
    closed = FoundDirectory(str(data), closed_to_us=["a-0", "b-0"], owner=7)
    (line,) = directory_findings._owners([closed], 7)
    assert line.what == "This user may not read and write a-0, b-0"


def test_a_damaged_checkpoint_is_what_the_start_warns_of(data: Path) -> None:
    (data / names.RECOVERY_POINTS).write_text("no checkpoint")
    before = files(data)
    assert any(names.RECOVERY_POINTS in line for line in warnings(checked(settings(data)).findings))
    assert files(data) == before


# -- the metadata log -------------------------------------------------------------------------------------------------


def segments(data: Path) -> list[Path]:
    return sorted((data / DIRECTORY).glob("*.log"))


def test_a_metadata_log_that_lacks_its_beginning(data: Path) -> None:
    for snapshot in (data / DIRECTORY).glob("*.checkpoint"):
        snapshot.unlink()
    first = segments(data)[0]
    first.rename(first.with_name(names.segment_file(5, names.LOG)))
    said = stops(checked(settings(data)).findings)
    assert any("The start refuses the metadata log" in line and "starts at offset 5" in line for line in said), said


def test_a_metadata_log_without_its_vote(data: Path) -> None:
    """Only a voter with other voters needs it, so this node is fine without."""
    (data / DIRECTORY / "quorum-state").unlink()
    assert not stops(checked(settings(data)).findings)


def test_replicas_without_metadata(data: Path) -> None:
    shutil.rmtree(data / DIRECTORY)
    said = stops(checked(settings(data)).findings)
    assert any("has no records, but there are" in line for line in said), said


def test_a_damaged_quorum_state(data: Path) -> None:
    (data / DIRECTORY / "quorum-state").write_text("{}")
    said = stops(checked(settings(data)).findings)
    assert any("quorum-state is not readable" in line for line in said), said
