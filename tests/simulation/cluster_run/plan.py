"""The choices of a seed: the members of the cluster, its settings, its clients, and the faults with their times.

Responsible for the choice, and for keeping it within what the cluster promises to survive: no plan may lose an
acknowledged record. Not responsible for applying it (faults.py, workload.py).

Allowed losses (P1): acknowledged records are on all members of the ISR, but not durable on any disk before they are
flushed. A machine that loses power may lose its copy permanently. So with min.insync.replicas m a plan lets at most m -
1 machines be without a full copy at a time. The next one may lose its power only when the one before is in every ISR
again (faults.py checks that). If each append is flushed before it is acknowledged, any machine may lose power at any
time. A process that dies loses nothing. The metadata log is always flushed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum

from tests.simulation.brokers import Layout, Quorum
from tests.simulation.clients.base import QUIET, Trouble


class Kind(Enum):
    """A fault. It lasts for `seconds` if it has them."""

    KILL = "kill"
    #: in the middle of a call of its disk
    KILL_AT_DISK = "kill at a call of the disk"
    KILL_ALL = "kill all"
    STOP = "stop"
    PAUSE = "pause"
    POWER = "power loss"
    POWER_AT_DISK = "power loss at a call of the disk"
    ISOLATE = "isolate"
    #: what it sends, or what is sent to it, is lost
    ONE_WAY = "one way"
    SPLIT = "split"
    #: two halves that only one node can reach
    BRIDGE = "bridge"
    #: only the other nodes can reach it
    NO_CLIENTS = "no clients"
    SLOW_LINK = "slow link"
    RESET = "reset"
    LOSE_CONNECTIONS = "lose connections"
    #: the process lives and its port refuses connections
    REFUSE = "refuse"
    FLAP = "flap"
    SLOW_DISK = "slow disk"
    DEAD_DISK = "dead disk"
    FULL_DISK = "full disk"
    CLOCK = "clock"
    RESIGN = "resign"


class Who(Enum):
    """The node of a fault, which is chosen when the fault begins."""

    ANY = "any"
    #: the active controller
    CONTROLLER = "controller"
    #: the leader of a partition of the data
    LEADER = "leader"
    #: the leader of a partition of an internal topic
    COORDINATOR = "coordinator"


_WEIGHTS: dict[Kind, int] = {
    Kind.KILL: 14,
    Kind.KILL_AT_DISK: 8,
    Kind.KILL_ALL: 3,
    Kind.STOP: 7,
    Kind.PAUSE: 9,
    Kind.POWER: 8,
    Kind.POWER_AT_DISK: 6,
    Kind.ISOLATE: 9,
    Kind.ONE_WAY: 8,
    Kind.SPLIT: 5,
    Kind.BRIDGE: 4,
    Kind.NO_CLIENTS: 3,
    Kind.SLOW_LINK: 6,
    Kind.RESET: 4,
    Kind.LOSE_CONNECTIONS: 5,
    Kind.REFUSE: 6,
    Kind.FLAP: 4,
    Kind.SLOW_DISK: 5,
    Kind.DEAD_DISK: 3,
    Kind.FULL_DISK: 2,
    Kind.CLOCK: 4,
    Kind.RESIGN: 3,
}
LOSSY = frozenset({Kind.POWER, Kind.POWER_AT_DISK})
#: Faults that last longer now and then, so that sessions end during them.
_LONG = frozenset({Kind.PAUSE, Kind.ISOLATE, Kind.ONE_WAY, Kind.SPLIT, Kind.BRIDGE, Kind.KILL, Kind.POWER})


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` is in seconds since the begin of the safety phase. `level`, from 0 to 1, is the severity. `draw` is for
    later choices."""

    number: int
    at: float
    kind: Kind
    who: Who
    seconds: float
    level: float
    draw: int


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
    plan.faults = _faults(plan, rng)
    plan.overrides = _overrides(plan, rng)
    return plan


def _faults(plan: Plan, rng: random.Random) -> list[Fault]:
    weights = dict(_WEIGHTS)
    if not plan.may_lose_power:
        for kind in LOSSY:
            del weights[kind]
    if plan.flushes:
        for kind in LOSSY:
            weights[kind] *= 3
    # A run with few kinds of faults shows their effects on each other.
    if rng.random() < 0.4:
        chosen = rng.choices(list(weights), list(weights.values()), k=3)
        weights = {kind: weights[kind] for kind in chosen}
    faults = []
    times = sorted(rng.uniform(0.0, plan.seconds) for _ in range(rng.randint(2, 8)))
    if rng.random() < 0.25:
        # Several faults at once.
        times = [times[0] + rng.uniform(0.0, 1.0) for _ in times]
        times.sort()
    for number, at in enumerate(times):
        kind = rng.choices(list(weights), list(weights.values()))[0]
        longest = 10.0 if kind in _LONG and rng.random() < 0.4 else 3.0
        faults.append(
            Fault(
                number=number,
                at=at,
                kind=kind,
                who=rng.choices(list(Who), [4, 3, 4, 2])[0],
                seconds=rng.uniform(0.05, longest),
                level=rng.random(),
                draw=rng.getrandbits(32),
            )
        )
    return faults


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
