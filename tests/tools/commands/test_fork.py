"""`pykbroker fork` on the directories of real brokers: what a fork has, what is refused, and that nothing half made is
left."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from pykbroker.__main__ import main
from pykbroker.entry.local_cluster.topology import CLUSTER_FILE, layout_from_json, new_layout
from pykbroker.storage import forks
from pykbroker.storage.stored_cluster import NewerRecords, StoredAddress, stored_cluster
from pykbroker.testing import Broker
from pykbroker.tools.commands import fork as fork_command
from pykbroker_log import names
from pykbroker_log.checkpoints import decode_properties
from pykbroker_log.forking import PlannedFile, PlannedFolder
from pykbroker_log.os_disk import links
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_raft.reserve import FILE as RESERVE
from pykbroker_wire.stored.metadata import FeatureLevelRecord
from pykbroker_wire.stored_framing import encode_metadata_record

pytestmark = pytest.mark.slow
SEGMENT = "00000000000000000000.log"


def properties(path: Path) -> dict[str, str]:
    return decode_properties((path / names.META_PROPERTIES).read_bytes())


def files(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The directory of a broker that has stopped cleanly, with a topic of several segments."""
    path = tmp_path / "source"
    with Broker(data_dir=path) as broker:
        broker.create_topic("orders", 2)
    return path


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["fork", *map(str, words)])
    said = capfd.readouterr()
    return status, said.out, said.err


def refused(capfd: pytest.CaptureFixture[str], source: Path, *words: object) -> str:
    """Run a fork that must fail; return its line. Nothing may be left beside the source, or changed in it."""
    parent = source.parent
    listed, before = sorted(parent.iterdir()), files(source)
    status, out, line = run(capfd, *words)
    assert (status, out) == (1, "")
    assert line.startswith("pykbroker: ")
    assert line.count("\n") == 1
    assert sorted(parent.iterdir()) == listed
    assert {name: data for name, data in files(source).items() if not name.endswith(names.LOCK)} == {
        name: data for name, data in before.items() if not name.endswith(names.LOCK)
    }
    return line.removeprefix("pykbroker: ").rstrip("\n")


@pytest.mark.parametrize("words", [(), ("--link",), ("--keep-cluster-id",)])
def test_a_broker_starts_on_a_fork(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    target = tmp_path / "fork"
    status, out, _ = run(capfd, *words, source, target)
    assert status == 0
    assert out.startswith("Forked 1 directory as cluster ")
    ours, theirs = properties(target), properties(source)
    assert (ours["cluster.id"] == theirs["cluster.id"]) == (words == ("--keep-cluster-id",))
    assert {**ours, "cluster.id": ""} == {**theirs, "cluster.id": ""}
    assert (target / names.CLEAN_SHUTDOWN).read_bytes() == (source / names.CLEAN_SHUTDOWN).read_bytes()
    assert not (target / DIRECTORY / RESERVE).exists()
    assert not (target / names.LOCK).exists()
    before = files(source)
    with Broker(data_dir=target) as broker:
        assert broker.topics() == {"orders": 2}
        broker.create_topic("more", 1)
    assert files(source) == before
    with Broker(data_dir=source) as broker:
        assert broker.topics() == {"orders": 2}


def test_a_running_broker_is_not_forked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    with Broker(data_dir=source):
        status, _, line = run(capfd, source, tmp_path / "fork")
        assert (status, line) == (1, f"pykbroker: {source} is in use: stop its node first\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["source"]


def test_a_listener_that_answers_is_refused(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def all_answer(addresses: list[StoredAddress]) -> list[StoredAddress]:
        asked.extend(addresses)
        return addresses

    monkeypatch.setattr(fork_command, "answering", all_answer)
    line = refused(capfd, source, source, tmp_path / "fork")
    assert "node 1 at " in line
    assert "answers, and the metadata names it" in line
    # The broker's listener and the controller's, which is the voter's too.
    assert len({each.port for each in asked}) == 2


def test_a_program_that_listens_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        there = StoredAddress(1, "127.0.0.1", server.getsockname()[1])
        gone = StoredAddress(2, "127.0.0.1", other.getsockname()[1])
        other.close()
        assert fork_command.answering([there, gone]) == [there]


@pytest.mark.parametrize("which", ["below", "above", "full", "file", "no parent", "no node", "no directory"])
def test_places_that_are_refused(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], which: str) -> None:
    target = tmp_path / "fork"
    words: tuple[Path, Path] = (source, target)
    match which:
        case "below":
            words = (source, source / "fork")
        case "above":
            words = (source / "orders-0", source)
        case "full":
            target.mkdir()
            (target / "x").touch()
        case "file":
            target.touch()
        case "no parent":
            words = (source, target / "deeper")
        case "no node":
            words = (source / "orders-0", target)
        case "no directory":
            words = (tmp_path / "missing", target)
    refused(capfd, source, *words)


def test_an_empty_directory_is_taken(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fork").mkdir()
    assert run(capfd, source, tmp_path / "fork")[0] == 0
    assert (tmp_path / "fork" / "orders-1").is_dir()


DAMAGE = {
    "meta.properties of a newer release": (names.META_PROPERTIES, b"version=2\n", "Unknown meta.properties version"),
    "a torn meta.properties": (names.META_PROPERTIES, b"version", "malformed line"),
    "a torn checkpoint": (names.HIGH_WATERMARKS, b"0\n3\n", "is damaged"),
    "a damaged snapshot": (f"{DIRECTORY}/00000000000000000000-0000000000.checkpoint", b"x", "snapshot is damaged"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_and_newer_directories(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], case: str
) -> None:
    name, data, expected = DAMAGE[case]
    (source / name).write_bytes(data)
    assert expected in refused(capfd, source, source, tmp_path / "fork")


def test_records_of_a_newer_release() -> None:
    value = encode_metadata_record(FeatureLevelRecord(name="metadata.version", feature_level=999), 0)
    with pytest.raises(NewerRecords, match=r"metadata\.version is at level 999"):
        stored_cluster(None, [value])


@pytest.mark.parametrize(
    ("code", "expected"), [(errno.ENOSPC, "there is no room for"), (errno.EXDEV, "are on two file systems")]
)
def test_a_fork_that_fails_half_way(
    source: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    expected: str,
) -> None:
    made: list[str] = []

    def copy(source: str, target: str, *, keeps_time: bool) -> int:
        if len(made) == 5:
            raise OSError(code, os.strerror(code), target)
        made.append(target)
        return whole(source, target, keeps_time=keeps_time)

    whole = links.copy
    monkeypatch.setattr(links, "copy", copy)
    assert expected in refused(capfd, source, source, tmp_path / "fork")
    assert len(made) == 5


def test_without_room_nothing_is_begun(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OsDisk, "usage", lambda *_: (1 << 40, 1 << 20))
    assert refused(capfd, source, source, tmp_path / "fork").startswith("there is no room for")


def test_across_file_systems(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system refuses the link. That a copy crosses file systems is the kernel's work, and has no clone."""

    def link(source: str, target: str) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link", source)

    monkeypatch.setattr(links, "link", link)
    closed = PlannedFolder("orders-0", [PlannedFile(SEGMENT, 0, is_closed=True)])
    monkeypatch.setattr(forks, "plan", lambda *_: [closed])
    assert "are on two file systems" in refused(capfd, source, "--link", source, tmp_path / "fork")
    assert run(capfd, source, tmp_path / "fork")[0] == 0


def test_what_a_killed_fork_left_is_removed(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    left = tmp_path / ".fork.unfinished"
    (left / "orders-9").mkdir(parents=True)
    (left / "orders-9" / "x").touch()
    (left / "y").touch()
    assert run(capfd, source, tmp_path / "fork")[0] == 0
    assert not left.exists()
    assert not (tmp_path / "fork" / "orders-9").exists()


def test_the_directories_of_a_cluster(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A tree as `start --brokers` makes it: cluster.json has the cluster id too."""
    tree, target = tmp_path / "tree", tmp_path / "fork"
    (tree / "node-1").mkdir(parents=True)
    source.rename(tree / "node-1" / "data")
    layout = new_layout(1, 0, 19092, lambda: b"i" * 16, lambda: 19093)
    (tree / CLUSTER_FILE).write_text(layout.to_json())
    assert run(capfd, tree, target)[0] == 0
    new = layout_from_json((target / CLUSTER_FILE).read_text(), "")
    assert new.cluster_id == properties(target / "node-1" / "data")["cluster.id"]
    assert new.members == layout.members
    assert not (target / names.LOCK).exists()


def test_a_node_without_its_metadata_log(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (source / DIRECTORY).rename(tmp_path / "elsewhere")
    assert f"has no {DIRECTORY}: name all directories of node 1" in refused(capfd, source, source, tmp_path / "fork")


def test_directories_of_two_clusters(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    with Broker(data_dir=other):
        pass
    line = refused(capfd, source, source, tmp_path / "a", other, tmp_path / "b")
    assert "belongs to cluster" in line


def test_pairs(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, _, line = run(capfd, source)
    assert status == 2
    assert "pairs" in line
