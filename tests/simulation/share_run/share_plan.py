"""The choices of a seed for a run with share groups: those of the usual plan, other clients, and the groups.

The groups come from a random stream of their own, so the plans of the usual runs are the same with them and without
them. Faults, members of the cluster and what it survives are those of cluster_run/plan.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from pykbroker_worlds.history.events import Place
from tests.simulation.cluster_run.plan import Plan, plan_of
from tests.simulation.cluster_run.workload import PLACES

#: The key of a group's dead letter queue.
LETTER_QUEUE = "errors.deadletterqueue.topic.name"
LETTERS: Place = ("dlq.letters", 0)
#: The arguments with which `make sim` tells such a run, after the seed.
SIM_ARGS = ' SIM_ARGS="--shares"'
#: A partition that only a share group reads, and from which records are deleted.
TRIMMED: Place = ("trimmed", 0)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One share group."""

    name: str
    members: int
    configs: dict[str, str]
    #: the partitions of the topic that it reads
    places: list[Place] = field(default_factory=lambda: PLACES)
    #: an administrator resets its offsets now and then
    is_reset: bool = False

    @property
    def topic(self) -> str:
        return self.places[0][0]

    @property
    def has_letters(self) -> bool:
        """True if the group has a dead letter queue."""
        return LETTER_QUEUE in self.configs

    @property
    def read_committed(self) -> bool:
        return self.configs["share.isolation.level"] == "read_committed"


@dataclass(frozen=True, slots=True)
class SharePlan:
    """All choices that are made before the run."""

    plan: Plan
    groups: list[GroupPlan]
    #: the longest pause between two requests of a member
    pause: float

    @property
    def trims(self) -> bool:
        """True if a group reads the partition from which records are deleted."""
        return any(TRIMMED in group.places for group in self.groups)

    @property
    def has_letters(self) -> bool:
        """True if a group has a dead letter queue."""
        return any(group.has_letters for group in self.groups)

    def describe(self) -> list[str]:
        return [
            *self.plan.describe(),
            *(
                f"share group {group.name}: {group.members} members, {group.configs}"
                + (", its offsets are reset" if group.is_reset else "")
                for group in self.groups
            ),
        ]


def share_plan_of(seed: int) -> SharePlan:
    """The plan of a seed."""
    rng = random.Random(f"{seed} share plan")
    plan = plan_of(seed)
    clients = rng.choice([["idempotent"], ["transactions"], ["idempotent", "transactions"], ["plain", "transactions"]])
    if rng.random() < 0.3:
        clients = [*clients, "admin"]
    overrides = {
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.num.partitions": str(rng.randint(1, 2)),
        "share.coordinator.state.topic.min.isr": str(plan.min_isr),
        "share.coordinator.snapshot.update.records.per.snapshot": str(rng.choice([2, 8, 500])),
        "share.coordinator.state.topic.prune.interval.ms": "1500",
        "share.coordinator.cold.partition.snapshot.interval.ms": "2500",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.heartbeat.interval.ms": "500",
        "group.share.min.session.timeout.ms": "1000",
        "group.share.session.timeout.ms": "4000",
        "group.share.assignment.interval.ms": "200",
        "group.share.initialize.retry.interval.ms": "1000",
    }
    groups = [_group(rng, number) for number in range(rng.randint(1, 2))]
    pause = rng.choice([0.05, 0.2, 0.4])
    if rng.random() < 0.3:
        groups.append(replace(_group(rng, len(groups)), places=[TRIMMED]))
    if rng.random() < 0.3:
        groups[0] = replace(groups[0], configs=groups[0].configs | {LETTER_QUEUE: LETTERS[0]})
    _add_resets(seed, groups)
    return SharePlan(
        replace(plan, clients=clients, transaction_version=2, overrides=plan.overrides | overrides, sim_args=SIM_ARGS),
        groups,
        pause,
    )


def _add_resets(seed: int, groups: list[GroupPlan]) -> None:
    """Choose the groups whose offsets are reset. The choices came later than the others, so they have a random stream
    of their own."""
    rng = random.Random(f"{seed} share resets")
    for number, group in enumerate(groups):
        groups[number] = replace(group, is_reset=rng.random() < 0.3)
        if group.has_letters and rng.random() < 0.5:
            # So that more records come to the delivery limit.
            groups[number] = replace(groups[number], configs=group.configs | {"share.delivery.count.limit": "2"})


def _group(rng: random.Random, number: int) -> GroupPlan:
    configs = {
        "share.auto.offset.reset": rng.choices(["earliest", "latest"], [4, 1])[0],
        "share.isolation.level": rng.choice(["read_committed", "read_uncommitted"]),
        "share.record.lock.duration.ms": str(rng.choice([1_000, 2_000])),
        "share.delivery.count.limit": str(rng.choice([3, 5, 10])),
    }
    return GroupPlan(f"share {number}", rng.randint(1, 3), configs)
