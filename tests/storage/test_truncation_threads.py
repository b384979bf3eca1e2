"""While a thread truncates a log no other part uses it, and its folder keeps its name."""

from __future__ import annotations

import asyncio
import errno

import pytest

from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import iter_batches
from tests.coordinator.fakes import as_loop
from tests.replica.world import NOW_MS, World, batch
from tests.storage.truncating import Threads, Told, followed


@pytest.fixture
def world() -> World:
    return World(directories=2, config={"log.cleaner.enable": "false"})


@pytest.fixture
def threads(world: World, monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(world, monkeypatch)


def test_a_log_that_is_truncated_is_nobody_elses_until_the_end(world: World, threads: Threads) -> None:
    partition, follower = followed(world)
    handle, told = partition.handle, Told()
    log = handle.open()
    follower.truncate_to(2, told)
    assert (len(threads), handle.log, handle.comes_back, handle.can_be_opened) == (1, None, True, False)
    with pytest.raises(KafkaError) as refused:
        handle.open()
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # Upkeep, metrics and checkpoints run in the meantime.
    upkeep = world.upkeep()
    upkeep.start()
    world.loop.advance(120)
    upkeep.stop()
    world.metrics.snapshot()
    assert (told.codes, handle.log) == ([], None)
    threads.run()
    assert (told.codes, handle.log is log, log.log_end_offset) == ([ErrorCode.NONE], True, 2)


def test_nothing_to_cut_off_needs_no_thread(world: World, threads: Threads) -> None:
    partition, follower = followed(world)
    told = Told()
    follower.truncate_to(4, told)
    assert (told.codes, len(threads), partition.log.log_end_offset) == ([ErrorCode.NONE], 0, 4)


def test_a_disk_that_fails_under_it_takes_its_directory_offline(world: World, threads: Threads) -> None:
    partition, follower = followed(world)
    told = Told()
    follower.truncate_to(2, told)
    world.disk.fail_next("fsync", errno.EIO, path_contains="t-0/")
    threads.run()
    assert (told.codes, partition.offline, len(world.failures)) == ([ErrorCode.KAFKA_STORAGE_ERROR], True, 1)


def test_a_disk_that_is_full_leaves_the_log_as_it_was(world: World, threads: Threads) -> None:
    partition, follower = followed(world)
    partition.log.flush()
    for log_dir in world.log_dirs:
        log_dir.checkpoints.write_all()
    told = Told()
    follower.truncate_to(2, told)
    world.disk.fail_next("create", errno.ENOSPC, path_contains="recovery-point-offset-checkpoint")
    threads.run()
    assert (told.codes, partition.log.log_end_offset) == ([ErrorCode.KAFKA_STORAGE_ERROR], 4)
    follower.truncate_to(2, told)
    threads.run()
    assert (told.codes[1:], partition.log.log_end_offset) == ([ErrorCode.NONE], 2)


@pytest.mark.parametrize("operation", ["truncate", "unlink"])
def test_a_disk_that_is_full_in_the_middle_ends_the_log(world: World, threads: Threads, operation: str) -> None:
    """Files and memory would differ."""
    partition = world.create("t", 1, (1, 2), 0, internal_segment_bytes="100")
    for _ in range(4):
        partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
    world.change(partition, leader=2)
    assert partition.follower is not None
    told = Told()
    partition.follower.truncate_to(1, told)
    world.disk.fail_next(operation, errno.ENOSPC, path_contains="t-0/")
    threads.run()
    assert (told.codes, partition.offline, len(world.failures)) == ([ErrorCode.KAFKA_STORAGE_ERROR], True, 1)


def test_a_disk_that_is_full_after_the_cut_leaves_a_log_that_is_what_its_files_are(
    world: World, threads: Threads
) -> None:
    partition, follower = followed(world)
    told = Told()
    follower.truncate_to(2, told)
    world.disk.fail_next("create", errno.ENOSPC, path_contains="leader-epoch-checkpoint")
    world.log_dirs[0].logs["t", 0].epochs.dirty = True
    threads.run()
    log = partition.log
    assert (told.codes, log.log_end_offset, partition.offline) == ([ErrorCode.KAFKA_STORAGE_ERROR], 2, False)
    sent = batch(b"new")
    sent[0:8] = (2).to_bytes(8, "big")
    assert follower.append(sent, now_ms=NOW_MS).last_offset == 2
    assert [header.base_offset for _, header in iter_batches(log.read(0, 1000, 3).joined())] == [0, 1, 2]


def test_a_directory_that_fails_meanwhile_is_the_end_of_it(world: World, threads: Threads) -> None:
    partition, follower = followed(world)
    told = Told()
    path = partition.log.path
    follower.truncate_to(2, told)
    other = world.create("other")
    while not other.log.path.startswith(path.split("/")[0]):
        other = world.create(f"{other.topic}r")
    world.disk.fail_next("pwritev", errno.EIO)
    with pytest.raises(KafkaError):
        other.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
    assert partition.offline
    threads.run()
    assert (told.codes, partition.offline) == ([ErrorCode.KAFKA_STORAGE_ERROR], True)


def test_a_folder_under_a_truncation_is_deleted_afterwards(world: World, threads: Threads) -> None:
    partition, follower = followed(world)
    told = Told()
    root = partition.log.path.split("/")[0]
    follower.truncate_to(2, told)
    world.delete("t")
    world.loop.settle()
    assert world.folders(root) == ["t-0"]
    threads.run()
    assert told.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    world.loop.advance(120)
    assert world.folders(root) == []


def test_a_topic_that_is_made_again_waits_for_its_name(world: World, threads: Threads) -> None:
    """The thread works by names: in the new folder it would cut off another topic's records."""
    partition, follower = followed(world)
    follower.truncate_to(2, Told())
    world.delete("t")
    again = world.create("t", unique=1)
    assert again.recovering
    world.delete("t")
    again = world.create("t", unique=2)
    with pytest.raises(KafkaError) as refused:
        again.append(batch(b"new"), required_acks=1, now_ms=NOW_MS)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    threads.run()
    assert again.append(batch(b"new"), required_acks=1, now_ms=NOW_MS).first_offset == 0
    assert (again.log.topic_id, partition.log_if_open) == (again.topic_id, None)


def test_a_move_waits_for_a_truncation_and_begins_anew(world: World, threads: Threads) -> None:
    partition, follower = followed(world)
    world.replicas.logs.moves.start()
    source = partition.log.path.split("/")[0]
    target = "d1" if source == "d0" else "d0"
    assert not world.replicas.logs.moves.alter("t", 0, target)
    follower.truncate_to(2, Told())
    world.loop.advance(5)
    assert partition.handle in world.replicas.logs.moves
    threads.run()
    world.loop.advance(5)
    assert (partition.log.path, partition.log.log_end_offset) == (f"{target}/t-0", 2)


def test_a_node_that_stops_waits_for_the_thread(world: World, threads: Threads) -> None:
    _, follower = followed(world)
    follower.truncate_to(2, Told())
    world.replicas.stop()
    ended = asyncio.Task(world.replicas.ended(), loop=as_loop(world.loop))
    world.loop.settle()
    assert not ended.done()
    threads.run()
    assert ended.done()


def test_others_are_truncated_beside_it(world: World, threads: Threads) -> None:
    told = Told()
    partitions = []
    for number in range(3):
        partition, follower = followed(world, f"t{number}")
        follower.truncate_to(number, told)
        partitions.append(partition)
    assert len(threads) == 3
    threads.run()
    assert [partition.log.log_end_offset for partition in partitions] == [0, 1, 2]
    assert told.codes == [ErrorCode.NONE] * 3
