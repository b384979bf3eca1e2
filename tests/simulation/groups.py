"""Scenarios of groups: members of both protocols that join, die and leave, and their commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykbroker_worlds.history.checks import insist, of_groups, of_offsets
from pykbroker_worlds.history.events import Place
from pykbroker_worlds.simulated.sim_cluster import Quorum
from tests.simulation.clients.base import QUIET, Trouble
from tests.simulation.clients.member import ClassicMember, ConsumerMember, Member, SlowStickyMember
from tests.simulation.clients.reader import Offsets
from tests.simulation.stage import FORGETFUL, Stage, play

TOPIC = "orders"
PLACES: list[Place] = [(TOPIC, index) for index in range(4)]


async def members(stage: Stage, kinds: list[type[Member]], *, power_loss: bool = False) -> None:
    """Members join and leave while nodes crash; at the end the remaining ones share all partitions."""
    rng = stage.random
    trouble = rng.choice([QUIET, Trouble(lost_answer=0.03, late_repetition=0.02)])
    first = stage.peer("admin")
    await first.create_topic(TOPIC, len(PLACES))
    alive: list[tuple[Member, asyncio.Future[None]]] = []
    made = 0

    def come(kind: Callable[..., Member]) -> None:
        nonlocal made
        made += 1
        # Two members with one instance id: the second fences the first, or waits for it.
        instance = f"i{made % 3}" if rng.random() < 0.25 else None
        group = f"{kind.__name__}"
        member = kind(stage.cluster, stage.history, f"m{made}", group, PLACES, instance=instance, trouble=trouble)
        alive.append((member, stage.in_background(member.forever())))

    watcher = Offsets(stage.cluster, stage.history, "watcher")
    stage.in_background(watcher.watch([kind.__name__ for kind in kinds], PLACES))
    if not power_loss:
        stage.in_background(stage.look_now_and_then(4.0))

    async def comings_and_goings() -> None:
        for _ in range(rng.randint(6, 12)):
            await asyncio.sleep(rng.uniform(0.1, 3.0))
            gone = [index for index, (_, task) in enumerate(alive) if not task.done()]
            if len(gone) > 3 or (gone and rng.random() < 0.4):
                member, task = alive.pop(rng.choice(gone))
                task.cancel()
                await asyncio.wait([task])
                if rng.random() < 0.5 and member.member:
                    await member.leave()
            else:
                come(rng.choice(kinds))

    for kind in kinds:
        come(kind)
    await stage.together(comings_and_goings(), stage.crashes(rng.randint(0, 3), power_loss=power_loss, pause=8.0))
    await stage.cluster.become_whole()
    # The dead members are removed, and the others share their partitions.
    await asyncio.sleep(30)
    left = [member for member, task in alive if not task.done()]
    for group in sorted({member.group for member in left}):
        owned = [place for member in left if member.group == group for place in sorted(member.owned)]
        who = [(member.name, member.instance, member.generation, sorted(member.owned)) for member in left]
        assert sorted(owned) == PLACES, f"{group}: {who}"
    stage.agree()
    await stage.hush()
    if not power_loss:
        insist(*of_groups(stage.history), *of_offsets(stage.history))


async def instances(stage: Stage) -> None:
    """Three static members that die and come back as new processes, while the coordinator moves between two steps of
    their rebalances. At the end they share all partitions."""
    rng = stage.random
    first = stage.peer("admin")
    await first.create_topic(TOPIC, len(PLACES))
    alive: dict[str, tuple[Member, asyncio.Future[None]]] = {}
    made = 0

    def come(instance: str) -> None:
        nonlocal made
        made += 1
        member = SlowStickyMember(stage.cluster, stage.history, f"m{made}", "static", PLACES, instance=instance)
        alive[instance] = (member, stage.in_background(member.forever()))

    async def deaths() -> None:
        for _ in range(rng.randint(4, 12)):
            await asyncio.sleep(rng.uniform(0.1, 4.0))
            instance = rng.choice(sorted(alive))
            _, task = alive[instance]
            task.cancel()
            await asyncio.wait([task])
            # Sometimes longer than its session.
            await asyncio.sleep(rng.choice([0.0, 0.0, rng.uniform(0.0, 8.0)]))
            come(instance)

    for number in range(3):
        come(f"i{number}")
    await stage.together(deaths(), stage.crashes(rng.randint(4, 10), pause=3.0))
    await stage.cluster.become_whole()
    await asyncio.sleep(30)
    owned = [place for member, _ in alive.values() for place in sorted(member.owned)]
    assert sorted(owned) == PLACES, [
        (member.name, member.instance, member.generation, sorted(member.owned)) for member, _ in alive.values()
    ]
    stage.agree()
    await stage.hush()
    insist(*of_groups(stage.history), *of_offsets(stage.history))


def static(seed: int, *, brokers: int = 2, quorum: Quorum = Quorum.ALONE) -> Stage:
    stage = Stage(seed, brokers, FORGETFUL if seed % 3 == 0 else None, quorum)
    play(instances, stage)
    return stage


def classic(seed: int, *, power_loss: bool = False, brokers: int = 1, quorum: Quorum = Quorum.ALONE) -> Stage:
    return _play(seed, [ClassicMember], power_loss, brokers, quorum)


def consumer(seed: int, *, power_loss: bool = False, brokers: int = 1, quorum: Quorum = Quorum.ALONE) -> Stage:
    return _play(seed, [ConsumerMember], power_loss, brokers, quorum)


def _play(seed: int, kinds: list[type[Member]], power_loss: bool, brokers: int, quorum: Quorum) -> Stage:
    stage = Stage(seed, brokers, FORGETFUL if seed % 3 == 0 else None, quorum)
    play(lambda stage: members(stage, kinds, power_loss=power_loss), stage)
    return stage
