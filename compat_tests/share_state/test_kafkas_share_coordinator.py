"""The persister with Apache Kafka as the share coordinator: each request, epochs, unknown keys, batches, a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from compat_tests.share_state.persisters import play, state
from pykbroker.coordinator.group.share.share_states import ShareStart, ShareSummary
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.net.client import BrokerConnection
from pykbroker.net.promise import Promise
from pykbroker.runtime import OsRuntime
from pykbroker.share_persister.group_share_states import GroupShareStates
from pykbroker.share_persister.persister import SharePersister
from pykbroker.share_persister.state_operations import ShareStateAnswer
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.write_share_group_state import StateBatch
from testkit import needs
from testkit.oracle.kafka import ApacheKafka, kafka_libs
from testkit.promises import results
from testkit.share_metadata import ShareMetadata

pytestmark = pytest.mark.slow

DONE = ShareStateAnswer(ErrorCode.NONE)
PARTITIONS = 5
SHARED = 500
FIRST, LAST = 0, 99


class Judge(NamedTuple):
    """A node of Apache Kafka, and a topic of it with 500 partitions. Its coordinator knows no state of other topics."""

    node: ApacheKafka
    topic_id: bytes

    def key(self, partition: int, group: str) -> SharePartitionKey:
        return SharePartitionKey(group, self.topic_id, partition)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Judge]:
    """A node of its own, because it is restarted, and one of few state partitions, which load soon."""
    needs.java()
    kafka_libs()
    with ApacheKafka({"share.coordinator.state.topic.num.partitions": str(PARTITIONS)}) as node:
        yield Judge(node, asyncio.run(make_topic(node)))


async def make_topic(node: ApacheKafka) -> bytes:
    runtime = OsRuntime(asyncio.get_running_loop())
    connection = BrokerConnection(runtime, "localhost", node.port, "share-state")
    topic = CreatableTopic(name="shared", num_partitions=SHARED, replication_factor=1)
    made = await connection.send(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 60_000)
    connection.close()
    runtime.close()
    assert made.topics[0].error_code == ErrorCode.NONE
    topic_id: bytes = made.topics[0].topic_id
    return topic_id


def acked(first: int, last: int, state: int = 2, count: int = 1) -> StateBatch:
    return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


async def answers(promises: list[Promise]) -> list[ShareStateAnswer]:
    return await results(promises, 90)


async def answer(promise: Promise) -> ShareStateAnswer:
    return (await answers([promise]))[0]


async def error(promise: Promise) -> ErrorCode:
    return (await answer(promise)).error


def test_a_lookup_makes_the_topic_and_finds_the_coordinator(kafka: Judge) -> None:
    """This is the first test, because the topic is not there before it."""

    async def scenario(persister: SharePersister, metadata: ShareMetadata) -> None:
        assert await answer(persister.initialize(kafka.key(0, "made"), 1, 0)) == DONE
        assert state(await answer(persister.read(kafka.key(0, "made"), 0))) == (1, 0, [])
        # Lookups of many keys, also of groups whose names have colons, are one request.
        groups = ["a:b", ":", "größe 漢字", *(f"group {each}" for each in range(120))]
        made = [persister.initialize(kafka.key(1, group), 1, 7) for group in groups]
        assert await answers(made) == [DONE] * len(groups)

    play(kafka.node.port, scenario)


@pytest.mark.parametrize("group", ["g", "with:colons:1", "größe 漢字"])
def test_each_request_and_its_epochs(kafka: Judge, group: str) -> None:
    async def scenario(persister: SharePersister, metadata: ShareMetadata) -> None:
        metadata.lead(*[1] * PARTITIONS)
        name = kafka.key(0, group)
        assert await answer(persister.initialize(name, 2, 10)) == DONE
        assert state(await answer(persister.read(name, 3))) == (2, 10, [])
        written = [acked(10, 14), acked(15, 15, 0, 2), acked(20, 29, 4, 5)]
        assert await answer(persister.write(name, 2, 3, 10, 15, written)) == DONE
        found = [(10, 14, 2, 1), (15, 15, 0, 2), (20, 29, 4, 5)]
        assert state(await answer(persister.read(name, 3))) == (2, 10, found)
        summary = await answer(persister.summarize(name))
        assert summary == ShareStateAnswer(ErrorCode.NONE, summary.message, 2, 3, 10, 15)
        # A write does not raise the leader epoch, a read does.
        assert await answer(persister.write(name, 2, 9, 15, 11, [acked(15, 15)])) == DONE
        assert await answer(persister.write(name, 2, 3, 15, 11, [])) == DONE
        assert (await answer(persister.read(name, 5))).error is ErrorCode.NONE
        fenced = await answer(persister.write(name, 2, 3, 16, 10, []))
        assert fenced.error is ErrorCode.FENCED_LEADER_EPOCH
        assert fenced.message
        assert await error(persister.read(name, 4)) is ErrorCode.FENCED_LEADER_EPOCH
        assert await error(persister.write(name, 1, 5, 16, 10, [])) is ErrorCode.FENCED_STATE_EPOCH
        assert await error(persister.initialize(name, 1, 0)) is ErrorCode.FENCED_STATE_EPOCH
        assert state(await answer(persister.read(name, 5)))[1] == 15
        # A later state epoch begins anew.
        assert await answer(persister.initialize(name, 3, -1)) == DONE
        assert state(await answer(persister.read(name, 5))) == (3, -1, [])
        assert await answer(persister.delete(name)) == DONE
        assert await error(persister.read(name, 5)) is ErrorCode.INVALID_REQUEST

    play(kafka.node.port, scenario)


def test_unknown_keys(kafka: Judge) -> None:
    async def scenario(persister: SharePersister, metadata: ShareMetadata) -> None:
        metadata.lead(*[1] * PARTITIONS)
        name = kafka.key(77, "nobody")
        assert await error(persister.read(name, 0)) is ErrorCode.INVALID_REQUEST
        assert await error(persister.write(name, 0, 0, 0, 0, [])) is ErrorCode.INVALID_REQUEST
        assert await answer(persister.delete(name)) == DONE
        summary = await answer(persister.summarize(name))
        assert (summary.error, summary.start_offset, summary.state_epoch, summary.leader_epoch) == (0, -1, 0, 0)
        keeper = GroupShareStates(asyncio.get_running_loop(), persister)
        summaries = keeper.read_summaries("nobody", [(kafka.topic_id, 77), (kafka.topic_id, 78)])
        assert isinstance(summaries, asyncio.Future)
        assert await summaries == [ShareSummary()] * 2

    play(kafka.node.port, scenario)


def test_five_hundred_share_partitions_over_a_restart(kafka: Judge) -> None:
    """The writes of a turn share a request. The node is killed while writes are under way, and more come until it is
    back. All are stored, and those that the persister has given up are written again."""

    async def scenario(persister: SharePersister, metadata: ShareMetadata) -> None:
        metadata.lead(*[1] * PARTITIONS)
        keeper = GroupShareStates(asyncio.get_running_loop(), persister)
        starts = keeper.initialize("many", [ShareStart(kafka.topic_id, each, 1, 0) for each in range(SHARED)])
        assert isinstance(starts, asyncio.Future)
        assert await starts == [ErrorCode.NONE] * SHARED
        names = [kafka.key(each, "many") for each in range(SHARED)]
        writes = [persister.write(name, 1, 0, 0, 100, [acked(FIRST, LAST)]) for name in names]
        assert await answers(writes) == [DONE] * SHARED

        def write_all() -> list[Promise]:
            return [persister.write(name, 1, 0, 100, 50, [acked(100, 149)]) for name in names]

        def write_more() -> list[Promise]:
            return [persister.write(name, 1, 0, 150, 1, [acked(200, 200)]) for name in names[:50]]

        # These are under way, or have just arrived.
        under_way = write_all()
        await asyncio.sleep(0)
        await asyncio.to_thread(kafka.node.kill)
        after = write_more()
        metadata.lead(*[-1] * PARTITIONS)
        await asyncio.to_thread(kafka.node.start)
        metadata.lead(*[1] * PARTITIONS)
        found = await answers(under_way + after)
        if any(each.error is ErrorCode.COORDINATOR_NOT_AVAILABLE for each in found):
            # A slow machine starts Apache Kafka for longer than the persister tries. Leaders then write again.
            found = await answers(write_all() + write_more())
        assert found == [DONE] * (SHARED + 50)
        reads = await answers([persister.read(name, 1) for name in names])
        assert [state(found) for found in reads[:50]] == [(1, 150, [(200, 200, 2, 1)])] * 50
        assert [state(found) for found in reads[50:]] == [(1, 100, [(100, 149, 2, 1)])] * (SHARED - 50)
        summaries = await answers([persister.summarize(name) for name in names])
        assert {found.delivery_complete_count for found in summaries[50:]} == {50}

    play(kafka.node.port, scenario)
