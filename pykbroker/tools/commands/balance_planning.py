"""Makes a plan of `balance` from a cluster: for `balance plan`, and for the healing of `balance watch`.

This module is imported only when a plan is made, because it needs numpy, which the extra `balance` installs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pykbroker.tools.balance.directory_spread import DirectoryMove
    from pykbroker.tools.balance.plan import Plan
    from pykbroker.tools.balance.seen import SeenBroker, SeenPartition
    from pykbroker.tools.cluster.asked_cluster import AskedCluster


@dataclass(frozen=True, slots=True)
class MovesAllowed:
    """Limits of a plan; None means no limit."""

    moves: int | None = None
    moves_per_broker: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PlanWishes:
    """`capacities` and `loads`: the texts of these two files. `only_must`: move only replicas that have to move."""

    window_seconds: float
    capacities: str = ""
    loads: str | None = None
    excluded: Sequence[str] = ()
    leaving: Sequence[int] = ()
    allowed: MovesAllowed = MovesAllowed()
    seed: int = 0
    only_must: bool = False


@dataclass(frozen=True, slots=True)
class MadePlan:
    plan: Plan
    brokers: Sequence[SeenBroker]
    directories: Sequence[DirectoryMove]


def made_plan(cluster: AskedCluster, wishes: PlanWishes) -> MadePlan:
    """Make a plan. Raises ClickException if no plan can be made."""
    from pykbroker.tools.cluster import partition_load

    with refused_in_one_line():
        import numpy as np

        from pykbroker.tools.balance.capacities import with_capacities
        from pykbroker.tools.balance.load_arrays import check_names, cluster_load
        from pykbroker.tools.balance.load_file import read_loads, told_by
        from pykbroker.tools.balance.optimiser import Goals, MoveLimits, equal_weights, optimise
        from pykbroker.tools.balance.plan import plan_of

        loads = None if wishes.loads is None else read_loads(wishes.loads)
        known = frozenset() if loads is None else told_by(loads)
    before = partition_load.placed(cluster)
    with refused_in_one_line():
        brokers, partitions = before.brokers(), partition_load.without_load(before)
        with_capacities(brokers, wishes.capacities, known)
        check_names(brokers, partitions, excluded=wishes.excluded, leaving=wishes.leaving)
    if loads is None:
        brokers, partitions = partition_load.seen(cluster, before, wishes.window_seconds)
    else:
        brokers, partitions = partition_load.told(cluster, loads)
    with refused_in_one_line():
        brokers = with_capacities(brokers, wishes.capacities, known)
        load = cluster_load(brokers, partitions, excluded=wishes.excluded, leaving=wishes.leaving)
    allowed = wishes.allowed
    limits = MoveLimits(allowed.moves, allowed.moves_per_broker, allowed.bytes)
    weights = np.zeros_like(equal_weights()) if wishes.only_must else equal_weights()
    proposal = optimise(load, Goals(weights=weights, limits=limits, seed=wishes.seed))
    plan = plan_of(load, proposal, brokers, partitions)
    held = {(each.topic, each.number) for each, may in zip(partitions, load.may_move, strict=True) if not may}
    directories = [] if wishes.only_must else _directory_moves(cluster, plan, brokers, partitions, held, allowed)
    return MadePlan(plan, brokers, directories)


def _directory_moves(
    cluster: AskedCluster,
    plan: Plan,
    brokers: Sequence[SeenBroker],
    partitions: Sequence[SeenPartition],
    held: set[tuple[str, int]],
    allowed: MovesAllowed,
) -> list[DirectoryMove]:
    from pykbroker.tools.balance.directory_spread import directory_moves
    from pykbroker.tools.cluster import partition_load

    alive = [each.id for each in brokers if each.is_alive]
    moved = {(each.topic, each.partition) for each in plan.partitions}
    most = None if allowed.moves is None else max(0, allowed.moves - plan.moves)
    return directory_moves(partition_load.directories(cluster, partitions, alive), held | moved, most_moves=most)


@contextmanager
def refused_in_one_line() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        from pykbroker.extras import how_to_install

        raise click.ClickException(f"`balance` needs {error.name}: {how_to_install('balance')}") from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None
