"""The choices of a seed: the members of the cluster, its settings, its clients, and the faults with their times.

Responsible for the choice, and for keeping it within what the cluster promises to survive: no plan may lose an
acknowledged record. Not responsible for applying it (`Faults`, workload.py).

Allowed losses (P1): acknowledged records are on all members of the ISR, but not durable on any disk before they are
flushed. A machine that loses power may lose its copy permanently. So with min.insync.replicas m a plan lets at most m -
1 machines be without a full copy at a time. The next one may lose its power only when the one before is in every ISR
again (`Faults` checks that). If each append is flushed before it is acknowledged, any machine may lose power at any
time. A process that dies loses nothing. The metadata log is always flushed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pykbroker_worlds.faults.fault_plan import Fault, draw_faults
from pykbroker_worlds.simulated.sim_cluster import Layout, Quorum
from tests.simulation.clients.base import QUIET, Trouble


@dataclass(slots=True)
class Plan:
    """All choices that are made before the run."""

    seed: int
    layout: Layout
    quorum: Quorum
    min_isr: int
    #: each append is flushed before it is acknowledged
    flushes: bool
    two_directories: bool
    transaction_version: int
    #: the length of the phase with faults
    seconds: float
    clients: list[str]
    trouble: Trouble
    faults: list[Fault]
    #: one broker does not come back
    leaves_one_dead: bool
    #: the longest pause between two operations of a client
    pause: float
    overrides: dict[str, str] = field(default_factory=dict)
    #: the arguments with which `make sim` tells this run
    sim_args: str = ""

    @property
    def may_lose_power(self) -> bool:
        return self.flushes or self.min_isr > 1

    def describe(self) -> list[str]:
        layout = self.layout
        parts = [
            f"{count} {name}"
            for count, name in (
                (layout.combined, "combined nodes"),
                (layout.brokers, "brokers"),
                (layout.controllers, "controllers"),
            )
            if count
        ]
        return [
            f"{', '.join(parts)}, {self.quorum.value} voters, min.insync.replicas {self.min_isr}"
            + (", every append is flushed" if self.flushes else "")
            + (", two directories" if self.two_directories else "")
            + (", one node stays dead" if self.leaves_one_dead else ""),
            f"clients: {', '.join(self.clients)}; transaction.version {self.transaction_version}",
            *(
                f"fault {fault.number} at {fault.at:.2f}: {fault.kind.value}, {fault.who.value}, {fault.seconds:.2f} s"
                for fault in self.faults
            ),
        ]


#: Clients by name, and how often they are chosen.
CLIENTS: dict[str, float] = {
    "idempotent": 0.75,
    "plain": 0.35,
    "acks 1": 0.35,
    "transactions": 0.6,
    "classic group": 0.35,
    "consumer group": 0.35,
    "admin": 0.45,
    "offsets": 0.3,
}


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"{seed} plan")
    layout = rng.choices(
        [Layout(3), Layout(3, 1), Layout(3, 2), Layout(0, 3, 3), Layout(0, 3, 1), Layout(1, 2), Layout(4), Layout(5)],
        [60, 12, 4, 5, 4, 4, 6, 5],
    )[0]
    quorum = rng.choice([Quorum.STATIC, Quorum.DYNAMIC])
    min_isr = 2 if rng.random() < 0.85 else 1
    flushes = rng.random() < 0.2
    two_directories = rng.random() < 0.25
    seconds = rng.uniform(6.0, 16.0)
    clients = [name for name, chance in CLIENTS.items() if rng.random() < chance]
    if not any(name in clients for name in ("idempotent", "transactions", "plain")):
        clients.append("idempotent")
    plan = Plan(
        seed=seed,
        layout=layout,
        quorum=quorum,
        min_isr=min_isr,
        flushes=flushes,
        two_directories=two_directories,
        transaction_version=2 if rng.random() < 0.8 else 1,
        seconds=seconds,
        clients=clients,
        trouble=rng.choice([QUIET, QUIET, Trouble(lost_answer=0.05), Trouble(lost_answer=0.03, late_repetition=0.03)]),
        faults=[],
        leaves_one_dead=rng.random() < 0.15,
        pause=rng.choice([0.15, 0.3, 0.6]),
    )
    plan.faults = draw_faults(rng, seconds, may_lose_power=plan.may_lose_power, flushes=flushes)
    plan.overrides = _overrides(plan, rng)
    return plan


def _overrides(plan: Plan, rng: random.Random) -> dict[str, str]:
    overrides = {
        "min.insync.replicas": str(plan.min_isr),
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": str(plan.min_isr),
        "broker.heartbeat.interval.ms": "700",
        "broker.session.timeout.ms": "3000",
        "replica.lag.time.max.ms": rng.choice(["1500", "4000"]),
        "replica.fetch.wait.max.ms": "500",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "log.index.interval.bytes": "256",
        "log.roll.ms": rng.choice(["1500", "604800000"]),
        "pykbroker.metadata.reserve.bytes": "65536",
    }
    if plan.flushes:
        overrides["log.flush.interval.messages"] = "1"
    if plan.two_directories:
        overrides |= {"log.dirs": "/data,/more", "metadata.log.dir": "/data"}
    if rng.random() < 0.2:
        overrides["metadata.log.max.record.bytes.between.snapshots"] = str(rng.choice([2_000, 6_000]))
    if rng.random() < 0.3:
        overrides["num.replica.fetchers"] = "2"
    return overrides
