"""A broker is reset, and put back to a snapshot: the data are exact, and nothing is handed out a second time."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from kafka import KafkaConsumer, KafkaProducer

from pykbroker.storage.format import StorageFormatError
from pykbroker.testing import Broker, SecureBroker, broker_files
from pykbroker_raft.reserve import FILE as RESERVE
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pykbroker_wire.messages.leave_group import LeaveGroupRequest
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.sync_group import SyncGroupRequest
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def write(broker: Broker, topic: str, *values: bytes) -> None:
    if topic not in broker.topics():
        broker.create_topic(topic)
    for value in values:
        broker.produce(topic, value)


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def leader_epoch(wire: Wire, topic: str) -> int:
    answer = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    epoch: int = answer.topics[0].partitions[0].leader_epoch
    return epoch


def producer_id(broker: Broker, transactional_id: str | None = None) -> tuple[int, int]:
    def ask() -> bool:
        answer = wire.ask(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000))
        found.append((answer.producer_id, answer.producer_epoch))
        return bool(answer.error_code == ErrorCode.NONE)

    found: list[tuple[int, int]] = []
    with Wire(broker.bootstrap_servers) as wire:
        if transactional_id is not None:
            wire.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]))
        eventually("a producer id", ask)
    return found[-1]


def delete_records(broker: Broker, topic: str, before: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=10_000)
    assert broker._ask(1, request).topics[0].partitions[0].error_code == ErrorCode.NONE


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    from kafka import TopicPartition
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=group, enable_auto_commit=False)
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, "mark", -1)})
    consumer.close()


def generation_of_new_member(broker: Broker, group: str) -> int:
    """Let a member join the group, get its part of the assignment, and leave. Return its generation."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )

    def join() -> JoinGroupResponse | None:
        answer: JoinGroupResponse = wire.ask(request, version=3)
        return answer if answer.error_code == ErrorCode.NONE else None

    with Wire(broker.bootstrap_servers) as wire:
        wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
        joined = eventually(f"a member of {group}", join)
        member_id, generation = joined.member_id, joined.generation_id
        sync = SyncGroupRequest(group_id=group, generation_id=generation, member_id=member_id)
        assert wire.ask(sync, version=3).error_code == ErrorCode.NONE
        leave = LeaveGroupRequest(group_id=group, member_id=member_id)
        assert wire.ask(leave, version=1).error_code == ErrorCode.NONE
        return generation


# -- reset ------------------------------------------------------------------------------------------------------------


def test_a_reset_broker_is_empty_and_has_its_address(broker: Broker) -> None:
    broker.create_topic("orders", 3)
    write(broker, "orders", b"one")
    commit(broker, "g", "orders", 1)
    address, cluster_id = broker.bootstrap_servers, broker._node.shared.cluster_id
    broker.reset()
    assert broker.bootstrap_servers == address
    assert broker._node.shared.cluster_id == cluster_id
    assert broker.topics(internal=True) == {}
    assert broker.groups() == []
    write(broker, "orders", b"two")
    assert values(broker, "orders") == [b"two"]


def test_a_client_that_connects_during_a_reset_waits_and_is_not_refused(broker: Broker) -> None:
    refused: list[OSError] = []
    over = threading.Event()

    def connect() -> None:
        while not over.is_set():
            try:
                with socket.create_connection(("localhost", broker_port), timeout=60):
                    pass
            except ConnectionRefusedError as error:
                refused.append(error)

    broker_port = broker.port
    knocking = threading.Thread(target=connect)
    knocking.start()
    for _ in range(10):
        broker.reset()
    over.set()
    knocking.join()
    assert refused == []


def test_no_leader_epoch_and_no_producer_id_comes_twice_after_a_reset(broker: Broker) -> None:
    broker.create_topic("orders")
    with Wire(broker.bootstrap_servers) as wire:
        before = leader_epoch(wire, "orders")
    seen = producer_id(broker)
    for _ in range(3):
        broker.reset()
        broker.create_topic("orders")
        with Wire(broker.bootstrap_servers) as wire:
            after = leader_epoch(wire, "orders")
        assert after > before
        new = producer_id(broker)
        assert new[0] > seen[0]
        before, seen = after, new


def test_fault_rules_outlive_a_reset(broker: Broker) -> None:
    broker.faults.add("CreateTopics", error="POLICY_VIOLATION")
    broker.reset()
    with Wire(broker.bootstrap_servers) as wire, pytest.raises(AssertionError):
        wire.create("orders", partitions=1)
    assert len(broker.faults) == 1


def test_a_directory_that_stays_is_not_emptied(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("orders")
        with pytest.raises(RuntimeError, match="directories stay"):
            broker.reset()
        assert broker.topics() == {"orders": 1}


def test_users_of_a_secured_broker_can_log_in_after_a_reset() -> None:
    with SecureBroker() as broker:
        broker.reset()
        producer = LibrdkafkaProducer(broker.confluent("alice"))
        producer.produce("orders", b"one")
        assert producer.flush(60) == 0


def test_a_secured_broker_has_the_passwords_of_the_snapshot() -> None:
    with SecureBroker() as broker:
        first = broker.users["alice"]
        broker.users["alice"] = "another"
        broker._set_passwords()
        settings = broker.confluent("alice")
        broker.users["alice"] = first
        broker.restore(broker.snapshot())
        producer = LibrdkafkaProducer(settings)
        producer.produce("orders", b"one")
        assert producer.flush(60) == 0


def test_several_threads_may_ask_for_states_at_once(broker: Broker) -> None:
    async def main() -> None:
        snapshots = await asyncio.gather(*(broker.snapshot_async() for _ in range(4)))
        await asyncio.gather(*(broker.restore_async(snapshot) for snapshot in snapshots), broker.snapshot_async())

    broker.create_topic("orders")
    asyncio.run(main())
    assert broker.topics() == {"orders": 1}


def test_a_restore_without_room_leaves_the_broker_as_it_is(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("orders")
    snapshot = broker.snapshot()
    broker.create_topic("later")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(broker_files, "copy_tree", full)
        with pytest.raises(OSError, match="no room"):
            broker.restore(snapshot)
    assert broker.topics() == {"orders": 1, "later": 1}
    broker.restore(snapshot)
    assert broker.topics() == {"orders": 1}


def test_only_a_running_broker_is_reset() -> None:
    broker = Broker()
    for method in (broker.reset, broker.snapshot):
        with pytest.raises(RuntimeError, match="not running"):
            method()


# -- snapshots --------------------------------------------------------------------------------------------------------


def test_a_restored_broker_has_exactly_what_it_had(broker: Broker) -> None:
    broker.create_topic("orders", config={"retention.ms": 1000 * 3600})
    write(broker, "orders", *(b"%d" % number for number in range(10)))
    delete_records(broker, "orders", 3)
    commit(broker, "g", "orders", 7)

    def state() -> object:
        return (
            [(record.offset, record.timestamp_ms, record.value) for record in broker.records("orders")],
            broker.beginning_offsets("orders"),
            broker.end_offsets("orders"),
            broker.committed_offsets("g"),
            broker.topics(internal=True),
            broker._node.loader.image.configs,
            broker._node.loader.image.topics.by_name["orders"].id,
        )

    before = state()
    snapshot = broker.snapshot()
    for _ in range(3):
        write(broker, "orders", b"later")
        commit(broker, "g", "orders", 11)
        broker.create_topic("another")
        broker.restore(snapshot)
        assert state() == before
    broker.delete_topic("orders")
    broker.restore(snapshot)
    assert state() == before
    # The log goes on where it was.
    write(broker, "orders", b"10")
    assert broker.records("orders")[-1].offset == 10


def test_a_broker_goes_back_and_forth_between_snapshots(broker: Broker) -> None:
    broker.create_topic("orders")
    snapshots = []
    for number in range(4):
        write(broker, "orders", b"%d" % number)
        snapshots.append(broker.snapshot())
    for number in (0, 3, 1, 2, 0):
        broker.restore(snapshots[number])
        assert values(broker, "orders") == [b"%d" % each for each in range(number + 1)]


def test_the_broker_serves_on_after_a_snapshot(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create("orders", partitions=1)
        for number in range(20):
            # A snapshot seals no segment: the indexes and the producers go on.
            broker.snapshot().delete()
            wire.produce("orders", batch(b"%d" % number))
        assert wire.values("orders") == [b"%d" % number for number in range(20)]


def test_a_batch_that_is_repeated_after_a_restore_is_recognised(broker: Broker) -> None:
    identity, epoch = producer_id(broker)
    with Wire(broker.bootstrap_servers) as wire:
        wire.create("orders", partitions=1)
        wire.produce("orders", batch(b"one", producer_id=identity, producer_epoch=epoch, base_sequence=0))
    broker.restore(broker.snapshot())
    with Wire(broker.bootstrap_servers) as wire:
        again = batch(b"one", producer_id=identity, producer_epoch=epoch, base_sequence=0)
        assert wire.produce("orders", again).error_code == ErrorCode.NONE
        assert wire.values("orders") == [b"one"]
        gap = batch(b"three", producer_id=identity, producer_epoch=epoch, base_sequence=2)
        assert wire.produce("orders", gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_open_transaction_is_open_again(broker: Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"open").get(60)
    snapshot = broker.snapshot()
    producer.commit_transaction()
    producer.close()
    assert [record.value for record in broker.records("orders", read_committed=True)] == [b"open"]
    broker.restore(snapshot)
    assert broker.transaction("x").state == "Ongoing"
    assert broker.records("orders", read_committed=True) == []


def test_epochs_of_leaders_groups_and_producers_rise_above_all_that_were_handed_out(broker: Broker) -> None:
    for topic in ("orders", "deleted"):
        broker.create_topic(topic)
    generations = {generation_of_new_member(broker, group) for group in ("g", "h")}
    ids = {producer_id(broker, "x"), producer_id(broker)}
    with Wire(broker.bootstrap_servers) as wire:
        epochs = {leader_epoch(wire, topic) for topic in ("orders", "deleted")}
    snapshot = broker.snapshot()
    for _ in range(3):
        generations |= {generation_of_new_member(broker, group) for group in ("g", "g", "h")}
        ids |= {producer_id(broker, "x"), producer_id(broker)}
        broker.delete_topic("deleted")
        with Wire(broker.bootstrap_servers) as wire:
            epochs.add(leader_epoch(wire, "orders"))
        broker.restore(snapshot)
        with Wire(broker.bootstrap_servers) as wire:
            new_epochs = {leader_epoch(wire, topic) for topic in ("orders", "deleted")}
        new_generations = {generation_of_new_member(broker, group) for group in ("g", "h")}
        new_ids = {producer_id(broker, "x"), producer_id(broker)}
        assert min(new_epochs) > max(epochs)
        assert min(new_generations) > max(generations)
        assert min(new_ids) > max(ids)
        epochs, generations, ids = epochs | new_epochs, generations | new_generations, ids | new_ids


def test_a_fenced_member_and_a_fenced_producer_stay_fenced(broker: Broker) -> None:
    """Without higher epochs the zombie of the time after the snapshot would be taken for the present producer."""
    broker.create_topic("orders")
    first = producer_id(broker, "x")
    snapshot = broker.snapshot()
    zombie = producer_id(broker, "x")
    assert zombie == (first[0], first[1] + 1)
    broker.restore(snapshot)
    assert producer_id(broker, "x") != zombie


def test_a_snapshot_belongs_to_its_broker(broker: Broker) -> None:
    snapshot = broker.snapshot()
    with Broker() as other, pytest.raises(ValueError, match="another broker"):
        other.restore(snapshot)
    snapshot.delete()
    snapshot.delete()
    with pytest.raises(ValueError, match="deleted"):
        broker.restore(snapshot)
    assert broker.topics() == {}


def test_a_directory_that_stays_has_the_restored_state(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("orders")
        write(broker, "orders", b"one")
        snapshot = broker.snapshot()
        write(broker, "orders", b"two")
        broker.restore(snapshot)
        assert values(broker, "orders") == [b"one"]
    with Broker(data_dir=tmp_path) as broker:
        assert values(broker, "orders") == [b"one"]


def test_several_log_directories_are_put_back(tmp_path: Path) -> None:
    dirs = ",".join(str(tmp_path / name) for name in "ab")
    with Broker({"log.dirs": dirs}) as broker:
        broker.create_topic("orders", 4)
        for number in range(8):
            broker.produce("orders", b"%d" % number, partition=number % 4)
        snapshot = broker.snapshot()
        broker.delete_topic("orders")
        broker.restore(snapshot)
        assert sorted(value or b"" for value in values(broker, "orders")) == [b"%d" % number for number in range(8)]


def test_the_methods_have_asynchronous_twins(broker: Broker) -> None:
    async def main() -> None:
        snapshot = await broker.snapshot_async()
        await broker.restore_async(snapshot)
        await broker.reset_async()

    asyncio.run(main())


# -- states on disk ---------------------------------------------------------------------------------------------------


def test_a_broker_begins_with_a_copy_and_comes_back_to_it(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        write(broker, "orders", b"prepared")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with Broker(state=tmp_path) as one, Broker(state=tmp_path) as two:
        write(one, "orders", b"one")
        assert values(two, "orders") == [b"prepared"]
        one.reset()
        assert values(one, "orders") == [b"prepared"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_each_reset_returns_to_the_copy_that_the_first_one_made(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "prepared") as prepared:
        write(prepared, "orders", b"one")
    with Broker(state=tmp_path / "prepared") as broker:
        broker.reset()
        with Broker(data_dir=tmp_path / "prepared") as prepared:
            write(prepared, "orders", b"another")
        for _ in range(2):
            write(broker, "orders", b"two")
            broker.reset()
            assert values(broker, "orders") == [b"one"]
    with Broker(data_dir=tmp_path / "prepared") as prepared:
        assert values(prepared, "orders") == [b"one", b"another"]


def test_a_directory_in_use_is_no_state(tmp_path: Path) -> None:
    with (
        Broker(data_dir=tmp_path),
        pytest.raises(StorageFormatError, match="a broker uses it"),
        Broker(state=tmp_path),
    ):
        pass


def test_a_directory_without_a_broker_is_no_state(tmp_path: Path) -> None:
    with pytest.raises(StorageFormatError, match=r"no meta\.properties"), Broker(state=tmp_path):
        pass
    with pytest.raises(ValueError, match="takes no state"):
        Broker(data_dir=tmp_path, state=tmp_path)


def test_records_are_as_old_as_they_were(broker: Broker) -> None:
    """The jumps of the clock since the snapshot do not count for records that come back."""
    broker.create_topic("orders", config={"retention.ms": 24 * 3600 * 1000})
    write(broker, "orders", b"one")
    snapshot = broker.snapshot()
    broker.clock.advance("7 d")
    eventually("retention deletes the record", lambda: broker.beginning_offsets("orders") == {0: 1})
    broker.restore(snapshot)
    # The next runs of retention.
    broker.clock.advance("12 min")
    assert values(broker, "orders") == [b"one"]
    broker.clock.advance("30 h")
    eventually("retention deletes the record again", lambda: broker.beginning_offsets("orders") == {0: 1})


def test_closed_segments_are_shared_and_stay_as_they_were(broker: Broker) -> None:
    """A closed segment has one copy on the disk, until the node would change it."""
    broker.create_topic("orders", config={"segment.bytes": 1024 * 1024})
    large = [b"%d" % number + bytes(400_000) for number in range(8)]
    write(broker, "orders", *large)
    folder = Path(broker._node.config.log_dirs[0]) / "orders-0"
    snapshot = broker.snapshot()
    names = sorted(path.name for path in folder.glob("*.log"))
    shared = [name for name in names if (folder / name).stat().st_nlink > 1]
    assert len(names) > 2
    assert shared == names[:-1]
    for _ in range(2):
        # DeleteRecords and retention remove segments, and an append goes to the last one.
        delete_records(broker, "orders", 5)
        write(broker, "orders", b"later")
        broker.restore(snapshot)
        assert values(broker, "orders") == large


def test_a_restored_broker_shares_files_with_the_snapshot_and_changes_none_of_them(broker: Broker) -> None:
    write(broker, "orders", b"one", b"two")
    commit(broker, "g", "orders", 1)
    snapshot = broker.snapshot()

    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in Path(snapshot.path).rglob("*") if path.is_file()}

    before = contents()
    for _ in range(2):
        broker.restore(snapshot)
        folder = Path(broker._node.config.log_dirs[0]) / "orders-0"
        active = folder / f"{0:020}.log"
        assert active.stat().st_nlink > 1, "no record is copied before it is needed"
        write(broker, "orders", b"three")
        assert active.stat().st_nlink == 1
        commit(broker, "g", "orders", 2)
        delete_records(broker, "orders", 1)
        broker.create_topic("bills")
        # This writes all that a stop writes.
        broker.snapshot().delete()
        assert contents() == before
    broker.restore(snapshot)
    assert values(broker, "orders") == [b"one", b"two"]


def test_what_a_reset_and_a_restore_replace_is_removed(broker: Broker) -> None:
    write(broker, "orders", b"one")
    snapshot = broker.snapshot()
    own_folder = Path(broker._node.config.log_dirs[0]).parent
    for _ in range(2):
        broker.restore(snapshot)
        broker.reset()

    def names() -> list[str]:
        return sorted(path.name.partition("-")[0] for path in own_folder.iterdir())

    eventually("the old directories are gone", lambda: names() == ["beginning", "data", "snapshot"])


def test_the_reserve_of_the_metadata_log_is_kept(broker: Broker) -> None:
    write(broker, "orders", b"one")
    snapshot = broker.snapshot()
    reserve = Path(broker._node.config.log_dirs[0]) / "__cluster_metadata-0" / RESERVE
    before = reserve.stat()
    broker.restore(snapshot)
    assert reserve.stat().st_ino == before.st_ino
    assert reserve.stat().st_size == before.st_size > 0


def test_internal_topics_are_small_in_a_temporary_directory(broker: Broker, tmp_path: Path) -> None:
    def partitions_of_offsets(broker: Broker) -> int:
        write(broker, "orders", b"one")
        commit(broker, "g", "orders", 1)
        return broker.topics(internal=True)["__consumer_offsets"]

    assert partitions_of_offsets(broker) == 6
    with Broker({"offsets.topic.num.partitions": 3}) as other:
        assert partitions_of_offsets(other) == 3
    with Broker(data_dir=tmp_path) as kept:
        assert partitions_of_offsets(kept) == 50
    with Broker(state=tmp_path) as copy:
        assert copy.committed_offsets("g")["orders", 0].offset == 1
        assert partitions_of_offsets(copy) == 50
