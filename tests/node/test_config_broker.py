# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""Broker keys that act on logs, topics, fetches, groups, offsets and the node itself; the world is simulated, time is
free."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, cast

import pytest

from pykbroker.config.load import development_profile, load
from pykbroker.controller.result import Result
from pykbroker.controller.state import ControllerState
from pykbroker.net.client import BrokerConnection
from pykbroker.net.from_config import setup_timeout
from pykbroker.node.shared import StartError
from pykbroker.runtime import Runtime
from pykbroker_log.memory_disk import Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from pykbroker_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from pykbroker_wire.records.compression import Codec
from tests.acting import acts
from tests.node.sim import BROKER, TOPIC, Sim
from tests.simulation.cluster import Client

T = TypeVar("T")
Play = Callable[[Callable[[Sim], Awaitable[Any]], dict[str, str]], Any]
OFFSETS = "__consumer_offsets"


@pytest.fixture
def play() -> Iterator[Callable[..., Any]]:
    """`play(scenario, {key: value})` on a node of its own."""
    made: list[Sim] = []

    def run(scenario: Callable[[Sim], Awaitable[T]], config: dict[str, str] | None = None) -> T:
        made.append(Sim(config))
        return made[-1].run(scenario)

    yield run
    for sim in made:
        sim.close()


# -- topics ------------------------------------------------------------------------------------------------------------


async def auto_created(sim: Sim) -> Any:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
    await sim.call(asked)
    await asyncio.sleep(1)
    return (await sim.call(asked)).topics[0]


@acts(broker=("num.partitions", "auto.create.topics.enable"))
def test_auto_creation(play: Play) -> None:
    async def partitions(sim: Sim) -> tuple[int, int, int]:
        topic = await auto_created(sim)
        created = await sim.call(
            CreateTopicsRequest(
                topics=[CreatableTopic(name="asked", num_partitions=-1, replication_factor=-1)], timeout_ms=1_000
            )
        )
        return topic.error_code, len(topic.partitions), created.topics[0].num_partitions

    assert play(partitions, {}) == (ErrorCode.NONE, 1, 1)
    assert play(partitions, {"num.partitions": "5"}) == (ErrorCode.NONE, 5, 5)
    assert play(partitions, {"auto.create.topics.enable": "false"}) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 1)


@acts(broker=("default.replication.factor",))
def test_default_replication_factor(play: Play) -> None:
    async def scenario(sim: Sim) -> int:
        code: int = (await sim.try_create("t", partitions=-1, replication=-1)).error_code
        return code

    assert play(scenario, {}) == ErrorCode.NONE
    assert play(scenario, {"default.replication.factor": "2"}) == ErrorCode.INVALID_REPLICATION_FACTOR


@acts(broker=("delete.topic.enable",))
def test_delete_topic_enable(play: Play) -> None:
    async def scenario(sim: Sim) -> int:
        await sim.create("t")
        code: int = (await sim.delete("t")).error_code
        return code

    assert play(scenario, {}) == ErrorCode.NONE
    assert play(scenario, {"delete.topic.enable": "false"}) == ErrorCode.TOPIC_DELETION_DISABLED


@acts(broker=("max.request.partition.size.limit",))
def test_max_request_partition_size_limit(play: Play) -> None:
    async def scenario(sim: Sim) -> int:
        await sim.create("t", partitions=10)
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], response_partition_limit=2_000)
        return len((await sim.call(request)).topics[0].partitions)

    assert play(scenario, {}) == 10
    assert play(scenario, {"max.request.partition.size.limit": "4"}) == 4


# -- logs --------------------------------------------------------------------------------------------------------------


@acts(broker=("log.dir", "log.dirs"))
def test_log_directories(play: Play) -> None:
    async def folders(sim: Sim) -> list[int]:
        await sim.create("t", partitions=6)
        await asyncio.sleep(1)
        roots = sim.node.config.log_dirs
        return [len([name for name in sim.disk.list(root) if name.startswith("t-")]) for root in roots]

    assert play(folders, {}) == [6]
    assert play(folders, {"log.dirs": "/one,/two,/three"}) == [2, 2, 2]

    async def roots(sim: Sim) -> list[bool]:
        return [sim.disk.exists(root) for root in ("/one", "/other")]

    assert play(roots, {"log.dir": "/other", "log.dirs": "/one"}) == [True, False]
    without = {key: text for key, text in development_profile("/unused").items() if key != "log.dirs"}
    assert load({**without, "log.dir": "/other"}).log_dirs == ("/other",)


@acts(broker=("log.retention.hours", "log.retention.minutes", "log.roll.hours", "log.roll.jitter.hours"))
def test_times_in_other_units(play: Play) -> None:
    quick = {"log.retention.check.interval.ms": "30000"}

    async def minutes_until_gone(sim: Sim) -> int:
        await sim.create("t", {"segment.ms": "60000"})
        await sim.send("t", b"x")
        for minute in range(130):
            await asyncio.sleep(60)
            await sim.send("t", b"y")
            if sim.log("t").log_start_offset:
                return minute + 1
        return 1_000

    async def minutes_until_rolled(sim: Sim) -> int:
        await sim.create("t")
        await sim.send("t", b"x")
        for minute in range(130):
            await asyncio.sleep(60)
            await sim.send("t", b"y")
            if len(sim.files("t")) > 1:
                return minute + 1
        return 1_000

    assert 60 <= play(minutes_until_gone, {**quick, "log.retention.hours": "1"}) <= 63
    # The finer unit wins.
    assert 10 <= play(minutes_until_gone, {**quick, "log.retention.hours": "1", "log.retention.minutes": "10"}) <= 13
    assert 60 <= play(minutes_until_rolled, {**quick, "log.roll.hours": "1"}) <= 62
    assert play(minutes_until_rolled, {**quick, "log.roll.hours": "1", "log.roll.jitter.hours": "1"}) < 60


@acts(broker=("log.retention.check.interval.ms", "log.initial.task.delay.ms"))
def test_when_retention_looks(play: Play) -> None:
    async def seconds_until_gone(sim: Sim) -> float:
        started = sim.world.loop.time()
        await sim.create("t", {"segment.ms": "1000", "retention.ms": "1000"})
        await sim.send("t", b"x")
        await asyncio.sleep(2)
        await sim.send("t", b"y")
        while not sim.log("t").log_start_offset and sim.world.loop.time() < started + 1_000:
            await asyncio.sleep(1)
        return sim.world.loop.time() - started

    assert play(seconds_until_gone, {"log.retention.check.interval.ms": "5000"}) < 12
    assert 290 < play(seconds_until_gone, {"log.retention.check.interval.ms": "300000"}) < 310
    delayed = {"log.retention.check.interval.ms": "5000", "log.initial.task.delay.ms": "100000"}
    assert 95 < play(seconds_until_gone, delayed) < 106


@acts(broker=("log.segment.delete.delay.ms",))
def test_the_folder_of_a_deleted_topic_stays_for_a_while(play: Play) -> None:
    async def scenario(sim: Sim) -> list[int]:
        await sim.create("t")
        await sim.send("t", b"x")
        assert (await sim.delete("t")).error_code == ErrorCode.NONE
        counts = []
        for _ in range(2):
            await asyncio.sleep(5)
            counts.append(len([name for name in sim.disk.list("/data") if name.endswith("-delete")]))
        return counts

    assert play(scenario, {}) == [1, 1]
    assert play(scenario, {"log.segment.delete.delay.ms": "7000"}) == [1, 0]


@acts(
    broker=(
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "replica.high.watermark.checkpoint.interval.ms",
    ),
    run_shows=lambda run: [str(run["key"])],
)
@pytest.mark.parametrize(
    ("key", "file"),
    [
        ("log.flush.offset.checkpoint.interval.ms", "recovery-point-offset-checkpoint"),
        ("log.flush.start.offset.checkpoint.interval.ms", "log-start-offset-checkpoint"),
        ("replica.high.watermark.checkpoint.interval.ms", "replication-offset-checkpoint"),
    ],
)
def test_checkpoints_are_written_in_their_intervals(play: Play, key: str, file: str) -> None:
    async def lines_of_t_after(sim: Sim, seconds: float) -> list[str]:
        await sim.create("t", {"flush.messages": "1"})
        await sim.send("t", b"x", b"y")
        sim.log("t").delete_records_before(1)
        await asyncio.sleep(seconds)
        text = sim.disk.open(f"/data/{file}").pread(10_000, 0).decode() if sim.disk.exists(f"/data/{file}") else ""
        return [line for line in text.splitlines() if line.startswith("t ")]

    async def scenario(sim: Sim) -> list[str]:
        return await lines_of_t_after(sim, 3)

    assert play(scenario, {key: "1000"})
    assert not play(scenario, {key: "100000"})


@acts(broker=("log.flush.scheduler.interval.ms",))
def test_the_flusher_looks_as_often_as_it_is_told(play: Play) -> None:
    async def unflushed(sim: Sim) -> int:
        await sim.create("t", {"flush.ms": "1"})
        await sim.send("t", b"x")
        await asyncio.sleep(0.3)
        return sim.log("t").log_end_offset - sim.log("t").recovery_point

    # Never less often than each second: `flush.ms` alone acts too.
    assert play(unflushed, {"log.flush.scheduler.interval.ms": "100"}) == 0
    assert play(unflushed, {"log.flush.scheduler.interval.ms": "100000"}) == 1


@acts(broker=("producer.id.expiration.ms", "producer.id.expiration.check.interval.ms"))
def test_producers_are_forgotten(play: Play) -> None:
    rare = {"log.retention.check.interval.ms": "100000000"}

    async def seconds_known(sim: Sim) -> int:
        await sim.create("t")
        producer_id = (
            await sim.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000))
        ).producer_id
        await sim.produce("t", sim.batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0))
        if sim.node.config.is_default("producer.id.expiration.ms"):
            await sim.alter(BROKER, "", {"producer.id.expiration.ms": "20000"})
        for second in range(300):
            if producer_id not in sim.log("t").producers.entries:
                return second
            await asyncio.sleep(1)
        return 1_000

    checked = {**rare, "producer.id.expiration.check.interval.ms": "5000"}
    assert 30 <= play(seconds_known, {**checked, "producer.id.expiration.ms": "30000"}) <= 36
    # As the default of the cluster, for a log that is open.
    assert 18 <= play(seconds_known, checked) <= 26
    late = {**rare, "producer.id.expiration.check.interval.ms": "100000", "producer.id.expiration.ms": "30000"}
    assert 90 <= play(seconds_known, late) <= 101


@acts(broker=("log.dir.failure.timeout.ms",))
def test_a_node_that_cannot_tell_of_a_failed_directory_stops(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[bool, bool]:
        lifecycle = sim.node.services.lifecycle
        # The controller does not hear us: nothing is ever answered.
        silent: asyncio.Future[Any] = sim.world.loop.create_future()
        lifecycle._sender._channel = type("Silent", (), {"send": lambda self, request, timeout_ms: silent})()
        lifecycle.directory_failed(b"d" * 16)
        await asyncio.sleep(4)
        early = sim.node.fatal is not None
        await asyncio.sleep(2)
        return early, sim.node.fatal is not None

    assert play(scenario, {"log.dir.failure.timeout.ms": "5000"}) == (False, True)
    assert play(scenario, {}) == (False, False)

    async def told(sim: Sim) -> bool:
        sim.node.services.lifecycle.directory_failed(b"d" * 16)
        await asyncio.sleep(6)
        return sim.node.fatal is not None

    assert play(told, {"log.dir.failure.timeout.ms": "5000"}) is False


# -- fetch -------------------------------------------------------------------------------------------------------------


@acts(broker=("fetch.max.bytes",))
def test_fetch_max_bytes(play: Play) -> None:
    async def fetched(sim: Sim) -> int:
        await sim.create("t")
        for _ in range(10):
            await sim.send("t", b"x" * 1_000)
        return len((await sim.fetch("t")).responses[0].partitions[0].records)

    assert play(fetched, {}) > 10_000
    assert play(fetched, {"fetch.max.bytes": "3000"}) <= 3_000


@acts(broker=("max.incremental.fetch.session.cache.slots",))
def test_fetch_session_slots(play: Play) -> None:
    async def sessions(sim: Sim) -> list[bool]:
        await sim.create("t")
        await sim.send("t", b"x")
        return [bool((await sim.fetch("t", session_epoch=0)).session_id) for _ in range(3)]

    assert play(sessions, {}) == [True, True, True]
    assert play(sessions, {"max.incremental.fetch.session.cache.slots": "2"}) == [True, True, False]


@acts(broker=("pykbroker.max.cold.reads",))
def test_no_more_cold_reads_are_under_way_than_allowed(play: Play) -> None:
    async def most(sim: Sim) -> int:
        for number in range(6):
            await sim.create(f"t{number}")
            await sim.send(f"t{number}", b"x")
        disk = sim.sim_node.disk
        disk.evict = None
        under_way = seen = 0
        run_blocking = sim.node.runtime.run_blocking

        def counting(function: Callable[..., T], *args: object) -> asyncio.Future[T]:
            nonlocal under_way, seen
            done = run_blocking(function, *args)
            if getattr(function, "__name__", "") == "load":
                under_way += 1
                seen = max(seen, under_way)
                done.add_done_callback(over)
            return done

        def over(_: object) -> None:
            nonlocal under_way
            under_way -= 1

        sim.node.runtime.run_blocking = counting  # type: ignore[method-assign]
        disk.make_cold()
        clients = [Client(sim.world, f"c{number}") for number in range(6)]
        requests = [
            FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1_000,
                session_epoch=-1,
                topics=[
                    FetchTopic(
                        topic_id=await sim.topic_id(f"t{number}"),
                        partitions=[
                            FetchPartition(
                                partition=0, fetch_offset=0, current_leader_epoch=-1, partition_max_bytes=1_000
                            )
                        ],
                    )
                ],
            )
            for number in range(6)
        ]
        answers = await asyncio.gather(
            *[client.call(request) for client, request in zip(clients, requests, strict=True)]
        )
        assert all(answer.responses[0].partitions[0].records for answer in answers)
        return seen

    assert play(most, {}) == 4
    assert play(most, {"pykbroker.max.cold.reads": "1"}) == 1


@acts(broker=("pykbroker.max.parked.requests",))
def test_no_more_fetches_wait_than_allowed(play: Play) -> None:
    async def seconds(sim: Sim) -> float:
        await sim.create("t")
        topic_id = await sim.topic_id("t")
        asked = FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=-1, partition_max_bytes=1_000)
        request = FetchRequest(
            max_wait_ms=2_000,
            min_bytes=1,
            max_bytes=1_000,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=topic_id, partitions=[asked])],
        )
        connections = [Client(sim.world, f"c{number}") for number in range(3)]
        parked = [asyncio.ensure_future(connection.call(request)) for connection in connections[:2]]
        await asyncio.sleep(0.5)
        started = sim.world.loop.time()
        await connections[2].call(request)
        took = sim.world.loop.time() - started
        await asyncio.gather(*parked)
        assert sim.node.services.replicas.parked == 0
        return took

    assert play(seconds, {}) >= 2
    assert play(seconds, {"pykbroker.max.parked.requests": "2"}) < 0.5


# -- groups and offsets ------------------------------------------------------------------------------------------------


async def find_coordinator(sim: Sim, group: str = "g") -> None:
    while (await sim.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))).coordinators[0].error_code:
        await asyncio.sleep(0.1)
    while (await commit(sim, group, 0)) in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
        await asyncio.sleep(0.1)


async def commit(sim: Sim, group: str, offset: int, metadata: str = "") -> int:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
    topic = OffsetCommitRequestTopic(topic_id=await sim.topic_id("t"), partitions=[part])
    answer = await sim.call(OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic]))
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def committed(sim: Sim, group: str) -> int:
    topic = OffsetFetchRequestTopics(topic_id=await sim.topic_id("t"), partition_indexes=[0])
    answer = await sim.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])]))
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


@acts(broker=("offsets.topic.num.partitions", "offsets.topic.replication.factor", "offsets.topic.segment.bytes"))
def test_the_offsets_topic(play: Play) -> None:
    async def made(sim: Sim) -> tuple[int, int]:
        await sim.create("t")
        await find_coordinator(sim)
        topic = sim.node.loader.image.topics.by_name[OFFSETS]
        return len(topic.partitions), sim.log(OFFSETS).config.segment_bytes

    assert play(made, {}) == (50, 104_857_600)
    assert play(made, {"offsets.topic.num.partitions": "3", "offsets.topic.segment.bytes": "2000000"}) == (3, 2_000_000)

    async def refused(sim: Sim) -> int:
        answer = await sim.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        code: int = answer.coordinators[0].error_code
        return code

    # One broker cannot hold three copies: as in Apache Kafka, clients are told to come again.
    assert play(refused, {"offsets.topic.replication.factor": "3"}) == ErrorCode.COORDINATOR_NOT_AVAILABLE


@acts(
    broker=(
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.segment.bytes",
        "share.coordinator.state.topic.min.isr",
    )
)
def test_the_topic_of_share_groups(play: Play) -> None:
    """Clients may ask for it by name before share groups are served."""
    name = "__share_group_state"

    async def made(sim: Sim) -> tuple[int, str, str] | int:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        await sim.call(asked)
        await asyncio.sleep(1)
        topic = sim.node.loader.image.topics.by_name.get(name)
        if topic is None:
            code: int = (await sim.call(asked)).topics[0].error_code
            return code
        configs = sim.node.loader.image.configs.of(TOPIC, name)
        assert configs["compression.type"] == "producer"
        return len(topic.partitions), configs["segment.bytes"], configs["min.insync.replicas"]

    prefix = "share.coordinator.state.topic"
    chosen = {f"{prefix}.num.partitions": "3", f"{prefix}.segment.bytes": "2000000", f"{prefix}.min.isr": "1"}
    assert play(made, {f"{prefix}.min.isr": "2"}) == (50, "104857600", "2")
    assert play(made, chosen) == (3, "2000000", "1")
    # One broker cannot hold three copies.
    assert play(made, {f"{prefix}.replication.factor": "3"}) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@acts(
    broker=(
        "auto.leader.rebalance.enable",
        "leader.imbalance.check.interval.seconds",
        "unclean.leader.election.interval.ms",
    )
)
def test_how_often_the_controller_looks_at_leaders(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def in_ten_minutes(sim: Sim) -> tuple[int, int]:
        counts = {"balance_leaders": 0, "elect_unclean_leaders": 0}
        for name in counts:

            def count(state: ControllerState, name: str = name) -> Result[bool]:
                counts[name] += 1
                return Result(False, [])

            monkeypatch.setattr(f"pykbroker.controller.active.{name}", count)
        controller = sim.node.controller.services.controller
        controller._stop_timers()
        controller._start_timers()
        await asyncio.sleep(650)
        return counts["balance_leaders"], counts["elect_unclean_leaders"]

    on = {"auto.leader.rebalance.enable": "true"}
    assert play(in_ten_minutes, on) == (2, 2)
    assert play(in_ten_minutes, {"auto.leader.rebalance.enable": "false"}) == (0, 2)
    assert play(in_ten_minutes, {**on, "leader.imbalance.check.interval.seconds": "60"}) == (10, 2)
    assert play(in_ten_minutes, {**on, "unclean.leader.election.interval.ms": "600000"}) == (2, 1)


ONE = {"offsets.topic.num.partitions": "1"}


@acts(broker=("offsets.topic.compression.codec", "offset.metadata.max.bytes"))
def test_what_is_committed(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[int, int]:
        await sim.create("t")
        await find_coordinator(sim)
        code = await commit(sim, "g", 5, "m" * 3_000)
        codecs = {int(header.compression) for header in await sim.stored(OFFSETS)}
        return code, max(codecs)

    assert play(scenario, ONE) == (ErrorCode.NONE, Codec.NONE)
    assert play(scenario, {**ONE, "offsets.topic.compression.codec": "1"}) == (ErrorCode.NONE, Codec.GZIP)
    assert play(scenario, {**ONE, "offset.metadata.max.bytes": "2999"})[0] == ErrorCode.OFFSET_METADATA_TOO_LARGE


@acts(broker=("offsets.retention.minutes", "offsets.retention.check.interval.ms"))
def test_offsets_expire(play: Play) -> None:
    async def minutes(sim: Sim) -> int:
        await sim.create("t")
        await find_coordinator(sim)
        assert await commit(sim, "g", 5) == ErrorCode.NONE
        for minute in range(200):
            if await committed(sim, "g") == -1:
                return minute
            await asyncio.sleep(60)
        return 1_000

    quiet = {
        **ONE,
        "log.retention.check.interval.ms": "100000000",
        "log.flush.start.offset.checkpoint.interval.ms": "100000000",
    }
    often = {**quiet, "offsets.retention.check.interval.ms": "60000"}
    assert 10 <= play(minutes, {**often, "offsets.retention.minutes": "10"}) <= 12
    assert 30 <= play(minutes, {**often, "offsets.retention.minutes": "30"}) <= 32
    rarely = {**quiet, "offsets.retention.check.interval.ms": "3600000"}
    assert 58 <= play(minutes, {**rarely, "offsets.retention.minutes": "10"}) <= 62


@acts(broker=("offsets.load.buffer.size",))
def test_loading_reads_so_much_at_a_time(play: Play) -> None:
    async def reads(sim: Sim) -> int:
        await sim.create("t")
        await find_coordinator(sim)
        for offset in range(20):
            assert await commit(sim, "g", offset, "m" * 500) == ErrorCode.NONE
        await sim.sim_node.stop()
        counted: list[int] = []
        read = PartitionLog.read

        def counting(log: PartitionLog, offset: int, max_bytes: int, *rest: Any, **fields: Any) -> Any:
            if log.topic == OFFSETS:
                counted.append(offset)
            return read(log, offset, max_bytes, *rest, **fields)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(PartitionLog, "read", counting)
            await sim.sim_node.start()
            while await committed(sim, "g") != 19:
                await asyncio.sleep(0.1)
        return len(counted)

    assert play(reads, ONE) == 1
    assert play(reads, {**ONE, "offsets.load.buffer.size": "2000"}) >= 6


@acts(broker=("offsets.commit.timeout.ms",))
def test_a_commit_that_is_not_replicated_in_time(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[int, float]:
        await sim.create("t")
        await find_coordinator(sim)
        # A second replica that never fetches: the high watermark stands still.
        image = sim.node.loader.image.topics.by_name[OFFSETS].partitions[0]
        sim.node.services.replicas.get(OFFSETS, 0).update(image._replace(replicas=(1, 2), isr=(1, 2)))
        started = sim.world.loop.time()
        code = await commit(sim, "g", 5)
        return code, round(sim.world.loop.time() - started, 1)

    code, seconds = play(scenario, {**ONE, "offsets.commit.timeout.ms": "1500"})
    assert code
    assert 1.5 <= seconds < 1.8


async def join(sim: Sim, group: str = "g", session_ms: int = 10_000, member_id: str = "") -> Any:
    return await sim.call(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
    )


@acts(broker=("group.min.session.timeout.ms", "group.max.session.timeout.ms"))
def test_session_timeouts_are_bounded(play: Play) -> None:
    async def codes(sim: Sim) -> list[int]:
        await sim.create("t")
        await find_coordinator(sim)
        return [(await join(sim, session_ms=ms)).error_code for ms in (5_000, 100_000)]

    accepted, refused = ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.INVALID_SESSION_TIMEOUT
    assert play(codes, ONE) == [refused, accepted]
    assert play(codes, {**ONE, "group.min.session.timeout.ms": "1000"}) == [accepted, accepted]
    assert play(codes, {**ONE, "group.max.session.timeout.ms": "60000"}) == [refused, refused]


@acts(broker=("group.initial.rebalance.delay.ms", "group.max.size"))
def test_joining(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[float, int]:
        await sim.create("t")
        await find_coordinator(sim)
        member = (await join(sim, "new")).member_id
        started = sim.world.loop.time()
        joined = await join(sim, "new", member_id=member)
        assert joined.error_code == ErrorCode.NONE
        took = sim.world.loop.time() - started
        second: int = (await join(sim, "new")).error_code
        return round(took, 1), second

    took, second = play(scenario, ONE)
    assert (took < 0.5, second) == (True, ErrorCode.MEMBER_ID_REQUIRED)
    took, second = play(scenario, {**ONE, "group.initial.rebalance.delay.ms": "2000", "group.max.size": "1"})
    assert (took >= 2, second) == (True, ErrorCode.GROUP_MAX_SIZE_REACHED)


# -- the node ----------------------------------------------------------------------------------------------------------


@acts(broker=("broker.rack", "node.id", "advertised.listeners"))
def test_what_a_node_says_of_itself(play: Play) -> None:
    async def node(sim: Sim) -> tuple[int, str, int, str | None]:
        found = (await sim.call(DescribeClusterRequest())).brokers[0]
        return found.broker_id, found.host, found.port, found.rack

    assert play(node, {}) == (1, "localhost", 9092, None)
    changed = {
        "node.id": "7",
        "broker.rack": "r1",
        "advertised.listeners": "PLAINTEXT://kafka.example:19092,CONTROLLER://localhost:9093",
    }
    assert play(node, changed) == (7, "kafka.example", 19092, "r1")


@acts(
    broker=(
        "internal.metadata.log.segment.bytes",
        "metadata.log.dir",
        "metadata.log.segment.bytes",
        "metadata.log.segment.ms",
        "metadata.max.idle.interval.ms",
    )
)
@pytest.mark.slow
def test_the_metadata_log(play: Play) -> None:
    async def segments(sim: Sim) -> int:
        await asyncio.sleep(60)
        for name in ("t", "u"):
            await sim.create(name, partitions=30)
        return len([name for name in sim.disk.list("/data/__cluster_metadata-0") if name.endswith(".log")])

    async def directories(sim: Sim) -> list[str]:
        return [root for root in ("/data", "/meta") if sim.disk.is_dir(f"{root}/__cluster_metadata-0")]

    async def end(sim: Sim) -> int:
        await asyncio.sleep(60)
        return sim.node.services.quorum.log_end_offset

    assert play(directories, {}) == ["/data"]
    assert play(directories, {"metadata.log.dir": "/meta"}) == ["/meta"]
    assert play(segments, {}) == 1
    assert play(segments, {"metadata.log.segment.ms": "20000"}) > 1
    assert play(end, {"metadata.max.idle.interval.ms": "500"}) > play(end, {"metadata.max.idle.interval.ms": "0"}) + 50

    async def many(sim: Sim) -> int:
        """8.5 MB of metadata: a key that nobody knows, with the longest value that fits."""
        for number in range(270):
            await sim.alter(BROKER, "", {"plugin.key": f"{number}" + "x" * 32_000}, wait_seconds=0)
        return len([name for name in sim.disk.list("/data/__cluster_metadata-0") if name.endswith(".log")])

    assert play(many, {"metadata.log.segment.bytes": "8388608"}) > 1
    assert play(segments, {"internal.metadata.log.segment.bytes": "4000"}) > 1


@acts(broker=("metadata.log.max.record.bytes.between.snapshots", "metadata.log.max.snapshot.interval.ms"))
def test_metadata_snapshots(play: Play) -> None:
    async def snapshots(sim: Sim) -> int:
        for number in range(10):
            await sim.create(f"t{number}", partitions=10)
            await asyncio.sleep(1)
        names = sim.disk.list("/data/__cluster_metadata-0")
        return len(
            [name for name in names if name.endswith(".checkpoint") and not name.startswith("00000000000000000000-")]
        )

    assert play(snapshots, {}) == 0
    assert play(snapshots, {"metadata.log.max.record.bytes.between.snapshots": "2000"}) > 1
    assert play(snapshots, {"metadata.log.max.snapshot.interval.ms": "3000"}) > 1


@acts(broker=("controlled.shutdown.enable",))
def test_controlled_shutdown(play: Play) -> None:
    async def fenced_by_the_controller(sim: Sim) -> bool:
        said: list[bool] = []
        lifecycle = sim.node.services.lifecycle
        begin = lifecycle.begin_controlled_shutdown

        def asked(fenced: Callable[[], None] = lambda: None) -> asyncio.Future[None]:
            said.append(True)
            return begin(fenced)

        lifecycle.begin_controlled_shutdown = asked  # type: ignore[method-assign]
        await sim.sim_node.stop()
        return bool(said)

    assert play(fenced_by_the_controller, {}) is True
    assert play(fenced_by_the_controller, {"controlled.shutdown.enable": "false"}) is False


ALONE = {
    "process.roles": "broker",
    "listeners": "PLAINTEXT://localhost:9092",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.quorum.bootstrap.servers": "localhost:19999",
}


@acts(
    broker=("initial.broker.registration.timeout.ms", "server.max.startup.time.ms"),
    run_shows=lambda run: [str(run["key"])],
)
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("initial.broker.registration.timeout.ms", "unable to register"),
        ("server.max.startup.time.ms", "not up within 20000 ms"),
    ],
)
def test_a_broker_that_finds_no_controller_gives_up(key: str, message: str) -> None:
    sim = Sim({**ALONE, key: "20000"})

    async def scenario(sim: Sim) -> None:
        raise AssertionError("started")

    with pytest.raises(StartError, match=message):
        sim.run(scenario, 1_000)
    assert 19 < sim.world.loop.time() < 22
    sim.close()


@acts(broker=("log.flush.interval.messages",))
def test_what_was_flushed_survives_the_power(play: Play) -> None:
    async def kept(sim: Sim) -> int:
        await sim.create("t")
        await asyncio.sleep(2)
        await sim.send("t", b"one", b"two", b"three")
        sim.sim_node.kill(Survive.NOTHING)
        await sim.sim_node.start()
        return (await sim.recovered("t")).log_end_offset

    assert play(kept, {}) == 0
    assert play(kept, {"log.flush.interval.messages": "1"}) == 3


@acts(broker=("broker.heartbeat.interval.ms", "broker.session.timeout.ms"))
def test_a_broker_that_is_silent_is_fenced(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[int, float]:
        lifecycle = sim.node.services.lifecycle
        channel, sent = lifecycle._sender._channel, []

        class Counting:
            def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
                sent.append(request)
                return channel.send(request, timeout_ms)

        lifecycle._sender._channel = Counting()
        await asyncio.sleep(30)
        heartbeats = len(sent)
        silent: asyncio.Future[Any] = sim.world.loop.create_future()
        lifecycle._sender._channel = type("Silent", (), {"send": lambda self, request, timeout_ms: silent})()
        started = sim.world.loop.time()
        while not sim.node.loader.image.brokers[1].fenced:
            await asyncio.sleep(0.1)
        return heartbeats, sim.world.loop.time() - started

    heartbeats, seconds = play(scenario, {"broker.heartbeat.interval.ms": "1000", "broker.session.timeout.ms": "5000"})
    assert 28 <= heartbeats <= 31
    assert 3.5 < seconds < 6
    heartbeats, seconds = play(scenario, {"broker.heartbeat.interval.ms": "5000", "broker.session.timeout.ms": "20000"})
    assert 5 <= heartbeats <= 7
    assert 14 < seconds < 22


@acts(broker=("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"))
def test_connections_that_do_not_come_about() -> None:
    """Nobody answers, not even with a refusal, so each try lasts as long as it may."""
    sim = Sim()
    tries: list[float] = []

    async def scenario(sim: Sim) -> None:
        class BlackHole:
            loop = sim.world.loop

            def connect(self, *whatever: Any) -> asyncio.Future[Any]:
                tries.append(sim.world.loop.time())
                return sim.world.loop.create_future()

        config = sim.node.config.with_overrides(
            {"socket.connection.setup.timeout.ms": "1000", "socket.connection.setup.timeout.max.ms": "3000"}
        )
        connection = BrokerConnection(cast(Runtime, BlackHole()), "nowhere", 1, "test", setup_timeout(config))
        started = sim.world.loop.time()
        ends = []
        for _ in range(4):
            with pytest.raises(ConnectionError):
                await connection.send(MetadataRequest(), 60_000)
            ends.append(round(sim.world.loop.time() - started, 1))
            # The pause before it connects again.
            await asyncio.sleep(1)
        assert ends == [1, 4, 8, 12]
        assert len(tries) == 4

    sim.run(scenario)
    sim.close()
