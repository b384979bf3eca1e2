# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""A new leader epoch with the same leader: members, transactions and waiting requests of a whole node continue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pykbroker.controller.result import Result
from pykbroker.controller.state import ControllerState
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import PartitionChangeRecord
from testkit.nodes.sim import Sim
from testkit.simulated_clients import Client
from tests.node.coordinators.test_transactions import ONE, Producer, values

TOPICS = ("t", "__consumer_offsets", "__transaction_state")


@pytest.fixture
def sim() -> Iterator[Sim]:
    sim = Sim({**ONE, "group.initial.rebalance.delay.ms": "3000"})
    yield sim
    sim.close()


async def elect_again(sim: Sim) -> None:
    """Elect the same leader once more, which an election among fenced and unfenced brokers may also do."""

    def operation(state: ControllerState, now_ms: int) -> Result[None]:
        changes: list[TopLevel] = [
            PartitionChangeRecord(partition_id=0, topic_id=state.image.topics.by_name[name].id, leader=1)
            for name in TOPICS
        ]
        return Result(None, changes)

    before = {name: sim.node.services.replicas.get(name, 0).leader_epoch for name in TOPICS}
    await sim.node.controller.services.controller.submit("elect again", operation)
    while any(sim.node.services.replicas.get(name, 0).leader_epoch == before[name] for name in TOPICS):
        await asyncio.sleep(0.01)


async def stable_member(sim: Sim) -> int:
    request = ConsumerGroupHeartbeatRequest(
        group_id="modern",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer = await sim.call(request)
    assert (answer.error_code, len(answer.assignment.topic_partitions)) == (ErrorCode.NONE, 1)
    epoch: int = answer.member_epoch
    return epoch


async def join(client: Client, member_id: str = "") -> tuple[int, str, int]:
    request = JoinGroupRequest(
        group_id="classic",
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0")],
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
    )
    answer = await client.call(request)
    return answer.error_code, answer.member_id, answer.generation_id


def test_a_new_epoch_of_the_same_leader_disturbs_no_group_transaction_or_fetch(sim: Sim) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t")
        while (await sim.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))).coordinators[0].error_code:
            await asyncio.sleep(0.1)
        producer = await Producer(sim).init()
        await producer.send("t", b"before")
        epoch = await stable_member(sim)
        code, member_id, _ = await join(sim)
        assert code == ErrorCode.MEMBER_ID_REQUIRED
        joining = asyncio.ensure_future(join(Client(sim.world, "joins"), member_id))
        topic = FetchTopic(topic_id=await sim.topic_id("t"), partitions=[FetchPartition(fetch_offset=1)])
        fetch = FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=[topic])
        fetching = asyncio.ensure_future(Client(sim.world, "reads").call(fetch))
        await asyncio.sleep(1)  # both wait in the node
        services = sim.node.services
        shards = [services.groups.coordinator._hosts[0].shard, services.transactions.coordinator._hosts[0].shard]

        await elect_again(sim)

        assert not joining.done()
        assert not fetching.done()
        # Nothing is loaded again, so no response is COORDINATOR_LOAD_IN_PROGRESS.
        beat = ConsumerGroupHeartbeatRequest(group_id="modern", member_id="m", member_epoch=epoch)
        assert (await sim.call(beat)).error_code == ErrorCode.NONE
        assert (await producer.send("t", b"after")).error_code == ErrorCode.NONE
        assert await producer.end(True) == ErrorCode.NONE
        assert await values(sim, "t") == [b"before", b"after"]
        answer = (await fetching).responses[0].partitions[0]
        assert (answer.error_code, bool(answer.records)) == (ErrorCode.NONE, True)
        assert await joining == (ErrorCode.NONE, member_id, 1)
        assert shards == [
            services.groups.coordinator._hosts[0].shard,
            services.transactions.coordinator._hosts[0].shard,
        ]

    sim.run(scenario)
