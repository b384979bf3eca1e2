"""The role of a partition that another broker leads, and when it may change."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from pykbroker_wire.errors import ErrorCode, KafkaError
from tests.replica.world import NOW_MS, World, batch
from tests.storage.test_space import RESERVE, Owner
from tests.storage.truncating import Threads, Told, followed


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def threads(world: World, monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(world, monkeypatch)


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code == code)


def test_a_follower_appends_what_its_leader_has(world: World) -> None:
    partition, follower = followed(world)
    sent = batch(b"from the leader")
    sent[0:8] = (4).to_bytes(8, "big")
    assert follower.append(sent, now_ms=NOW_MS).last_offset == 4
    assert (partition.log.log_end_offset, partition.high_watermark) == (5, 0)


def test_a_disk_that_fails_under_an_append_takes_its_directory_offline(world: World) -> None:
    partition, follower = followed(world)
    world.disk.fail_next("pwritev", errno.EIO)
    sent = batch(b"x")
    sent[0:8] = (4).to_bytes(8, "big")
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        follower.append(sent, now_ms=NOW_MS)
    assert partition.offline


def test_a_follower_leaves_the_room_of_the_metadata_log_alone(world: World) -> None:
    """As on a leader, the room that is left on a full disk belongs to the metadata log."""
    partition, follower = followed(world)
    owner = Owner(world)
    world.disk.capacity_bytes = world.disk.used_bytes + RESERVE
    world.space.keep_reserve(owner, ["d0"], RESERVE)
    owner.is_short_of_room = True
    world.space.reserve_given_up()
    sent = batch(b"from the leader")
    sent[0:8] = (4).to_bytes(8, "big")
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        follower.append(sent, now_ms=NOW_MS)
    assert (partition.log.log_end_offset, partition.offline) == (4, False)
    world.disk.capacity_bytes += 4 * RESERVE
    world.loop.advance(2)
    assert follower.append(sent, now_ms=NOW_MS).last_offset == 4


def test_a_role_that_is_over_changes_nothing(world: World) -> None:
    partition, follower = followed(world)
    world.change(partition, leader=2)
    assert partition.follower is not follower
    with refused(ErrorCode.FENCED_LEADER_EPOCH):
        follower.append(batch(b"x"), now_ms=NOW_MS)
    with refused(ErrorCode.FENCED_LEADER_EPOCH):
        follower.truncate_to(0, Told())
    assert partition.log.log_end_offset == 4


def test_one_leader_epoch_is_one_role(world: World) -> None:
    partition, follower = followed(world)
    world.change(partition, isr=[2])
    assert partition.follower is follower


def test_nothing_is_appended_while_the_log_is_truncated(world: World, threads: Threads) -> None:
    _, follower = followed(world)
    told = Told()
    follower.truncate_to(2, told)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        follower.append(batch(b"x"), now_ms=NOW_MS)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        follower.truncate_to(1, told)
    threads.run()
    sent = batch(b"x")
    sent[0:8] = (2).to_bytes(8, "big")
    assert (told.codes, follower.append(sent, now_ms=NOW_MS).last_offset) == ([ErrorCode.NONE], 2)


def test_a_role_change_waits_for_the_end_of_a_truncation(world: World, threads: Threads) -> None:
    partition, follower = followed(world)
    heard: list[tuple[bool, int]] = []
    world.replicas.on_leadership(lambda partition, leads, epoch: heard.append((leads, epoch)))
    told = Told()
    follower.truncate_to(2, told)
    world.change(partition, leader=1)
    world.change(partition, isr=[1])
    assert (partition.is_leader, partition.leader_epoch, heard) == (False, 1, [])
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
    threads.run()
    assert (partition.is_leader, partition.leader_epoch, heard) == (True, 2, [(True, 2)])
    assert told.codes == [ErrorCode.NONE]
    # The new epoch begins at the log's present end.
    assert partition.log.epoch_end_offset(0) == (0, 2)
    assert partition.append(batch(b"x"), required_acks=-1, now_ms=NOW_MS).first_offset == 2


def test_a_configuration_that_comes_during_a_truncation_acts_behind_it(world: World, threads: Threads) -> None:
    partition, follower = followed(world)
    follower.truncate_to(2, Told())
    partition.configure(replace(world.replicas.topic_config("t"), min_insync_replicas=2))
    threads.run()
    assert partition.log.config.min_insync_replicas == 2


def test_a_role_change_that_waits_comes_also_when_the_directory_fails(world: World, threads: Threads) -> None:
    partition, follower = followed(world)
    follower.truncate_to(2, Told())
    world.change(partition, leader=1)
    world.disk.fail_next("fsync", errno.EIO, path_contains="t-0/")
    threads.run()
    assert (partition.offline, partition.is_leader, partition.leader_epoch) == (True, True, 2)


def test_a_partition_that_goes_takes_no_role_any_more(world: World, threads: Threads) -> None:
    partition, follower = followed(world)
    follower.truncate_to(2, Told())
    world.change(partition, leader=1)
    world.delete("t")
    threads.run()
    assert (partition.is_leader, partition.follower) == (False, None)
