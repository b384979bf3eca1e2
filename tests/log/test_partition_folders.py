"""The folders of a directory, without logs: which are found, and which names they get."""

from __future__ import annotations

import pytest

from pykbroker_log.clean_shutdown import CleanShutdown
from pykbroker_log.log_config import StorageError
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.partition_folders import PartitionFolders

UNIQUE = "0" * 31 + "7"


def made(disk: MemoryDisk, *folders: str) -> PartitionFolders:
    for folder in ("", *folders):
        if not disk.exists(f"data/{folder}".rstrip("/")):
            disk.make_dirs(f"data/{folder}".rstrip("/"))
    sign = CleanShutdown(disk, "data")
    sign.read()
    found = PartitionFolders(disk, "data", sign)
    found.read()
    return found


def test_a_mark_in_the_name_decides_what_a_folder_is() -> None:
    folders = made(
        MemoryDisk(), "t-0", f"t-1.{UNIQUE}-future", f"t-2.{UNIQUE}-delete", "lost+found", "__cluster_metadata-0"
    )
    assert folders.partitions == {("t", 0)}
    assert folders.futures == [("t", 1)]
    assert folders.leftovers == [f"t-2.{UNIQUE}-delete"]
    assert not folders.holds("__cluster_metadata", 0)


def test_a_second_copy_of_one_partition_is_a_leftover() -> None:
    other = "0" * 31 + "8"
    folders = made(MemoryDisk(), f"t-1.{UNIQUE}-future", f"t-1.{other}-future")
    assert folders.futures == [("t", 1)]
    assert folders.leftovers == [f"t-1.{other}-future"]


def test_a_deleted_folder_frees_its_name_and_goes_later() -> None:
    disk = MemoryDisk()
    folders = made(disk, "t-0")
    names = []
    for _ in range(2):
        names.append(folders.mark_deleted("t", 0, bytes(16)))
        assert not folders.holds("t", 0)
        disk.make_dirs("data/t-0")
    assert folders.leftovers == names
    assert len(set(names)) == 2
    for name in names:
        folders.delete(name)
        folders.delete(name)
        assert not disk.exists(f"data/{name}")
    assert folders.leftovers == []


def test_a_copy_becomes_a_log_or_is_given_up() -> None:
    disk = MemoryDisk()
    folders = made(disk)
    for partition in (0, 1, 2):
        path = folders.future_path("t", partition, bytes(15) + b"7")
        assert folders.future_path("t", partition, bytes(16)) == path
        if partition != 2:
            disk.make_dirs(path)
    folders.promote_future("t", 0)
    assert folders.partitions == {("t", 0)}
    assert disk.exists("data/t-0")
    doomed = folders.doom(folders.release_future("t", 1))
    assert folders.leftovers == [doomed]
    # The folder of the third copy was never created.
    assert folders.doom(folders.release_future("t", 2)) is None
    assert folders.futures == []


def test_a_folder_that_must_not_be_served_is_kept_with_another_name() -> None:
    disk = MemoryDisk()
    folders = made(disk, "t-0")
    folders.set_aside("t", 0, "of a test")
    assert not folders.holds("t", 0)
    (kept,) = folders.all()
    assert (kept.topic, kept.partition, kept.mark) == ("t", 0, "-stray")


def test_an_error_of_the_disk_names_the_directory() -> None:
    with pytest.raises(StorageError, match="data"):
        made(MemoryDisk()).stored_bytes("t", 0)
