"""The driver with a quorum of one: the time of each call to a listener, of each write, and the effect of a failing
disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pykbroker.net.connection import CloseConnection
from pykbroker.quorum.driver import NotLeader
from pykbroker.quorum.metadata_listeners import ListenerFailed
from pykbroker.runtime import OsRuntime
from pykbroker_log.log_config import StorageError
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft.metadata_storage import StorageConfig
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from pykbroker_wire.messages.vote import VoteRequest
from tests.quorum.world import CLUSTER, DIRECTORY_ID, InlineRuntime, Listener, driver, format_one, run, until


def test_first_start_and_restart_on_a_real_disk(tmp_path: Path) -> None:
    async def test() -> None:
        runtime = OsRuntime(asyncio.get_running_loop())
        log_dir = str(tmp_path)
        format_one(runtime.disk, log_dir)
        quorum, listener = driver(runtime, log_dir), Listener()
        quorum.register(listener)
        await quorum.start()
        assert quorum.is_leader
        assert (quorum.epoch, quorum.leader_id, quorum.kraft_version) == (1, 1, 1)
        await until(lambda: quorum.high_watermark == 3)
        assert quorum.append([b"a", b"b"]) == 4
        assert quorum.append([b"c"]) == 5
        await until(lambda: quorum.high_watermark == 6)
        assert listener.told == [
            "leader None epoch 1",
            "leader 1 epoch 1",
            "commit 3 epoch 1 a b",
            "commit 5 epoch 1 c",
        ]
        state = (tmp_path / "__cluster_metadata-0" / "quorum-state").read_bytes()
        assert state == (
            b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
            b" \n"
        )
        await quorum.stop()

        quorum, listener = driver(runtime, log_dir), Listener()
        await quorum.start()
        assert quorum.epoch == 2
        quorum.register(listener)
        await until(lambda: quorum.high_watermark == 7 and "leader 1 epoch 2" in listener.told)
        # A listener gets no leader before it has seen everything that was committed before.
        told = [line for line in listener.told if line != "leader None epoch 2"]
        assert told == ["commit 3 epoch 1 a b", "commit 5 epoch 1 c", "leader 1 epoch 2"]
        await quorum.stop()
        runtime.close()

    run(test)


def test_not_committed_before_fsync_and_one_fsync_for_many() -> None:
    async def test() -> None:
        runtime = InlineRuntime()
        format_one(runtime.disk, "meta")
        quorum, listener = driver(runtime), Listener()
        quorum.register(listener)
        await quorum.start()
        await until(lambda: quorum.high_watermark == 3)
        runtime.hold()
        quorum.append([b"a"])
        for value in (b"b", b"c", b"d"):
            quorum.append([value])
        await asyncio.sleep(0.01)
        assert quorum.high_watermark == 3
        assert quorum.log_end_offset == 7
        assert listener.values == []
        before = runtime.blocking_calls
        runtime.release()
        await until(lambda: quorum.high_watermark == 7)
        assert listener.values == [b"a", b"b", b"c", b"d"]
        # The fsync that had begun covers everything that was written by then, and the next one the rest.
        assert runtime.blocking_calls - before == 2
        await quorum.stop()

    run(test)


def test_listener_appends_while_it_is_told() -> None:
    async def test() -> None:
        runtime = InlineRuntime()
        format_one(runtime.disk, "meta")
        quorum, first, second = driver(runtime), Listener(), Listener()

        def more() -> None:
            if len(first.values) < 4:
                quorum.append([b"more"])

        first.on_commit = more
        quorum.register(first)
        quorum.register(second)
        await quorum.start()
        await until(lambda: "leader 1 epoch 1" in first.told)
        quorum.append([b"start"])
        await until(lambda: len(second.values) == 4)
        assert first.values == second.values == [b"start", b"more", b"more", b"more"]
        await quorum.stop()

    run(test)


def test_a_listener_that_fails_ends_the_replica() -> None:
    """As Apache Kafka's fault handler does. A controller would go on leading without a committed record."""

    async def test() -> None:
        runtime = InlineRuntime()
        format_one(runtime.disk, "meta")
        failures: list[BaseException] = []
        quorum, listener = driver(runtime, on_failure=failures.append), Listener()

        def fail() -> None:
            if listener.values[-1] == b"bad":
                raise ValueError("a record of another release")

        listener.on_commit = fail
        quorum.register(listener)
        await quorum.start()
        await until(lambda: quorum.high_watermark == 3)
        quorum.append([b"good"])
        quorum.append([b"bad"])
        quorum.append([b"after it"])
        await until(lambda: quorum.failed is not None)
        assert isinstance(quorum.failed, ListenerFailed)
        assert "a record of another release" in str(quorum.failed)
        assert failures == [quorum.failed]
        assert not quorum.is_leader
        await until(lambda: listener.told[-1] == "leader None epoch 1")
        assert listener.values == [b"good", b"bad"]
        await quorum.stop()

    run(test)


def test_failed_fsync_ends_the_replica() -> None:
    async def test() -> None:
        disk = MemoryDisk()
        runtime = InlineRuntime(disk)
        format_one(disk, "meta")
        failures: list[BaseException] = []
        quorum, listener = driver(runtime, on_failure=failures.append), Listener()
        quorum.register(listener)
        await quorum.start()
        await until(lambda: quorum.high_watermark == 3)
        disk.fail_next("fsync", path_contains=".log")
        quorum.append([b"lost"])
        await until(lambda: quorum.failed is not None)
        assert isinstance(quorum.failed, StorageError)
        assert failures == [quorum.failed]
        assert not quorum.is_leader
        assert quorum.high_watermark == 3
        with pytest.raises(StorageError):
            quorum.append([b"no"])
        await until(lambda: listener.told[-1] == "leader None epoch 1")
        assert listener.values == []
        await quorum.stop()

    run(test)


def test_failed_write_ends_the_replica() -> None:
    async def test() -> None:
        disk = MemoryDisk()
        runtime = InlineRuntime(disk)
        format_one(disk, "meta")
        quorum = driver(runtime)
        await quorum.start()
        await until(lambda: quorum.high_watermark == 3)
        waiting = quorum.handle(fetch(3, 1, 1, max_wait_ms=5000), 18)
        disk.fail_next("pwritev", path_contains=".log")
        with pytest.raises(StorageError):
            quorum.append([b"lost"])
        assert quorum.failed is not None
        # Its connection closes. An exception would be logged as the failure of a handler, once for each waiting
        # request.
        assert waiting.cancelled()
        await quorum.stop()

    run(test)


def test_a_failed_read_for_a_snapshot_ends_the_replica(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        disk = MemoryDisk()
        runtime = InlineRuntime(disk)
        format_one(disk, "meta")
        failures: list[BaseException] = []

        def due(_: object) -> None:
            disk.fail_next("pread", path_contains=".log")
            quorum.write_snapshot((quorum.high_watermark or 0) - 1, 1, [])

        quorum = driver(runtime, on_failure=failures.append, snapshot_bytes=1000, on_snapshot_due=due)
        quorum.register(Listener())
        await quorum.start()
        await until(lambda: quorum.high_watermark == 3)
        assert quorum.failed is None
        quorum.append([b"v" * 2000])
        await until(lambda: quorum.failed is not None)
        assert isinstance(quorum.failed, StorageError)
        assert failures == [quorum.failed]
        assert not [record for record in caplog.records if record.exc_info]
        await quorum.stop()

    run(test)


def test_snapshots_late_listeners_and_cleaning() -> None:
    async def test() -> None:
        runtime = InlineRuntime()
        format_one(runtime.disk, "meta")
        # Files that a newer snapshot covers are deleted at once. Segments of 300 bytes hold three batches.
        storage = StorageConfig(segment_bytes=300, max_retention_bytes=1)
        taken: list[int] = []

        def due(_: object) -> None:
            offset = (quorum.high_watermark or 0) - 1
            taken.append(offset)
            quorum.write_snapshot(offset, 1, list(early.values))

        quorum, early = driver(runtime, storage=storage, snapshot_bytes=400, on_snapshot_due=due), Listener()
        quorum.register(early)
        await quorum.start()
        for index in range(40):
            quorum.append([b"v%d" % index])
            await until(lambda: quorum.high_watermark == quorum.log_end_offset)
            await asyncio.sleep(0)
        assert len(taken) >= 2
        names = [name for name in runtime.disk.list("meta/__cluster_metadata-0") if name.endswith(".checkpoint")]
        assert names == [f"{taken[-1] + 1:020d}-0000000001.checkpoint"]
        assert quorum.node.log.start_offset == taken[-1] + 1
        segments = [name for name in runtime.disk.list("meta/__cluster_metadata-0") if name.endswith(".log")]
        assert int(segments[0].removesuffix(".log")) > 3
        late = Listener()
        quorum.register(late)
        await until(lambda: len(late.values) == 40)
        assert late.told[0].startswith(f"snapshot {taken[-1]} epoch 1 v0 v1")
        assert late.values == early.values
        await quorum.stop()

        again, listener = driver(runtime, storage=storage), Listener()
        again.register(listener)
        await again.start()
        await until(lambda: "leader 1 epoch 2" in listener.told)
        assert listener.values == early.values
        # The voters come from the snapshot now, and not from the checkpoint of the format.
        assert again.kraft_version == 1
        assert again.voters.ids() == (1,)
        assert again.is_only_voter
        await again.stop()

    run(test)


def test_snapshot_of_what_is_not_committed_is_refused() -> None:
    async def test() -> None:
        runtime = InlineRuntime()
        format_one(runtime.disk, "meta")
        quorum = driver(runtime)
        await quorum.start()
        await until(lambda: quorum.high_watermark == 3)
        with pytest.raises(ValueError, match="not committed"):
            quorum.write_snapshot(3, 1, [])
        with pytest.raises(ValueError, match="epoch"):
            quorum.write_snapshot(2, 2, [])
        await quorum.stop()

    run(test)


def fetch(
    offset: int, epoch: int, last_epoch: int, max_wait_ms: int = 0, high_watermark: int = 1 << 62
) -> FetchRequest:
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
        fetch_offset=offset,
        replica_directory_id=bytes([9]) * 16,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=CLUSTER,
        replica_state=ReplicaState(replica_id=9),
        max_wait_ms=max_wait_ms,
        topics=[FetchTopic(topic_id=bytes(15) + b"\1", partitions=[partition])],
    )


def test_requests_of_the_quorum() -> None:
    async def test() -> None:
        runtime = InlineRuntime()
        format_one(runtime.disk, "meta")
        quorum = driver(runtime)
        await quorum.start()
        await until(lambda: quorum.high_watermark == 3)

        response = quorum.handle(fetch(0, 1, 0), 18)
        partition = response.responses[0].partitions[0]
        assert (partition.error_code, partition.high_watermark, len(partition.records)) == (0, 3, 174 + 1)
        assert response.node_endpoints[0].host == "controller"
        assert quorum.handle(fetch(0, 1, 0), 15).node_endpoints == []

        def error(request: FetchRequest) -> int:
            code: int = quorum.handle(request, 18).responses[0].partitions[0].error_code
            return code

        assert error(fetch(0, 0, 0)) == ErrorCode.FENCED_LEADER_EPOCH
        assert error(fetch(0, 2, 0)) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert error(fetch(-1, 1, 0)) == ErrorCode.INVALID_REQUEST
        assert error(fetch(0, 1, 2)) == ErrorCode.INVALID_REQUEST
        diverging = quorum.handle(fetch(9, 1, 1), 18).responses[0].partitions[0].diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (1, 3)
        wrong = fetch(0, 1, 0)
        wrong.cluster_id = "another"
        assert quorum.handle(wrong, 18).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        wrong = fetch(0, 1, 0)
        wrong.topics[0].topic_id = bytes(16)
        assert quorum.handle(wrong, 18).error_code == ErrorCode.INVALID_REQUEST
        assert quorum.handle(VoteRequest(cluster_id="another"), 2).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID

        waiting = quorum.handle(fetch(3, 1, 1, max_wait_ms=5000), 18)
        assert isinstance(waiting, asyncio.Future)
        runtime.hold()
        quorum.append([b"news"])
        # Served before it is committed, because the fetch that follows is what commits it in a larger quorum.
        partition = (await waiting).responses[0].partitions[0]
        assert partition.records
        assert partition.high_watermark == 3
        waiting = quorum.handle(fetch(4, 1, 1, max_wait_ms=5000, high_watermark=3), 18)
        assert isinstance(waiting, asyncio.Future)
        runtime.release()
        partition = (await waiting).responses[0].partitions[0]
        assert (partition.high_watermark, len(partition.records)) == (4, 0)
        started = asyncio.get_running_loop().time()
        waiting = quorum.handle(fetch(4, 1, 1, max_wait_ms=30, high_watermark=4), 18)
        assert isinstance(waiting, asyncio.Future)
        assert (await waiting).responses[0].partitions[0].error_code == 0
        assert asyncio.get_running_loop().time() - started >= 0.025

        waiting = quorum.handle(fetch(4, 1, 1, max_wait_ms=1 << 30), 18)
        assert len(quorum.node._fetches.parked) == 1
        waiting.cancel()
        await asyncio.sleep(0)
        assert quorum.node._fetches.parked == []

        topic = RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)])
        described = quorum.handle(DescribeQuorumRequest(topics=[topic]), 2)
        partition = described.topics[0].partitions[0]
        assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, 4)
        assert [(voter.replica_id, voter.log_end_offset) for voter in partition.current_voters] == [(1, 4)]
        assert [(other.replica_id, other.log_end_offset) for other in partition.observers] == [(9, 4)]
        assert partition.current_voters[0].replica_directory_id == DIRECTORY_ID
        assert [listener.host for node in described.nodes for listener in node.listeners] == ["controller"]
        topic.topic_name = "other"
        described = quorum.handle(DescribeQuorumRequest(topics=[topic]), 2)
        assert described.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await quorum.stop()
        with pytest.raises((NotLeader, StorageError)):
            quorum.append([b"late"])
        # A request that comes while the node stops ends its connection, with one line and no traceback.
        with pytest.raises(CloseConnection, match="is no replica of the quorum now"):
            quorum.handle(fetch(0, 1, 0), 18)

    run(test)
