# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""Broker keys that act on topics, logs and fetches; the world is simulated, time is free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from pykbroker.config.load import development_profile, load
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from testkit.acting import acts
from testkit.nodes.sim import BROKER, Play, Sim
from testkit.simulated_clients import Client

T = TypeVar("T")


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


@pytest.mark.slow
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
    # The finer unit has priority.
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

    # Never less often than each second, because `flush.ms` alone has an effect too.
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
    # The default of the cluster also changes a log that is open.
    assert 18 <= play(seconds_known, checked) <= 26
    late = {**rare, "producer.id.expiration.check.interval.ms": "100000", "producer.id.expiration.ms": "30000"}
    assert 90 <= play(seconds_known, late) <= 101


@acts(broker=("log.dir.failure.timeout.ms",))
def test_a_node_that_cannot_tell_of_a_failed_directory_stops(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[bool, bool]:
        lifecycle = sim.node.lifecycle
        # The controller never answers.
        silent: asyncio.Future[Any] = sim.world.loop.create_future()
        lifecycle._sender._channel = type("Silent", (), {"send": lambda self, request, timeout_ms: silent})()
        sim.node.services.lease.directory_failed(b"d" * 16, "/data")
        await asyncio.sleep(4)
        early = sim.node.fatal is not None
        await asyncio.sleep(2)
        return early, sim.node.fatal is not None

    assert play(scenario, {"log.dir.failure.timeout.ms": "5000"}) == (False, True)
    assert play(scenario, {}) == (False, False)

    async def told(sim: Sim) -> bool:
        sim.node.services.lease.directory_failed(b"d" * 16, "/data")
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
        for number in range(16):
            await sim.create(f"t{number}")
            await sim.send(f"t{number}", b"x")
        disk = sim.sim_node.disk
        disk.evict = None
        under_way = seen = 0
        runtime = sim.node.services.runtime
        run_blocking = runtime.run_blocking

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

        runtime.run_blocking = counting  # type: ignore[method-assign]
        disk.make_cold()
        clients = [Client(sim.world, f"c{number}") for number in range(16)]
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
            for number in range(16)
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
        assert sim.node.services.replicas.purgatory.count == 0
        return took

    assert play(seconds, {}) >= 2
    assert play(seconds, {"pykbroker.max.parked.requests": "2"}) < 0.5


# -- replication -------------------------------------------------------------------------------------------------------


@acts(broker=("leader.replication.throttled.rate", "follower.replication.throttled.rate"))
@pytest.mark.parametrize("broker", ["", "1"])
def test_a_broker_may_replicate_throttled_replicas_so_fast(play: Play, broker: str) -> None:
    async def scenario(sim: Sim) -> list[bool]:
        quotas = sim.node.services.replicas.quotas
        found = []
        for key, quota in (("leader", quotas.leader), ("follower", quotas.follower)):
            quota.record(5_001)
            found.append(quota.is_exceeded())
            await sim.alter(BROKER, broker, {f"{key}.replication.throttled.rate": "5000"}, wait_seconds=0.9)
            found.append(quota.is_exceeded())
            await sim.alter(BROKER, broker, {f"{key}.replication.throttled.rate": None}, wait_seconds=0.1)
            found.append(quota.is_exceeded())
        return found

    assert play(scenario, {}) == [False, True, False] * 2
