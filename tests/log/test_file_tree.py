"""Folders and files in memory, without a disk around them."""

from __future__ import annotations

import itertools

import pytest

from pykbroker_log.file_tree import FileNode, FileTree, FolderNode, TreeNode


def everything(node: FolderNode) -> dict[str, TreeNode]:
    return dict(node.entries)


def synced(node: FolderNode) -> dict[str, TreeNode]:
    return dict(node.synced)


def synced_data(node: FileNode) -> bytearray:
    return bytearray(node.synced)


def test_used_bytes_are_those_of_the_files() -> None:
    tree = FileTree()
    tree.make_folder("d")
    first, second = tree.create("d/a"), tree.create("d/b")
    tree.write(first, 0, b"12345")
    tree.write(second, 2, b"x")
    assert tree.used_bytes == 5 + 3
    tree.write(first, 3, b"45678")
    tree.truncate(second, 1)
    assert tree.used_bytes == 8 + 1
    tree.truncate(second, 4)
    assert bytes(second.data) == b"\0" * 4
    tree.unlink("d/a")
    assert tree.used_bytes == 4


def test_a_file_keeps_its_number_under_every_name() -> None:
    tree = FileTree()
    tree.make_folder("d")
    first, second = tree.create("a"), tree.create("d/b")
    assert [first.file_id, second.file_id] == [1, 2]
    tree.rename("a", "d/c")
    assert tree.find("a") is None
    assert tree.find("d/c") is first
    tree.unlink("d/c")
    # A file that is open lives on without a name, and its number is not used again.
    assert tree.by_id[1] is first
    assert tree.create("a").file_id == 3


def test_names_that_are_not_there_or_of_another_kind() -> None:
    tree = FileTree()
    tree.make_folder("d")
    tree.create("d/a")
    with pytest.raises(FileNotFoundError):
        tree.create("e/a")
    with pytest.raises(FileNotFoundError):
        tree.unlink("d/b")
    with pytest.raises(FileNotFoundError):
        tree.rename("d/b", "d/c")
    with pytest.raises(IsADirectoryError):
        tree.unlink("d")
    with pytest.raises(NotADirectoryError):
        tree.folder("d/a")
    with pytest.raises(OSError, match="not empty"):
        tree.remove_folder("d")
    with pytest.raises(OSError, match="directory exists"):
        tree.rename("d/a", "/d")
    assert [path for path, _ in tree.contents()] == ["d/a"]
    assert tree.create("b").file_id == 2, "a file that was not created has no number"


def test_a_change_counts_as_synced_after_its_own_sync_alone() -> None:
    tree = FileTree()
    node = tree.create("a")
    tree.write(node, 0, b"first")
    tree.sync(node)
    tree.write(node, 5, b" second")
    assert (bytes(node.synced), len(node.unsynced)) == (b"first", 1)
    assert list(tree.restarted(synced, synced_data).contents()) == []
    tree.sync_folder(".")
    assert list(tree.restarted(synced, synced_data).contents()) == [("a", b"first")]
    assert list(tree.contents()) == [("a", b"first second")]


def test_a_restarted_tree_is_synced_and_apart_from_the_old_one() -> None:
    tree = FileTree()
    tree.make_folder("d")
    for name in ("d/b", "d/a", "c"):
        tree.write(tree.create(name), 0, name.encode())
    after = tree.restarted(everything, lambda node: bytearray(node.data))
    assert list(after.contents()) == list(tree.contents())
    assert after.used_bytes == tree.used_bytes == 7
    # The numbers follow the order of the names.
    assert [bytes(after.by_id[number].data) for number in (1, 2, 3)] == [b"c", b"d/a", b"d/b"]
    assert list(after.restarted(synced, synced_data).contents()) == list(tree.contents())
    after.unlink("c")
    assert tree.find("c") is not None


def test_a_file_that_two_names_lead_to_stays_one_file() -> None:
    """The new name of a file that moved is durable, and the end of its old name is not."""
    tree = FileTree()
    tree.make_folder("d")
    tree.write(tree.create("a"), 0, b"data")
    tree.sync_folder(".")
    tree.rename("a", "d/a")
    tree.sync_folder("d")
    asked = itertools.count()

    def data_of(node: FileNode) -> bytearray:
        next(asked)
        return bytearray(node.data)

    after = tree.restarted(synced, data_of)
    assert [path for path, _ in after.contents()] == ["a", "d/a"]
    assert after.find("a") is after.find("d/a")
    assert after.used_bytes == 4
    assert next(asked) == 1


def test_the_clock_gives_the_time_of_the_last_change() -> None:
    numbers = itertools.count(100)
    tree = FileTree(lambda: next(numbers))
    node = tree.create("a")
    assert node.modified_ms == 100
    tree.write(node, 0, b"x")
    tree.truncate(node, 0)
    tree.sync(node)
    assert node.modified_ms == 102
    assert next(iter(tree.restarted(everything, synced_data).by_id.values())).modified_ms == 102
