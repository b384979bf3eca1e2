# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""A cluster of the last release and this one: a node that serves no share coordinators leads their topic.

The other nodes count it as COORDINATOR_NOT_AVAILABLE and ask again. No record is lost, and all is well when the node is
upgraded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack

import pytest

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.metadata.topic_names import SHARE_STATE_TOPIC
from pykbroker.share_persister.persister import SharePersister
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_worlds.history.checks import insist, of_share_groups
from pykbroker_worlds.history.deliveries import Start
from pykbroker_worlds.history.events import OK, Acknowledged, Place
from pykbroker_worlds.simulated.sim_broker import SimBroker
from pykbroker_worlds.simulated.sim_cluster import Quorum
from testkit.promises import results
from tests.simulation.clients.plain import PlainProducer
from tests.simulation.clients.share_member import ShareMember
from tests.simulation.invariants.share_groups import ShareInvariants, ShareKey
from tests.simulation.share_run.share_watch import watching_shares
from tests.simulation.stage import Stage, play

pytestmark = pytest.mark.slow

#: A group with a state, and one whose first member comes while its state cannot be initialised.
GROUP, LATE = "g", "late"
PLACE: Place = ("orders", 0)
#: The requests to share coordinators.
STATE_APIS = range(ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY + 1)
CONFIG = {
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.initialize.retry.interval.ms": "1000",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
}


def become(node: SimBroker, nodes: Iterable[SimBroker], *, earlier: bool) -> None:
    """Let a node be of the last release, which does not list the requests to share coordinators in ApiVersions, or of
    this one. Its connections end, those to itself too, as with a restart. It asks itself over its listener meanwhile,
    because it lists there what it serves."""
    rows = node.node.services.rows
    rows.advertised = [api.advertised for key, api in sorted(rows._apis.items()) if not (earlier and key in STATE_APIS)]
    half = node.node.broker
    half._dispatcher.takes_in_memory = lambda key: not earlier  # type: ignore[method-assign]
    for each in nodes:
        node.world.network.reset(node.machine, each.machine)


def leader_of(stage: Stage, place: Place) -> SimBroker:
    (found,) = [
        node
        for node in stage.cluster.brokers.values()
        if any((partition.topic, partition.index) == place for partition in node.led())
    ]
    return found


class Work:
    """A producer and two groups, on one partition."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.is_over = False
        self.members: list[ShareMember] = []

    async def prepare(self) -> None:
        admin = self.stage.peer("admin")
        await admin.create_topic(PLACE[0], 1, 3)
        values = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"}
        configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()]
        resources = [
            AlterConfigsResource(resource_type=32, resource_name=group, configs=configs) for group in (GROUP, LATE)
        ]
        await admin.anybody(IncrementalAlterConfigsRequest(resources=resources, validate_only=False))

    def come(self, group: str) -> ShareMember:
        member = ShareMember(self.stage.cluster, self.stage.history, f"m{len(self.members)}", group, PLACE[0])
        self.members.append(member)
        self.stage.in_background(member.forever())
        return member

    async def produce(self) -> None:
        producer = PlainProducer(self.stage.cluster, self.stage.history, "p", PLACE, idempotent=True)
        await producer.run(lambda: self.is_over, 0.3)

    def accepted(self, group: str) -> int:
        return sum(event.code == OK and event.group == group for event in self.stage.history.of(Acknowledged))

    async def until_accepted(self, group: str, more: int) -> None:
        count = self.accepted(group) + more
        async with asyncio.timeout(60):
            while self.accepted(group) < count:
                await asyncio.sleep(0.1)

    async def read_all(self) -> None:
        """Let the members accept everything, up to the end of the log."""
        for member in self.members:
            member.is_calm = True
        async with asyncio.timeout(90):
            while not all(self._has_read_all(group) for group in (GROUP, LATE)):
                await asyncio.sleep(0.1)

    def _has_read_all(self, group: str) -> bool:
        services = leader_of(self.stage, PLACE).node.services
        partition = services.replicas.get(*PLACE)
        found = services.share_leaders.find(group, partition.topic_id, PLACE[1])
        return found is not None and found.machine.start_offset == partition.log.high_watermark

    async def check(self, invariants: ShareInvariants) -> None:
        logs, _ = await self.stage.logs([PLACE])
        starts, excused = {}, {}
        for group in (GROUP, LATE):
            life = invariants.newest(ShareKey(group, PLACE))
            assert life.first == 0
            starts[group, PLACE] = Start(0, read_committed=False)
            excused[group, PLACE] = invariants.excused(ShareKey(group, PLACE))
        insist(*of_share_groups(self.stage.history, logs, starts, excused))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long(amount="1 seed")) for seed in (1, 2, 3))]
)
def test_nothing_is_lost_while_an_earlier_release_leads_the_share_states(seed: int) -> None:
    stage = Stage(seed, 3, CONFIG, Quorum.STATIC)
    invariants = ShareInvariants()

    async def scenario(stage: Stage) -> None:
        await stage.cluster.become_whole()
        work = Work(stage)
        await work.prepare()
        producing = stage.in_background(work.produce())
        for _ in range(2):
            work.come(GROUP)
        await work.until_accepted(GROUP, 5)
        coordinator = leader_of(stage, (SHARE_STATE_TOPIC, 0))
        nodes = stage.cluster.brokers.values()
        become(coordinator, nodes, earlier=True)
        late = work.come(LATE)
        other = next(node for node in nodes if node is not coordinator)
        keeper = other.node.services.share_leaders._services.keeper
        assert isinstance(keeper, SharePersister)
        key = SharePartitionKey(GROUP, await stage.peer("asking").topic_id(PLACE[0]), 0)
        (answer,) = await results([keeper.summarize(key)], 120)
        assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        again = keeper.summarize(key)
        await asyncio.sleep(1)
        assert not again.done()
        assert not late.assigned
        become(coordinator, nodes, earlier=False)
        (answer,) = await results([again], 120)
        assert answer.error is ErrorCode.NONE, "it was asked again"
        for group in (GROUP, LATE):
            await work.until_accepted(group, 5)
        work.is_over = True
        await producing
        await work.read_all()
        await stage.hush()
        await work.check(invariants)

    with ExitStack() as stack:
        watcher = stack.enter_context(watching_shares(stage.cluster, stage.history, invariants))
        play(scenario, stage)
        watcher.at_rest()
