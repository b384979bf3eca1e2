"""The replicas of a node follow the metadata: created, found, deleted, created again; their directories, and
failures."""

from __future__ import annotations

import errno

import pytest

from pykbroker.replica.partition import Partition
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.stored.metadata import RemoveTopicRecord
from tests.replica.world import NOW_MS, World, batch, topic, topic_id


@pytest.fixture
def world() -> World:
    return World()


def append(partition: Partition) -> None:
    partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)


def code_of(world: World, name: str, index: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        world.replicas.get(name, index)
    return caught.value.code


def test_what_is_not_here(world: World) -> None:
    world.publish(*topic("elsewhere", 1, (2, 3)))
    world.create("t")
    assert code_of(world, "elsewhere", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(world, "t", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(world, "u", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_logs_are_opened_one_in_a_turn_and_on_first_use(world: World) -> None:
    world.publish(*topic("t", 4, (1,)))
    partitions = list(world.replicas)
    assert not world.folders()
    append(partitions[-1])
    assert world.folders() == [f"t-{len(partitions) - 1}"]
    world.loop.turn()
    assert len(world.folders()) == 2
    world.loop.settle()
    assert len(world.folders()) == len(partitions)


def test_a_deleted_topic_leaves_its_name_at_once_and_its_files_later(world: World) -> None:
    old = world.create("t")
    append(old)
    world.delete("t")
    assert code_of(world, "t", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [name.rpartition("-")[2] for name in world.folders()] == ["delete"]
    new = world.create("t", unique=1)
    assert new is not old
    assert (new.log.log_end_offset, new.log.topic_id) == (0, topic_id("t", 1))
    append(new)
    with pytest.raises(KafkaError):
        append(old)
    world.loop.advance(60)
    assert world.folders() == ["t-0"]
    assert new.log.log_end_offset == 1


def test_deleted_and_made_again_in_one_step_of_the_metadata(world: World) -> None:
    append(world.create("t"))
    old_id = world.image.topics.by_name["t"].id
    world.publish(RemoveTopicRecord(topic_id=old_id), *topic("t", 1, (1,), 1))
    world.loop.settle()
    assert world.replicas.get("t", 0).log.log_end_offset == 0
    assert len(world.folders()) == 2


def test_whoever_still_holds_a_deleted_partition_does_not_bring_its_folder_back(world: World) -> None:
    old = world.create("t")
    world.delete("t")
    with pytest.raises(KafkaError) as caught:
        _ = old.log
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [name.rpartition("-")[2] for name in world.folders()] == ["delete"]


def test_coordinators_are_told_who_leads(world: World) -> None:
    heard: list[tuple[str, bool, int]] = []
    first = world.create("a", replicas=(1, 2))
    world.replicas.on_leadership(lambda partition, leads, epoch: heard.append((str(partition), leads, epoch)))
    world.create("b")
    world.change(first, leader=2)
    world.change(first, isr=[1, 2])
    world.change(first, leader=1)
    world.delete("b")
    assert heard == [("a-0", True, 0), ("b-0", True, 0), ("a-0", False, 1), ("a-0", True, 2), ("b-0", False, 0)]


def test_a_failed_directory_takes_its_partitions_alone() -> None:
    world = World(directories=2)
    world.create("t", 4)
    partitions = list(world.replicas)
    held = [partition for partition in partitions if partition.log.path.startswith("d0/")]
    assert len(held) == 2
    world.disk.fail_next("pwritev", errno.EIO, path_contains=held[0].log.path)
    with pytest.raises(KafkaError) as caught:
        append(held[0])
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [partition.offline for partition in partitions] == [partition in held for partition in partitions]
    assert [log_dir.path for log_dir, _ in world.failures] == ["d0"]
    for partition in partitions:
        if partition not in held:
            append(partition)
    described = world.replicas.logs.directories.describe(None)
    assert [one.error for one in described] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert [len(one.replicas) for one in described] == [0, 2]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(("operation", "file"), [("make_dir", "t-0"), ("open", "t-0/partition.metadata")])
def test_a_replica_that_cannot_be_made_in_one_directory_is_made_in_the_next(
    operation: str, file: str, code: int
) -> None:
    world = World(directories=3)
    world.disk.fail_next(operation, code, path_contains=f"d0/{file}", count=None)
    world.disk.fail_next(operation, code, path_contains=f"d1/{file}", count=None)
    partition = world.create("t")
    append(partition)
    assert partition.log.path == "d2/t-0"
    # There is no second folder among which the next start would have to choose.
    assert [world.folders(f"d{number}") for number in range(3)] == [[], [], ["t-0"]]
    # A full directory is not a broken one.
    assert [log_dir.path for log_dir, _ in world.failures] == (["d0", "d1"] if code == errno.EIO else [])


def test_a_replica_that_can_be_made_nowhere_is_tried_again_when_somebody_asks() -> None:
    world = World(directories=2)
    world.disk.fail_next("make_dir", errno.ENOSPC, path_contains="t-0", count=None)
    partition = world.create("t")
    with pytest.raises(KafkaError) as caught:
        append(partition)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.heal()
    append(partition)
    assert partition.log.path == "d0/t-0"


def test_a_replica_that_was_to_be_made_in_a_full_directory_is_made_in_no_other() -> None:
    world = World(directories=2)
    world.disk.fail_next("make_dir", errno.ENOSPC, path_contains="d1/t-0", count=1)
    world.replicas.logs.directories.prefer("t", 0, world.log_dirs[1])
    partition = world.create("t")
    assert partition.log_if_open is None
    assert world.folders("d0") == world.folders("d1") == []


def test_directories_describe_what_is_asked_for(world: World) -> None:
    world.create("t", 2)
    (described,) = world.replicas.logs.directories.describe({("t", 1), ("t", 5), ("unknown", 0)})
    assert [(one.topic, one.index) for one in described.replicas] == [("t", 1)]
    (described,) = world.replicas.logs.directories.describe({("unknown", 0)})
    assert (described.error, described.replicas) == (ErrorCode.NONE, [])
    assert described.total_bytes > 0


def test_records_of_internal_topics_are_not_deleted(world: World) -> None:
    world.create("__consumer_offsets", cleanup_policy="compact")
    world.create("compacted", cleanup_policy="compact")
    for name, code in (
        ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("compacted", ErrorCode.POLICY_VIOLATION),
        ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(KafkaError) as caught:
            world.replicas.delete_records(name, 0, -1)
        assert caught.value.code == code


def test_records_are_counted_once(world: World) -> None:
    partition = world.create("t")
    data = batch(b"x", b"y", producer_id=5, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        partition.append(bytearray(data), required_acks=1, now_ms=NOW_MS)
    assert world.replicas.topic_metrics.messages_in.value == 2
    assert world.replicas.topic_metrics.bytes_in.value == len(data)


def test_upkeep_goes_on_after_a_task_that_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its timer was set after the task, so one bug ended retention until the next start."""
    world.create("t")
    upkeep = world.upkeep()
    calls = []

    def broken(now_ms: int) -> None:
        calls.append(now_ms)
        raise ZeroDivisionError

    log = world.replicas.get("t", 0).log
    monkeypatch.setattr(type(log), "flush_due", lambda self, now_ms: broken(now_ms))
    upkeep.start()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            world.loop.advance(1.5)
    assert len(calls) == 2
    upkeep.stop()
    world.loop.settle()
