# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""The share coordinator of a whole node, asked as a share partition's leader and a group's coordinator ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pykbroker.coordinator.share.records import decode
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.primitives import uuid_to_str
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.record import iter_records
from pykbroker_wire.stored.share.share_snapshot import ShareSnapshotValue
from pykbroker_wire.stored.share.share_update import ShareUpdateValue
from testkit.acting import acts
from testkit.nodes.sim import Sim, playing

Play = Callable[..., Any]
STATE = "__share_group_state"
GROUP = "a:group"
PREFIX = "share.coordinator."
ONE = {f"{PREFIX}state.topic.num.partitions": "1", f"{PREFIX}state.topic.min.isr": "1"}
SHARE = 2
Batch = tuple[int, int, int, int]


@pytest.fixture
def play() -> Iterator[Play]:
    """`play(scenario, {key: value})` on a separate node."""
    with playing(ONE) as run:
        yield run


class Leader:
    """The leader of one share partition, and the coordinator of its group."""

    def __init__(self, sim: Sim, topic_id: bytes, partition: int = 0, group: str = GROUP) -> None:
        self.sim = sim
        self.topic_id = topic_id
        self.partition = partition
        self.group = group

    @property
    def key(self) -> str:
        return f"{self.group}:{uuid_to_str(self.topic_id)}:{self.partition}"

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """Return the answer for this share partition, the only one in the request."""
        if version is None:
            answer = await self.sim.call(request)
        else:
            answer = await self.sim._connection.send(request, 30_000, version)
        (topic,) = answer.results
        (found,) = topic.partitions
        assert (topic.topic_id, found.partition) == (self.topic_id, self.partition)
        assert bool(found.error_code) == (found.error_message is not None)
        return found

    async def initialize(self, state_epoch: int = 1, start: int = -1) -> Any:
        module = initialize_share_group_state
        data = module.PartitionData(partition=self.partition, state_epoch=state_epoch, start_offset=start)
        topics = [module.InitializeStateData(topic_id=self.topic_id, partitions=[data])]
        return await self.ask(module.InitializeShareGroupStateRequest(group_id=self.group, topics=topics))

    async def write(
        self,
        start: int = -1,
        batches: Sequence[Batch] = (),
        *,
        leader_epoch: int = 0,
        state_epoch: int = 1,
        complete: int = 0,
        version: int | None = None,
    ) -> Any:
        module = write_share_group_state
        data = module.PartitionData(
            partition=self.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete_count=complete,
            state_batches=[
                module.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        topics = [module.WriteStateData(topic_id=self.topic_id, partitions=[data])]
        return await self.ask(module.WriteShareGroupStateRequest(group_id=self.group, topics=topics), version)

    async def read(self, leader_epoch: int = 0) -> Any:
        module = read_share_group_state
        data = module.PartitionData(partition=self.partition, leader_epoch=leader_epoch)
        topics = [module.ReadStateData(topic_id=self.topic_id, partitions=[data])]
        return await self.ask(module.ReadShareGroupStateRequest(group_id=self.group, topics=topics))

    async def summary(self) -> Any:
        module = read_share_group_state_summary
        data = module.PartitionData(partition=self.partition, leader_epoch=-1)
        topics = [module.ReadStateSummaryData(topic_id=self.topic_id, partitions=[data])]
        return await self.ask(module.ReadShareGroupStateSummaryRequest(group_id=self.group, topics=topics))

    async def delete(self) -> Any:
        module = delete_share_group_state
        data = module.PartitionData(partition=self.partition)
        topics = [module.DeleteStateData(topic_id=self.topic_id, partitions=[data])]
        return await self.ask(module.DeleteShareGroupStateRequest(group_id=self.group, topics=topics))


async def find(sim: Sim, key: str) -> Any:
    return (await sim.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]))).coordinators[0]


async def new(sim: Sim, *, partitions: int = 1, wait: bool = True) -> Leader:
    """Return the leader of a new topic, once its coordinator is there."""
    await sim.create("t", partitions=partitions)
    leader = Leader(sim, await sim.topic_id("t"))
    while wait and (await find(sim, leader.key)).error_code:
        await asyncio.sleep(0.1)
    return leader


def batches(answer: Any) -> list[Batch]:
    return [
        (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in answer.state_batches
    ]


def stored(sim: Sim) -> list[ShareSnapshotValue | ShareUpdateValue | None]:
    """Return the values in the log."""
    log = sim.log(STATE)
    data = log.read(log.log_start_offset, 1 << 20, log.log_end_offset).joined()
    found: list[Any] = []
    for position, header in iter_batches(data):
        for record in iter_records(data, position, header):
            decoded = decode(record.key, record.value)
            assert decoded is not None
            found.append(decoded.value)
    return found


def kinds(sim: Sim) -> str:
    """Return a letter for each record: Snapshot, Update, Tombstone."""
    return "".join(
        "T" if value is None else "S" if isinstance(value, ShareSnapshotValue) else "U" for value in stored(sim)
    )


def summary_of(answer: Any) -> tuple[int, int, int, int, int]:
    return (
        answer.error_code,
        answer.state_epoch,
        answer.leader_epoch,
        answer.start_offset,
        answer.delivery_complete_count,
    )


def test_the_life_of_a_share_partition(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        leader = await new(sim)
        assert summary_of(await leader.summary()) == (ErrorCode.NONE, 0, 0, -1, -1)
        unwritten = await leader.write()
        assert unwritten.error_code == ErrorCode.INVALID_REQUEST
        assert unwritten.error_message == "Write operation on uninitialized share partition not allowed."
        unread = await leader.read()
        assert unread.error_code == ErrorCode.INVALID_REQUEST
        assert unread.error_message == "Read operation on uninitialized share partition not allowed."
        assert (await leader.delete()).error_code == ErrorCode.NONE
        assert kinds(sim) == ""

        assert (await leader.initialize(state_epoch=2)).error_code == ErrorCode.NONE
        assert summary_of(await leader.summary()) == (ErrorCode.NONE, 2, 0, -1, -1)
        read = await leader.read(leader_epoch=0)
        assert (read.error_code, read.state_epoch, read.start_offset, batches(read)) == (ErrorCode.NONE, 2, -1, [])
        assert (await leader.write(0, [(0, 9, 0, 1), (4, 5, 2, 1)], state_epoch=2)).error_code == ErrorCode.NONE
        assert (await leader.write(3, [(8, 12, 4, 2)], state_epoch=2, complete=5)).error_code == ErrorCode.NONE
        read = await leader.read()
        assert batches(read) == [(3, 3, 0, 1), (4, 5, 2, 1), (6, 7, 0, 1), (8, 12, 4, 2)]
        assert summary_of(await leader.summary()) == (ErrorCode.NONE, 2, 0, 3, 5)
        # A write with a lower start moves nothing back, and one with the same start never lowers the count.
        assert (await leader.write(1, [(2, 3, 2, 1)], state_epoch=2, complete=9)).error_code == ErrorCode.NONE
        assert (await leader.write(3, state_epoch=2, complete=4)).error_code == ErrorCode.NONE
        assert summary_of(await leader.summary()) == (ErrorCode.NONE, 2, 0, 3, 5)
        assert batches(await leader.read())[0] == (3, 5, 2, 1)
        # In version 0 the count of a new start is unknown.
        assert (await leader.write(4, state_epoch=2, version=0)).error_code == ErrorCode.NONE
        assert summary_of(await leader.summary()) == (ErrorCode.NONE, 2, 0, 4, -1)

        # An administrator sets an offset: the state begins anew.
        assert (await leader.initialize(state_epoch=5, start=7)).error_code == ErrorCode.NONE
        assert summary_of(await leader.summary()) == (ErrorCode.NONE, 5, 0, 7, 0)
        assert batches(await leader.read()) == []
        assert (await leader.delete()).error_code == ErrorCode.NONE
        assert summary_of(await leader.summary()) == (ErrorCode.NONE, 0, 0, -1, -1)
        assert kinds(sim) == "SUUUUUST"

    play(scenario)


def test_older_epochs_are_fenced(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        leader = await new(sim)
        await leader.initialize(state_epoch=3)
        # A write does not raise the leader epoch. A read does, by a record.
        assert (await leader.write(leader_epoch=9, state_epoch=3)).error_code == ErrorCode.NONE
        assert (await leader.read(leader_epoch=4)).error_code == ErrorCode.NONE
        assert kinds(sim) == "SUU"
        assert (await leader.read(leader_epoch=4)).error_code == ErrorCode.NONE
        assert kinds(sim) == "SUU"
        assert (await leader.read(leader_epoch=3)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await leader.write(leader_epoch=3, state_epoch=3)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await leader.write(leader_epoch=4, state_epoch=2)).error_code == ErrorCode.FENCED_STATE_EPOCH
        assert (await leader.initialize(state_epoch=2)).error_code == ErrorCode.FENCED_STATE_EPOCH
        for answer, name in (
            (await leader.read(leader_epoch=-1), "leader"),
            (await leader.write(leader_epoch=-1, state_epoch=-1), "leader"),
            (await leader.write(leader_epoch=4, state_epoch=-1), "state"),
            (await leader.initialize(state_epoch=-1), "state"),
        ):
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert answer.error_message == f"The {name} epoch cannot be a negative number."
        assert kinds(sim) == "SUU"
        assert summary_of(await leader.summary())[:3] == (ErrorCode.NONE, 3, 4)
        # The fence holds when the state begins anew, and after a restart.
        assert (await leader.initialize(state_epoch=4)).error_code == ErrorCode.NONE
        assert (await leader.read(leader_epoch=3)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        await sim.sim_node.stop()
        await sim.sim_node.start()
        assert (await leader.read(leader_epoch=3)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await leader.write(leader_epoch=4, state_epoch=3)).error_code == ErrorCode.FENCED_STATE_EPOCH

    play(scenario)


def test_what_does_not_exist(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        leader = await new(sim)
        await leader.initialize()
        for topic_id, partition, code in (
            (leader.topic_id, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (b"\7" * 16, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (leader.topic_id, -1, ErrorCode.INVALID_REQUEST),
        ):
            other = Leader(sim, topic_id, partition)
            for answer in (await other.initialize(), await other.summary(), await other.delete()):
                assert answer.error_code == code
            # State that was never initialised is asked for first.
            assert (await other.write()).error_code == ErrorCode.INVALID_REQUEST
            assert (await other.read()).error_code == ErrorCode.INVALID_REQUEST
        assert kinds(sim) == "S"

        # The state of a deleted topic is removed.
        await sim.delete("t")
        while kinds(sim) != "ST":
            await asyncio.sleep(0.1)

    play(scenario)


def test_requests_without_a_group_or_without_partitions(play: Play) -> None:
    """The answers are empty, as those of Apache Kafka."""

    async def scenario(sim: Sim) -> None:
        leader = await new(sim)
        for module, name, data in (
            (initialize_share_group_state, "InitializeShareGroupState", "InitializeStateData"),
            (read_share_group_state, "ReadShareGroupState", "ReadStateData"),
            (write_share_group_state, "WriteShareGroupState", "WriteStateData"),
            (delete_share_group_state, "DeleteShareGroupState", "DeleteStateData"),
            (read_share_group_state_summary, "ReadShareGroupStateSummary", "ReadStateSummaryData"),
        ):
            request, entry = getattr(module, f"{name}Request"), getattr(module, data)
            partition: Any = module.PartitionData(partition=0)
            whole = entry(topic_id=leader.topic_id, partitions=[partition])
            empty = entry(topic_id=b"\7" * 16, partitions=[])
            assert (await sim.call(request(group_id="", topics=[whole]))).results == []
            assert (await sim.call(request(group_id=GROUP, topics=[]))).results == []
            answer = await sim.call(request(group_id=GROUP, topics=[whole, empty]))
            assert len(answer.results) == (1 if module is initialize_share_group_state else 0)

    play(scenario)


def test_a_request_for_many_share_partitions_is_one_batch(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        leader = await new(sim, partitions=20)
        module = initialize_share_group_state
        data = [module.PartitionData(partition=index, state_epoch=1, start_offset=index) for index in range(20)]
        # One of them is in the request twice. The last one counts.
        data.append(module.PartitionData(partition=3, state_epoch=1, start_offset=100))
        topics = [module.InitializeStateData(topic_id=leader.topic_id, partitions=data)]
        answer = await sim.call(module.InitializeShareGroupStateRequest(group_id=GROUP, topics=topics))
        (topic,) = answer.results
        assert sorted(each.partition for each in topic.partitions) == list(range(20))
        assert {each.error_code for each in topic.partitions} == {ErrorCode.NONE}
        assert [header.record_count for header in await sim.stored(STATE)] == [20, 1]
        for index in range(20):
            start = (await Leader(sim, leader.topic_id, index).summary()).start_offset
            assert start == (100 if index == 3 else index)

    play(scenario)


def test_finding_the_coordinator(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        leader = await new(sim, wait=False)
        first = await find(sim, leader.key)
        assert first.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        while (found := await find(sim, leader.key)).error_code:
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(0.1)
        assert found.node_id == 1
        for key in ("g", f"{uuid_to_str(leader.topic_id)}:0", f"g:{uuid_to_str(leader.topic_id)}:x"):
            assert (await find(sim, key)).error_code == ErrorCode.INVALID_REQUEST
        # Before version 6 there are no coordinators of this kind.
        for version in (4, 5):
            old = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[leader.key])
            answer = await sim._connection.send(old, 30_000, version)
            assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST

    play(scenario)


def test_without_the_feature_brokers_are_answered_and_nothing_is_pruned(play: Play) -> None:
    """As in Apache Kafka: the leaders and the group coordinators refuse their clients, so no broker asks."""

    async def scenario(sim: Sim) -> int:
        leader = await new(sim)
        await sim.lower("share.version")
        assert (await leader.initialize()).error_code == ErrorCode.NONE
        for _ in range(3):
            assert (await leader.write(0)).error_code == ErrorCode.NONE
        await asyncio.sleep(10)
        return sim.log(STATE).log_start_offset

    often = {f"{PREFIX}{name}.interval.ms": "1000" for name in ("state.topic.prune", "cold.partition.snapshot")}
    assert play(scenario, {**often, f"{PREFIX}snapshot.update.records.per.snapshot": "0"}) == 0


# -- the keys ---------------------------------------------------------------------------------------------------------


@acts(broker=("share.coordinator.snapshot.update.records.per.snapshot",))
def test_a_snapshot_after_so_many_updates(play: Play) -> None:
    async def scenario(sim: Sim) -> str:
        leader = await new(sim)
        await leader.initialize()
        for offset in range(9):
            assert (await leader.write(offset, [(offset, offset, 2, 1)])).error_code == ErrorCode.NONE
            if offset == 4:
                # The state begins anew, and the count of updates goes on.
                await leader.initialize(state_epoch=1, start=4)
        return kinds(sim)

    limit = f"{PREFIX}snapshot.update.records.per.snapshot"
    assert play(scenario) == "SUUUUUSUUUU"
    assert play(scenario, {limit: "3"}) == "SUUUSUSUUSU"
    assert play(scenario, {limit: "0"}) == "SSSSSSSSSSS"


@acts(
    broker=(
        "share.coordinator.state.topic.prune.interval.ms",
        "share.coordinator.cold.partition.snapshot.interval.ms",
    )
)
def test_redundant_records_are_deleted(play: Play) -> None:
    """A share partition without traffic does not keep the records of the others, because it gets a new snapshot."""

    async def scenario(sim: Sim) -> tuple[int, int, int]:
        busy = await new(sim, partitions=2)
        cold = Leader(sim, busy.topic_id, 1)
        await cold.initialize(start=7)
        await cold.write(8, [(9, 9, 2, 1)])
        await busy.initialize()
        for offset in range(20):
            await busy.write(offset)
        end = sim.log(STATE).log_end_offset
        await asyncio.sleep(30)
        pruned = sim.log(STATE).log_start_offset
        written = sim.log(STATE).log_end_offset - end
        await sim.sim_node.stop()
        await sim.sim_node.start()
        assert summary_of(await cold.summary()) == (ErrorCode.NONE, 1, 0, 8, 0)
        assert batches(await cold.read()) == [(9, 9, 2, 1)]
        assert (await busy.summary()).start_offset == 19
        return end, pruned, written

    often = {f"{PREFIX}snapshot.update.records.per.snapshot": "2"}
    prune, cold = f"{PREFIX}state.topic.prune.interval.ms", f"{PREFIX}cold.partition.snapshot.interval.ms"
    end, pruned, written = play(scenario, often)
    assert (pruned, written) == (0, 0)
    end, pruned, written = play(scenario, {**often, prune: "3000"})
    # The first share partition needs its snapshot at offset 0.
    assert (pruned, written) == (0, 0)
    end, pruned, written = play(scenario, {**often, prune: "3000", cold: "10000"})
    # Both got one, and then none of them has had traffic.
    assert written == 2
    assert pruned == end


def test_metrics_of_writes_and_deletions(play: Play) -> None:
    prefix = "kafka.server:type=share-coordinator-metrics,name="

    async def metrics(sim: Sim) -> dict[str, float]:
        found = {sample.name: sample.value for sample in await sim.node.samples()}
        return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}

    async def scenario(sim: Sim) -> None:
        leader = await new(sim)
        await leader.initialize()
        before = await metrics(sim)
        assert before["write-total"] == before["write-rate"] == 0
        assert "write-latency-avg" not in before
        for offset in range(3):
            await leader.write(offset)
        await leader.write(4, state_epoch=0)
        await asyncio.sleep(1)
        after = await metrics(sim)
        assert after["write-total"] == 4, "also the write that was fenced"
        assert after["write-rate"] > 0
        assert after["write-latency-max"] >= after["write-latency-avg"] >= 0
        assert [after[f"num-partitions,state={state}"] for state in ("active", "loading", "failed")] == [1, 0, 0]
        assert after["event-processing-time-ms-max"] >= after["event-processing-time-ms-p50"] >= 0
        assert not [name for name in after if name.startswith("last-pruned-offset")]
        await leader.read(leader_epoch=5)
        await leader.read(leader_epoch=5)
        assert (await metrics(sim))["write-total"] == 5, "the first read raised the leader epoch"
        await asyncio.sleep(30)
        pruned = sim.log(STATE).log_start_offset
        assert pruned > 0
        assert (await metrics(sim))[f"last-pruned-offset,topic={STATE},partition=0"] == pruned

    often = {f"{PREFIX}snapshot.update.records.per.snapshot": "2", f"{PREFIX}state.topic.prune.interval.ms": "3000"}
    play(scenario, often)


@acts(broker=("metrics.num.samples", "metrics.sample.window.ms"))
def test_the_time_that_rates_and_averages_cover(play: Play) -> None:
    prefix = "kafka.server:type=share-coordinator-metrics,name=write"

    async def scenario(sim: Sim) -> tuple[int, int]:
        """Return the seconds after a write at which its average and its part in the rate have gone."""
        leader = await new(sim)
        await leader.initialize()

        async def shown() -> tuple[bool, bool]:
            found = {sample.name: sample.value for sample in await sim.node.samples()}
            return f"{prefix}-latency-avg" in found, found[f"{prefix}-rate"] > 0

        await leader.write(0)
        seconds, ends = 0, [0, 0]
        while (now := await shown()) != (False, False):
            ends = [seconds + 1 if there else end for there, end in zip(now, ends, strict=True)]
            await asyncio.sleep(1)
            seconds += 1
        return ends[0], ends[1]

    assert play(scenario) == (60, 61)
    assert play(scenario, {"metrics.num.samples": "3"}) == (90, 92)
    assert play(scenario, {"metrics.sample.window.ms": "5000"}) == (10, 11)


@acts(broker=("share.coordinator.write.timeout.ms",))
def test_a_write_that_is_not_replicated_in_time(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[int, float]:
        leader = await new(sim)
        await leader.initialize()
        # A second replica that never fetches stops the high watermark.
        image = sim.node.loader.image.topics.by_name[STATE].partitions[0]
        sim.node.services.replicas.get(STATE, 0).update(
            image._replace(replicas=(1, 2), isr=(1, 2), partition_epoch=image.partition_epoch + 1)
        )
        started = sim.world.loop.time()
        answer = await leader.write(0)
        return answer.error_code, round(sim.world.loop.time() - started, 1)

    code, seconds = play(scenario, {f"{PREFIX}write.timeout.ms": "1500"})
    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 1.5 <= seconds < 1.8


@acts(broker=("share.coordinator.append.linger.ms",))
def test_how_long_writes_are_gathered(play: Play) -> None:
    async def write(leader: Leader) -> float:
        """Return the seconds until it is answered."""
        started = leader.sim.world.loop.time()
        assert (await leader.write(3)).error_code == ErrorCode.NONE
        return leader.sim.world.loop.time() - started

    async def scenario(sim: Sim) -> tuple[int, int]:
        """Return the longest wait of ten at once in tenths of seconds, and the number of batches that they were written
        in."""
        leader = await new(sim, partitions=10)
        leaders = [Leader(sim, leader.topic_id, index) for index in range(10)]
        for each in leaders:
            await each.initialize()
        before = len(await sim.stored(STATE))
        took = await asyncio.gather(*map(write, leaders))
        return int(max(took) * 10), len(await sim.stored(STATE)) - before

    waited, _ = play(scenario)
    assert waited == 0
    assert play(scenario, {f"{PREFIX}append.linger.ms": "500"}) == (5, 1)
    assert play(scenario, {f"{PREFIX}append.linger.ms": "0"}) == (0, 10)


def test_writes_of_one_share_partition_see_each_other(play: Play) -> None:
    """They are gathered no longer than until the next one of the same share partition."""

    async def scenario(sim: Sim) -> None:
        leader = await new(sim)
        await leader.initialize()
        answers = await asyncio.gather(*(leader.write(offset, [(offset, offset, 2, 1)]) for offset in range(10)))
        assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
        assert kinds(sim) == "SUUSUUSUUSU"

    settings = {f"{PREFIX}append.linger.ms": "50", f"{PREFIX}snapshot.update.records.per.snapshot": "2"}
    play(scenario, settings)


@acts(broker=("share.coordinator.state.topic.compression.codec",))
def test_the_codec_of_the_topic(play: Play) -> None:
    async def scenario(sim: Sim) -> set[int]:
        leader = await new(sim)
        await leader.initialize()
        await leader.write(0, [(offset, offset, 2 + offset % 2 * 2, 1) for offset in range(200)])
        return {int(header.compression) for header in await sim.stored(STATE)}

    assert play(scenario) == {Codec.NONE}
    assert play(scenario, {f"{PREFIX}state.topic.compression.codec": "1"}) == {Codec.GZIP}


@acts(broker=("share.coordinator.load.buffer.size",))
def test_loading_reads_so_much_at_a_time(play: Play) -> None:
    async def reads(sim: Sim) -> int:
        leader = await new(sim)
        await leader.initialize()
        for first in range(20):
            state = [(first * 1_000 + offset, first * 1_000 + offset, 2 + offset % 2 * 2, 1) for offset in range(20)]
            assert (await leader.write(-1, state)).error_code == ErrorCode.NONE
        await sim.sim_node.stop()
        counted: list[int] = []
        read = PartitionLog.read

        def counting(log: PartitionLog, offset: int, max_bytes: int, *rest: Any, **fields: Any) -> Any:
            if log.topic == STATE:
                counted.append(offset)
            return read(log, offset, max_bytes, *rest, **fields)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(PartitionLog, "read", counting)
            await sim.sim_node.start()
            assert len(batches(await leader.read())) == 400
        return len(counted)

    assert play(reads) == 1
    assert play(reads, {f"{PREFIX}load.buffer.size": "2000"}) >= 4
