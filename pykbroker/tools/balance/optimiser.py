"""Finds better places for the replicas of a cluster from its load: a pure function, the same for the same seed.

Hard goals come first: brokers that leave are emptied, racks mended, capacities kept. Then come soft goals: first by
changes of preferred leaders, which cost only an election. Replicas move only for differences that remain after that,
in the order of the worth per copied byte. The search is greedy and computes the exact worth at each step; it skips a
step that an earlier step has made worthless. Not responsible for measuring the load nor for executing a plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from pykbroker.tools.balance.costed_placement import Placement
from pykbroker.tools.balance.load_model import NO_BROKER, ClusterLoad, Flags, Floats, Ints, names_gone, new_replicas
from pykbroker.tools.balance.relief import leaders_that_relieve, replicas_that_relieve, smallest_replicas
from pykbroker.tools.balance.seen import LoadResource

#: The number of replicas of a broker that are tried before the next broker has its turn.
_TRIED = 400
_PASSES = 40
#: The least gains, as shares of the cost: a pass that brings less is the last; a step that would bring less is skipped.
_WORTH_A_PASS, _WORTH_A_STEP = 2e-3, 1e-7


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Limits for moves of replicas; None means no limit. They also apply to moves for a hard goal; so such a goal may
    stay broken."""

    most_moves: int | None = None
    most_moves_per_broker: int | None = None
    most_bytes: float | None = None


def equal_weights() -> Floats:
    return np.ones(len(LoadResource))


@dataclass(frozen=True, slots=True)
class Goals:
    weights: Floats = field(default_factory=equal_weights)
    limits: MoveLimits = MoveLimits()
    #: a share of the mean: a broker that is above the mean by less gives replicas only to brokers far below a mean
    tolerance: float = 0.05
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """`replicas`: (P, F), as in ClusterLoad. `moves` and `bytes_moved` count replicas on brokers that had none of the
    partition. `unmet`: the number of replicas that had to move and found no place, plus the number of brokers that are
    still above a capacity."""

    replicas: Ints
    moves: int
    leader_changes: int
    bytes_moved: float
    unmet: int


def optimise(load: ClusterLoad, goals: Goals | None = None) -> Proposal:
    return _Search(load, goals or Goals()).run()


class _Search:
    def __init__(self, load: ClusterLoad, goals: Goals) -> None:
        self._load = load
        self._limits = goals.limits
        self._tolerance = goals.tolerance
        self._place = Placement(load, goals.weights)
        self._random = np.random.default_rng(goals.seed)
        self._moves_of = np.zeros(len(load.racks), np.int64)
        self._moves = 0
        self._bytes = 0.0
        self._unmet = 0
        # The move of a replica without data also has a price, because the replica is on two brokers for a while.
        self._price = load.size + max(1.0, float(load.size.mean()) if len(load.size) else 1.0) * 0.05

    def run(self) -> Proposal:
        self._move_what_must()
        self._choose_leaders()
        place = self._place
        for _ in range(_PASSES):
            before = place.imbalance.cost
            self._move_for_balance()
            self._choose_leaders()
            if before - place.imbalance.cost <= before * _WORTH_A_PASS:
                break
        load = self._load
        first = place.replicas[:, 0] != load.replicas[:, 0]
        copied = new_replicas(load.replicas, place.replicas)
        moves, size = int(copied.sum()), float((copied * load.size).sum())
        return Proposal(place.replicas, moves, int(np.count_nonzero(first)), size, self._unmet)

    # Hard goals

    def _move_what_must(self) -> None:
        for partition, group in groupby(self._on_leaving(), lambda each: each[0]):
            self._empty(partition, [spot for _, spot in group])
        # A plan cannot name a broker that is down.
        load = self._load
        held = names_gone(load, self._place.replicas)
        self._load = self._place.load = replace(
            load, may_move=load.may_move & ~held, may_reorder=load.may_reorder & ~held
        )
        for partition, spot in self._sharing_racks():
            if self._place.rack_pairs_too_many[partition] > 0:
                self._unmet += not self._best_move(partition, spot, mends_racks=True)
        takes_part = load.may_take | (load.leaving & load.alive)
        for broker in np.flatnonzero((self._place.over().any(axis=1) | self._place.over_count()) & takes_part):
            self._relieve(int(broker))

    def _empty(self, partition: int, spots: list[int]) -> None:
        """Move these replicas to other brokers, as many as possible. If the partition then still has a broker that is
        down, move all of them back."""
        load, place = self._load, self._place
        left = sum(not self._best_move(partition, spot) for spot in spots)
        if not load.alive[[each for each in place.replicas[partition] if each != NO_BROKER]].all():
            for spot in spots:
                self._put_back(partition, spot)
            left = len(spots)
        self._unmet += left

    def _on_leaving(self) -> list[tuple[int, int]]:
        """Return replicas on brokers that leave, as partitions and places in their lists; the largest first."""
        load, replicas = self._load, self._place.replicas
        partitions, spots = np.nonzero((replicas != NO_BROKER) & load.leaving[replicas] & load.may_move[:, None])
        order = np.argsort(-load.size[partitions], kind="stable")
        return list(zip(partitions[order].tolist(), spots[order].tolist(), strict=True))

    def _sharing_racks(self) -> list[tuple[int, int]]:
        """Return replicas that share a rack with an earlier replica in the list, for partitions that have too many such
        pairs. The last replica of a list comes first; the leader, which is the first of its list, is never returned."""
        load, replicas = self._load, self._place.replicas
        found = []
        for partition in np.flatnonzero((self._place.rack_pairs_too_many > 0) & load.may_move).tolist():
            racks = [int(load.racks[each]) for each in replicas[partition] if each != NO_BROKER]
            found += [(partition, spot) for spot in range(len(racks) - 1, 0, -1) if racks[spot] in racks[:spot]]
        return found

    def _relieve(self, broker: int) -> None:
        """Bring the broker within its capacities: first change leaders, then move the replicas that relieve most per
        byte. If it is within them but has too many replicas, move the smallest."""
        place = self._place
        for partition, spot in leaders_that_relieve(place, broker):
            if not place.over()[broker].any():
                break
            self._relieve_by_leader(broker, partition, spot)
        failed = 0
        for partition, spot in replicas_that_relieve(place, broker, self._replicas_on(broker), self._price):
            over = place.over()[broker]
            if failed == _TRIED or not over.any():
                break
            if (place.vector(partition, spot) * over).any():
                failed = 0 if self._best_move(partition, spot) else failed + 1
        failed = 0
        for partition, spot in smallest_replicas(place, self._replicas_on(broker)):
            if failed == _TRIED or not place.over_count()[broker]:
                break
            failed = 0 if self._best_move(partition, spot) else failed + 1
        self._unmet += bool(place.over()[broker].any() or place.over_count()[broker])

    def _relieve_by_leader(self, broker: int, partition: int, spot: int) -> None:
        """Make the replica at `spot`, which is on this broker, the leader. If it leads already, make another replica
        the leader."""
        place, load = self._place, self._load
        change = place.leading[partition] - place.following[partition]
        if not ((change if spot == 0 else -change) * place.over()[broker] > 0).any():
            return
        row = place.replicas[partition]
        spots = [spot] if spot else [each for each in range(1, len(row)) if row[each] != NO_BROKER]
        worth = {each: place.worth_of_leader(partition, each) for each in spots if load.may_take[row[each]]}
        best = min(worth, key=lambda each: worth[each], default=None)
        if best is not None and worth[best] < np.inf:
            place.lead(partition, best)

    # Soft goals

    def _choose_leaders(self) -> None:
        place = self._place
        for _ in range(_PASSES):
            before = place.imbalance.cost
            worth, spots = place.worth_of_leaders()
            step = -before * _WORTH_A_STEP
            for partition in np.argsort(worth, kind="stable"):
                if worth[partition] >= step:
                    break
                if place.worth_of_leader(partition, spots[partition]) < step:
                    place.lead(partition, spots[partition])
            if before - place.imbalance.cost <= before * _WORTH_A_PASS:
                return

    def _move_for_balance(self) -> None:
        above = self._place.imbalance.above_mean()
        for broker in np.argsort(-above, kind="stable"):
            if above[broker] <= 0 or not self._may_move_more():
                return
            self._move_away(int(broker))

    def _takers(self, broker: int) -> Flags | None:
        """(B,) the brokers to which this broker should give replicas, or None if it should give none. If it is above a
        mean by more than the tolerance, these are all brokers that may take replicas. Otherwise they are the brokers
        that are below a mean by more than the tolerance, where this broker is above that mean."""
        means = self._place.imbalance.in_means()
        if means[broker].max() > self._tolerance:
            return self._load.may_take
        takers: Flags = ((means < -self._tolerance) & (means[broker] > 0)).any(axis=1) & self._load.may_take
        return takers if takers.any() else None

    def _move_away(self, broker: int) -> None:
        """Move replicas from this broker while that lowers the cost; first the replicas that lower it most per byte."""
        place = self._place
        takers = self._takers(broker)
        if takers is None:
            return
        partitions, spots = self._replicas_on(broker)
        if not len(partitions):
            return
        if self._place.imbalance.in_means()[broker].max() <= self._tolerance:
            # The broker only helps to fill others, so only some of its replicas are tried, which the seed chooses.
            partitions, spots = partitions[:_TRIED], spots[:_TRIED]
        vectors = place.vectors(partitions, spots)
        allowed = place.allowed(partitions, spots)
        worth = np.where(allowed & takers, place.imbalance.worth_of_moves(vectors, broker), np.inf)
        each_byte = worth.min(axis=1) / self._price[partitions]
        step = -place.imbalance.cost * _WORTH_A_STEP
        enough = self._has_moved_enough()
        for each in np.argsort(each_byte, kind="stable")[:_TRIED]:
            if each_byte[each] >= 0 or takers is None or enough[broker]:
                return
            may = allowed[each] & takers & ~enough & place.room(vectors[each])
            now = np.where(may, place.imbalance.worth_of_move(vectors[each], broker), np.inf)
            target = int(now.argmin())
            if now[target] < step and self._move(int(partitions[each]), int(spots[each]), target):
                takers, enough = self._takers(broker), self._has_moved_enough()

    # Both

    def _best_move(self, partition: int, spot: int, *, mends_racks: bool = False) -> bool:
        """Move the replica to the broker with room where it costs least."""
        place = self._place
        partitions, spots = np.array([partition], np.int32), np.array([spot], np.int32)
        source = int(place.replicas[partition, spot])
        enough = self._has_moved_enough()
        if enough[source]:
            return False
        vector = place.vector(partition, spot)
        worth = place.imbalance.worth_of_move(vector, source)
        may = place.allowed(partitions, spots, mends_racks=mends_racks)[0] & place.room(vector) & ~enough
        worth[~may] = np.inf
        target = int(worth.argmin())
        return bool(worth[target] < np.inf) and self._move(partition, spot, target)

    def _move(self, partition: int, spot: int, target: int) -> bool:
        size = float(self._load.size[partition])
        source = int(self._place.replicas[partition, spot])
        most = self._limits.most_bytes
        if not self._may_move_more() or (most is not None and self._bytes + size > most):
            return False
        if not self._place.move(partition, spot, target):
            return False
        self._count(source, target, 1, size)
        return True

    def _put_back(self, partition: int, spot: int) -> None:
        source, target = int(self._load.replicas[partition, spot]), int(self._place.replicas[partition, spot])
        if source != target:
            self._place.put(partition, spot, source)
            self._count(source, target, -1, -float(self._load.size[partition]))

    def _count(self, source: int, target: int, moves: int, size: float) -> None:
        self._moves += moves
        self._bytes += size
        self._moves_of[[source, target]] += moves

    def _replicas_on(self, broker: int) -> tuple[Ints, Ints]:
        """Return the replicas that may move, as partitions and the places in their lists. The seed decides the order,
        so that no partition is preferred among equal ones."""
        partitions, spots = np.nonzero((self._place.replicas == broker) & self._load.may_move[:, None])
        order = self._random.permutation(len(partitions))
        return partitions[order].astype(np.int32), spots[order].astype(np.int32)

    def _may_move_more(self) -> bool:
        return self._limits.most_moves is None or self._moves < self._limits.most_moves

    def _has_moved_enough(self) -> Flags:
        """(B,) True if a broker has taken part in as many moves as it may."""
        most = self._limits.most_moves_per_broker
        return np.zeros(len(self._moves_of), bool) if most is None else self._moves_of >= most
