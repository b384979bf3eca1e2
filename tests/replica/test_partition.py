"""One partition: what its role allows, how its high watermark moves, which parts are notified."""

from __future__ import annotations

import errno

import pytest

from pykbroker.replica.parked import ParkedFetch
from pykbroker.replica.partition import Partition
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.stored.metadata import ConfigRecord, PartitionChangeRecord
from tests.replica.world import NOW_MS, World, batch, directory_id

READ = {"max_bytes": 1_000_000, "min_one": True}


@pytest.fixture
def world() -> World:
    return World()


def append(partition: Partition, *values: bytes, acks: int = -1) -> int:
    return partition.append(batch(*values or (b"x",)), required_acks=acks, now_ms=NOW_MS).last_offset


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code == code)


def test_alone_everything_is_committed_at_once(world: World) -> None:
    partition = world.create("t")
    codes: list[ErrorCode] = []
    assert append(partition, b"a", b"b") == 1
    partition.when_committed(2, codes.append)
    assert codes == [ErrorCode.NONE]
    found = partition.read(0, 1_000_000, read_committed=False, min_one=True)
    assert found.next_offset == 2


def test_followers_move_the_high_watermark_and_tell_who_waits_in_order(world: World) -> None:
    partition = world.create("t", replicas=(1, 2, 3))
    append(partition)
    append(partition)
    told: list[str] = []
    partition.when_committed(2, lambda code: told.append(f"second {code.name}"))
    partition.when_committed(1, lambda code: told.append(f"first {code.name}"))
    partition.note_fetched(2, 2)
    assert partition.high_watermark == 0
    partition.note_fetched(3, 1)
    assert (partition.high_watermark, told) == (1, ["first NONE"])
    assert partition.read(0, 1_000_000, read_committed=False, min_one=True).next_offset == 1
    partition.note_fetched(3, 2)
    assert told == ["first NONE", "second NONE"]


def test_a_smaller_replica_set_commits_what_it_has(world: World) -> None:
    partition = world.create("t", replicas=(1, 2))
    append(partition)
    world.change(partition, isr=[1])
    assert partition.high_watermark == 1


def test_a_new_epoch_of_this_leader_keeps_what_followers_proved_and_any_other_leader_ends_it(world: World) -> None:
    """As in Apache Kafka, which keeps it also if it gets two elections at once. But another leader may have led between
    them, and followers may have cut their logs."""
    partition = world.create("t", replicas=(1, 2))
    append(partition)
    append(partition)
    partition.note_fetched(2, 1)
    world.change(partition, leader=1)
    partition.note_fetched(2, 2)
    assert partition.high_watermark == 2
    append(partition)
    partition.note_fetched(2, 3)
    append(partition)
    between = PartitionChangeRecord(partition_id=0, topic_id=partition.topic_id, leader=2)
    world.publish(between, PartitionChangeRecord(partition_id=0, topic_id=partition.topic_id, leader=1, isr=[1, 2]))
    append(partition)
    assert partition.high_watermark == 3
    partition.note_fetched(2, 5)
    assert partition.high_watermark == 5


def test_the_high_watermark_stands_still_while_too_few_are_in_sync(world: World) -> None:
    """KIP-966. Records that only the leader had were committed, and lost with it."""
    partition = world.create("t", replicas=(1, 2), min_insync_replicas="2")
    append(partition)
    partition.note_fetched(2, 1)
    world.change(partition, isr=[1])
    assert append(partition, acks=1) == 1
    partition.note_fetched(2, 2)
    assert partition.high_watermark == 1
    world.change(partition, isr=[1, 2])
    assert partition.high_watermark == 2


def test_it_moves_on_when_fewer_are_asked_for(world: World) -> None:
    partition = world.create("t", replicas=(1, 2), min_insync_replicas="2")
    world.change(partition, isr=[1])
    append(partition, acks=1)
    assert partition.high_watermark == 0
    value = ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="1")
    world.publish(value)
    assert partition.high_watermark == 1


def with_a_follower_a_moment_behind(world: World) -> Partition:
    """Return a partition with two records, one of them committed. Broker 2 is outside the ISR and had all records a
    moment ago."""
    partition = world.create("t", replicas=(1, 2))
    world.register(1, 2)
    world.change(partition, isr=[1])
    append(partition)
    partition.note_fetched(2, 0, leader_end=0)
    append(partition)
    assert partition.high_watermark == 1
    return partition


def test_it_waits_for_a_follower_that_keeps_up_outside_the_isr(world: World) -> None:
    """Without that, a follower that always lags by a moment never reaches the high watermark, and never joins."""
    partition = with_a_follower_a_moment_behind(world)
    world.broker_changes(2, fenced=1)
    assert partition.high_watermark == 2
    assert not world.isr_requests


def test_a_follower_outside_the_isr_is_not_waited_for_longer_than_its_lag(world: World) -> None:
    partition = with_a_follower_a_moment_behind(world)
    world.loop.advance(31)
    assert partition.high_watermark == 1
    partition.shrink_isr()
    assert partition.high_watermark == 2
    assert not world.isr_requests


def test_too_few_in_sync_replicas_refuse_acks_all_alone(world: World) -> None:
    partition = world.create("t", replicas=(1, 2), min_insync_replicas="2")
    world.change(partition, isr=[1])
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        append(partition)
    assert append(partition, acks=1) == 0


@pytest.mark.parametrize(
    ("replicas", "isr", "enough"), [((1,), [1], True), ((1, 2), [1, 2], True), ((1, 2), [1], False)]
)
def test_acks_all_asks_for_no_more_replicas_than_there_are(
    world: World, replicas: tuple[int, ...], isr: list[int], enough: bool
) -> None:
    partition = world.create("t", replicas=replicas, min_insync_replicas="3")
    if isr != list(replicas):
        world.change(partition, isr=isr)
    if enough:
        assert append(partition) == 0
        return
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        append(partition)
    # A replica that is being added counts before it is in sync, and one that is gone does not, as in Apache Kafka.
    world.change(partition, replicas=[1])
    assert append(partition) == 0
    world.change(partition, replicas=[1, 2, 3], adding_replicas=[2, 3])
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        append(partition)


def test_epochs_of_requests(world: World) -> None:
    partition = world.create("t")
    world.change(partition, leader=1)
    partition.require_leader()
    partition.require_leader(1)
    with refused(ErrorCode.FENCED_LEADER_EPOCH):
        partition.require_leader(0)
    with refused(ErrorCode.UNKNOWN_LEADER_EPOCH):
        partition.require_leader(2)


def test_who_waits_hears_that_the_leadership_went(world: World) -> None:
    partition = world.create("t", replicas=(1, 2))
    append(partition)
    codes: list[ErrorCode] = []
    partition.when_committed(1, codes.append)
    world.change(partition, leader=2)
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_new_epoch_of_the_same_leader_fails_no_waiter(world: World) -> None:
    """As Apache Kafka's DelayedProduce: it checks whether the log is led here, and not in which epoch."""
    partition = world.create("t", replicas=(1, 2))
    append(partition)
    codes: list[ErrorCode] = []
    partition.when_committed(1, codes.append)
    reads: list[bool] = []

    def read(final: bool) -> int:
        reads.append(final)
        return 1

    fetch = ParkedFetch(world.replicas.purgatory.deadlines, lambda: [partition], 1, 60.0, read)
    world.change(partition, leader=1)
    world.loop.settle()
    # The fetch is read again, because it may name the former epoch, and waits on.
    assert (partition.leader_epoch, codes, reads, fetch.future.done()) == (1, [], [False], False)
    partition.note_fetched(2, 1)
    world.loop.settle()
    assert (codes, reads) == ([ErrorCode.NONE], [False, False])
    fetch.future.cancel()


def test_only_a_leader_takes_records(world: World) -> None:
    partition = world.create("t", replicas=(1, 2))
    world.change(partition, leader=2)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        append(partition)


def test_a_read_for_a_follower_changes_nothing(world: World) -> None:
    """A read moved the high watermark. Now the result of a fetch is noted separately."""
    partition = world.create("t", replicas=(1, 2))
    append(partition)
    codes: list[ErrorCode] = []
    partition.when_committed(1, codes.append)
    for _ in range(2):
        assert partition.read_for_follower(0, 1_000, min_one=True).next_offset == 1
        assert partition.read_for_follower(1, 1_000, min_one=True).next_offset == 1
    assert (partition.high_watermark, codes) == (0, [])
    partition.note_fetched(2, 1)
    assert (partition.high_watermark, codes) == (1, [ErrorCode.NONE])


@pytest.mark.parametrize("as_replica", [False, True])
def test_a_disk_that_cannot_be_read_is_an_answer(world: World, as_replica: bool) -> None:
    """A follower's read let the error through: the connection was closed, and the directory stayed online."""
    partition = world.create("t", replicas=(1, 2))
    world.change(partition, isr=[1])
    append(partition)
    world.disk.fail_next("pread", errno.EIO)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        if as_replica:
            partition.read_for_follower(0, 1_000, min_one=True)
        else:
            partition.read(0, 1_000, read_committed=False, min_one=True)
    assert partition.offline
    assert [log_dir.directory_id for log_dir, _ in world.failures] == [directory_id(0)]
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        append(partition)


def test_who_asks_to_wait_for_a_log_that_is_gone_is_told(world: World) -> None:
    """In a request for two partitions of one directory the second append failed it."""
    partition = world.create("t", replicas=(1, 2))
    append(partition)
    partition.handle.take_offline()
    codes: list[ErrorCode] = []
    partition.when_committed(1, codes.append)
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_full_disk_refuses_and_comes_back(world: World) -> None:
    partition = world.create("t")
    append(partition)
    world.disk.fail_next("pwritev", errno.ENOSPC)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        append(partition)
    assert append(partition) == 1
    assert not world.failures


def test_a_duplicate_waits_for_its_original(world: World) -> None:
    partition = world.create("t", replicas=(1, 2))
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    first = partition.append(batch(b"x", **fields), required_acks=-1, now_ms=NOW_MS)
    again = partition.append(batch(b"x", **fields), required_acks=-1, now_ms=NOW_MS)
    assert (again.first_offset, again.duplicate, first.duplicate) == (0, True, False)
    codes: list[ErrorCode] = []
    partition.when_committed(again.last_offset + 1, codes.append)
    assert codes == []
    partition.note_fetched(2, 1)
    assert codes == [ErrorCode.NONE]


def test_delete_records(world: World) -> None:
    partition = world.create("t", replicas=(1, 2))
    for _ in range(3):
        append(partition)
    partition.note_fetched(2, 2)
    for offset in (3, -2):
        with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
            partition.delete_records_before(offset)
    assert partition.delete_records_before(1)[0] == 1
    assert partition.log.log_start_offset == 1
    assert partition.delete_records_before(0)[0] == 0
    assert partition.log.log_start_offset == 1
    assert partition.delete_records_before(-1)[0] == 2
    assert partition.log.log_start_offset == 2
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        partition.read(1, 1_000, read_committed=False, min_one=True)
