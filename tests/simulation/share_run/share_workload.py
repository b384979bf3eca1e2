"""The clients of a run with share groups, and the checks of what their members were given.

Responsible for the members, beside the producers of the usual workload: they come, leave and die, and read everything
when faults are over. Not responsible for the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pykbroker.metadata.features import DEAD_LETTERS_FROM, SHARE_VERSION
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykbroker_worlds.history.checks import insist, of_share_groups
from pykbroker_worlds.history.deliveries import GroupPlace, Start, the_dead_are_lettered, wanted_offsets
from pykbroker_worlds.history.events import History
from tests.simulation.clients.base import Peer, Trouble
from tests.simulation.clients.letter_reader import LetterReader
from tests.simulation.clients.plain import PlainProducer
from tests.simulation.clients.share_admin import ShareAdmin
from tests.simulation.clients.share_member import ShareMember
from tests.simulation.clients.trimmer import Trimmer
from tests.simulation.cluster_run.workload import REPLICAS, Workload
from tests.simulation.invariants.share_groups import ShareInvariants, ShareKey
from tests.simulation.share_run.share_plan import LETTERS, TRIMMED, GroupPlan, SharePlan
from tests.simulation.stage import Stage

if TYPE_CHECKING:
    from pykbroker.replica.partition import Partition
    from pykbroker_worlds.history.events import Log, Place
    from pykbroker_worlds.simulated.sim_broker import SimBroker

_GROUP_CONFIG = 32
_JOIN_SECONDS = 60.0


class ShareWorkload(Workload):
    """Call `prepare`, `run`, then `check` when the cluster is at rest."""

    def __init__(self, share_plan: SharePlan, stage: Stage, invariants: ShareInvariants) -> None:
        super().__init__(share_plan.plan, stage)
        self._share_plan = share_plan
        self._invariants = invariants
        self._share_members: list[tuple[ShareMember, asyncio.Future[None]]] = []
        self._came = 0

    async def prepare(self) -> None:
        await super().prepare()
        admin = self._stage.peer("share admin")
        if self._share_plan.trims:
            await admin.create_topic(TRIMMED[0], 1, REPLICAS)
        for group in self._share_plan.groups:
            configs = [
                AlterableConfig(name=name, config_operation=0, value=value) for name, value in group.configs.items()
            ]
            resource = AlterConfigsResource(resource_type=_GROUP_CONFIG, resource_name=group.name, configs=configs)
            answer = await admin.anybody(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
            assert answer.responses[0].error_code == ErrorCode.NONE, answer.responses[0]
        if self._share_plan.has_letters:
            await self._have_letters(admin)
        # Internal topics cannot be created while a broker is dead, so a member comes before the first fault.
        self._come(self._share_plan.groups[0])
        end = self._stage.world.loop.time() + _JOIN_SECONDS
        while not all(member.assigned for member, _ in self._share_members):
            assert self._stage.world.loop.time() < end, "no member has an assignment"
            await asyncio.sleep(0.1)

    async def _have_letters(self, admin: Peer) -> None:
        """Create the topic of dead letters, and let share groups have them."""
        config = CreatableTopicConfig(name="errors.deadletterqueue.group.enable", value="true")
        topic = CreatableTopic(name=LETTERS[0], num_partitions=1, replication_factor=REPLICAS, configs=[config])
        created = await admin.anybody(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert created.topics[0].error_code == ErrorCode.NONE, created.topics[0]
        update = FeatureUpdateKey(feature=SHARE_VERSION, max_version_level=DEAD_LETTERS_FROM, upgrade_type=1)
        updated = await admin.anybody(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=30_000))
        assert updated.error_code == ErrorCode.NONE, updated

    async def run(self) -> None:
        works = [self._lives(group) for group in self._share_plan.groups]
        if self._share_plan.trims:
            works.append(self._trim())
        await self._stage.together(*works, super().run())

    async def _trim(self) -> None:
        """Write to a partition from which records are deleted. The usual checks do not know it."""
        cluster, is_over = self._stage.cluster, lambda: self._is_over
        producer = PlainProducer(
            cluster, History(), "trimmed", TRIMMED, idempotent=True, in_flight=3, trouble=self._plan.trouble
        )
        trimmer = Trimmer(cluster, self._stage.history, "trimmer", TRIMMED)
        await self._stage.together(
            producer.run(is_over, self._plan.pause), trimmer.run(is_over, lambda: producer.acknowledged)
        )

    def _come(self, group: GroupPlan) -> None:
        self._came += 1
        stage = self._stage
        member = ShareMember(
            stage.cluster,
            stage.history,
            f"member {self._came}",
            group.name,
            group.topic,
            trouble=self._plan.trouble,
            pause=self._share_plan.pause,
        )
        self._share_members.append((member, stage.in_background(member.forever())))

    async def _lives(self, group: GroupPlan) -> None:
        """Members come, leave and die, until faults are over. The last ones read the rest."""
        rng = self._stage.random
        if group is not self._share_plan.groups[0]:
            await asyncio.sleep(rng.uniform(0.0, 3.0))
        for _ in range(group.members):
            self._come(group)
        while not self._is_over:
            try:
                async with asyncio.timeout(rng.uniform(0.5, 4.0)):
                    await self._over.wait()
            except TimeoutError:
                if group.is_reset and rng.random() < 0.3:
                    await self._reset(group)
                else:
                    await self._replace(group)
        for member, _ in self._share_members:
            member.is_calm = True
            # Records in their last delivery come one by one, and there may be hundreds.
            member.longest_pause = min(member.longest_pause, 0.05)
            member.longest_wait_ms = 20

    async def _replace(self, group: GroupPlan) -> None:
        rng = self._stage.random
        alive = [each for each in self._share_members if each[0].group == group.name]
        member, task = rng.choice(alive)
        await self._end_work(member, task)
        if rng.random() < 0.5:
            member.die()
        else:
            await member.leave()
        self._come(group)

    async def _end_work(self, member: ShareMember, task: asyncio.Future[None]) -> None:
        self._share_members.remove((member, task))
        task.cancel()
        await asyncio.wait([task])

    async def _reset(self, group: GroupPlan) -> None:
        """Let all members go, reset the offsets of the group, and let other members come. Some members keep their share
        sessions in the meantime, and fetch and acknowledge as before."""
        rng = self._stage.random
        lingering: list[tuple[ShareMember, asyncio.Future[None]]] = []
        for member, task in [each for each in self._share_members if each[0].group == group.name]:
            await self._end_work(member, task)
            fate = rng.choice(["leaves", "dies", "lingers"])
            if fate == "leaves":
                await member.leave()
            elif fate == "dies":
                member.die()
            else:
                lingering.append((member, self._stage.in_background(member.linger())))
        for _ in range(rng.choice([1, 1, 2])):
            await self._reset_once(group)
            await asyncio.sleep(rng.uniform(0.0, 1.5))
        for member, task in lingering:
            task.cancel()
            await asyncio.wait([task])
            member.die()
        for _ in range(group.members):
            self._come(group)

    async def _reset_once(self, group: GroupPlan) -> None:
        rng = self._stage.random
        self._came += 1
        # A request that arrives again after its success would be a reset that the history does not have.
        trouble = Trouble(lost_answer=self._plan.trouble.lost_answer)
        admin = ShareAdmin(self._stage.cluster, self._stage.history, f"share admin {self._came}", trouble)
        ends = {partition.index: partition.log.high_watermark for _, partition in self._led(group.places)}
        keys = [ShareKey(group.name, place) for place in group.places]
        if rng.random() < 0.25:
            for key in keys:
                self._invariants.reset_begins(key, None)
            if not await admin.delete(group.name, group.topic, len(group.places)):
                return
        else:
            offsets = {key.place[1]: rng.randint(0, ends.get(key.place[1], 0)) for key in keys if rng.random() < 0.7}
            keys = [key for key in keys if key.place[1] in offsets]
            for key in keys:
                self._invariants.reset_begins(key, offsets[key.place[1]])
            await admin.alter(group.name, group.topic, offsets)
        for key in keys:
            self._invariants.reset_ended(key, self._stage.world.loop.time())

    # -- the end ------------------------------------------------------------------------------------------------------

    def groups_are_stable(self) -> bool:
        """Return True if every group has read everything."""
        return super().groups_are_stable() and not self._unread()

    def describe_groups(self) -> object:
        return self._unread()

    def _unread(self) -> list[str]:
        """Return the share partitions whose start is not at the end of the log."""
        found = []
        for group in self._share_plan.groups:
            for node, partition in self._led(group.places):
                leader = node.node.services.share_leaders.find(group.name, partition.topic_id, partition.index)
                start = None if leader is None else leader.machine.start_offset
                if start != partition.log.high_watermark:
                    found.append(f"{group.name}: {partition} from {start} to {partition.log.high_watermark}")
        return found

    def _led(self, places: list[Place]) -> list[tuple[SimBroker, Partition]]:
        """Return these partitions, each with the node that leads it."""
        return [
            (node, partition)
            for node in self._stage.cluster.brokers.values()
            for partition in (node.led() if node.up else ())
            if (partition.topic, partition.index) in places
        ]

    async def check(self) -> None:
        await super().check()
        places = sorted({place for group in self._share_plan.groups for place in group.places})
        logs, _ = await self._stage.logs(places)
        begins = {(each.topic, each.index): each.log.log_start_offset for _, each in self._led(places)}
        starts: dict[GroupPlace, Start] = {}
        excused = {}
        for group in self._share_plan.groups:
            for place in group.places:
                key = ShareKey(group.name, place)
                state = self._invariants.newest(key)
                assert state.first is not None
                first = max(state.first, begins[place], state.deleted)
                starts[group.name, place] = Start(first, group.read_committed, state.begins)
                excused[group.name, place] = self._invariants.excused(key)
                wanted = wanted_offsets(logs[place], read_committed=group.read_committed)
                there = [offset for offset in wanted if offset >= begins[place]]
                self._invariants.passed_too_much(key, there)
        insist(*of_share_groups(self._stage.history, logs, starts, excused))
        if self._share_plan.has_letters:
            await self._check_letters(logs)

    async def _check_letters(self, logs: Mapping[Place, Log]) -> None:
        reader = LetterReader(self._stage.cluster, self._stage.history, "letters", LETTERS, committed_only=False)
        letters = await reader.letters()
        dead: dict[GroupPlace, set[int]] = {}
        given_up = {}
        for group in self._share_plan.groups:
            for place in group.places if group.has_letters else ():
                # A reset forgets letters that are not written yet.
                state = self._invariants.newest(ShareKey(group.name, place))
                wanted = wanted_offsets(logs[place], read_committed=group.read_committed)
                dead[group.name, place] = state.rejected | (state.archived() & state.exhausted & wanted.keys())
                given_up[group.name, place] = state.given_up
        insist(the_dead_are_lettered(dead, letters, given_up))
