"""The answer to Produce waits for flushes first, then for commits, and no longer than the request allows."""

from __future__ import annotations

from pykbroker.replica.delayed_produce import ACKS_ALL, DelayedProduce
from pykbroker.replica.partition import Partition
from pykbroker_wire.errors import ErrorCode
from tests.replica.world import World, batch


def appended(world: World, partition: Partition) -> tuple[Partition, int]:
    info = partition.append(batch(b"x"), required_acks=ACKS_ALL, now_ms=world.runtime.now_ms())
    return partition, info.last_offset


def test_one_answer_when_the_last_partition_has_committed() -> None:
    world = World()
    world.create("t", 2, replicas=(1, 2))
    first, second = (world.replicas.get("t", index) for index in range(2))
    answers: list[dict[int, ErrorCode]] = []
    places = [appended(world, first), appended(world, second)]
    DelayedProduce(world.runtime.loop, places, acks=ACKS_ALL, timeout_ms=1_000, answer=answers.append).begin()
    second.note_fetched(2, 1)
    assert answers == []
    first.note_fetched(2, 1)
    assert answers == [{}]
    world.loop.settle()
    assert not world.loop.sleeping()


def test_what_has_not_committed_in_time_is_named_by_its_place() -> None:
    world = World()
    world.create("t", 2, replicas=(1, 2))
    first, second = (world.replicas.get("t", index) for index in range(2))
    answers: list[dict[int, ErrorCode]] = []
    places = [appended(world, first), appended(world, second)]
    DelayedProduce(world.runtime.loop, places, acks=ACKS_ALL, timeout_ms=1_000, answer=answers.append).begin()
    first.note_fetched(2, 1)
    world.loop.advance(1.1)
    assert answers == [{1: ErrorCode.REQUEST_TIMED_OUT}]
    # A partition that commits nothing for long does not keep requests that were given up.
    assert second._commit._waiting == []


def test_what_was_committed_by_enough_and_is_no_longer_on_enough_is_said_to_be_so() -> None:
    """The replica set shrank before the request began to wait, for example because of a flush of another partition."""
    world = World()
    partition = world.create("t", replicas=(1, 2), min_insync_replicas="2")
    answers: list[dict[int, ErrorCode]] = []
    places = [appended(world, partition)]
    partition.note_fetched(2, 1)
    world.change(partition, isr=[1])
    DelayedProduce(world.runtime.loop, places, acks=ACKS_ALL, timeout_ms=1_000, answer=answers.append).begin()
    assert answers == [{0: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}]


def test_nothing_is_answered_after_the_client_has_gone() -> None:
    world = World()
    partition = world.create("t", replicas=(1, 2))
    answers: list[dict[int, ErrorCode]] = []
    delayed = DelayedProduce(
        world.runtime.loop, [appended(world, partition)], acks=ACKS_ALL, timeout_ms=1_000, answer=answers.append
    )
    delayed.begin()
    delayed.cancel()
    partition.note_fetched(2, 1)
    world.loop.advance(1.1)
    assert answers == []
    assert not world.loop.sleeping()


def test_what_was_cut_off_while_a_flush_went_on_is_not_acknowledged() -> None:
    """This broker leads again, and another record is committed at the offset of the request's record."""
    world = World()
    partition = world.create("t", replicas=(1, 2))
    answers: list[dict[int, ErrorCode]] = []
    delayed = DelayedProduce(
        world.runtime.loop, [appended(world, partition)], acks=ACKS_ALL, timeout_ms=1_000, answer=answers.append
    )
    world.change(partition, leader=2)
    world.change(partition, leader=1)
    partition.note_fetched(2, 1)
    assert partition.has_committed(0)
    delayed.begin()
    assert answers == [{0: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
