"""From the load of a cluster to better places for its replicas: a pure function, the same for the same seed.

Hard goals first: brokers that leave are emptied, racks mended, capacities kept. Then soft goals, the cheapest means
first: which replica is preferred as the leader costs nothing but an election; only what that cannot even out is moved,
ordered by what a byte that is copied brings. Greedy, with exact worth at each step; a step that another has made
worthless is passed over. Not responsible for what the load is (load_model.py) nor for carrying a plan out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pykbroker.balance.load_model import NO_BROKER, ClusterLoad, Flags, Floats, Ints
from pykbroker.balance.placement import Placement
from pykbroker.balance.seen import Resource

#: How many replicas of a broker are tried at once before the next broker has its turn.
_TRIED = 400
_PASSES = 40
#: Of the cost: what a pass must bring, or it is the last; what one step must bring.
_WORTH_A_PASS, _WORTH_A_STEP = 2e-3, 1e-7


@dataclass(frozen=True, slots=True)
class Limits:
    """Of moves of replicas; None: no limit. What must move is bound by `most_moves_per_broker` alone, and only where it
    goes to. A move begins before `most_bytes` are reached, and may end behind."""

    most_moves: int | None = None
    most_moves_per_broker: int | None = None
    most_bytes: float | None = None


def equal_weights() -> Floats:
    return np.ones(len(Resource))


@dataclass(frozen=True, slots=True)
class Goals:
    weights: Floats = field(default_factory=equal_weights)
    limits: Limits = Limits()
    #: Of a mean: brokers that are less above it give nothing more away.
    tolerance: float = 0.05
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """`replicas`: (P, F), as in ClusterLoad. `unmet`: replicas that had to go and found no place."""

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
        # What a replica without data costs all the same: its place on two brokers for a while.
        self._price = load.size + max(1.0, float(load.size.mean()) if len(load.size) else 1.0) * 0.05

    def run(self) -> Proposal:
        self._move_what_must()
        self._choose_leaders()
        place = self._place
        for _ in range(_PASSES):
            before = place.cost
            self._move_for_balance()
            self._choose_leaders()
            if before - place.cost <= before * _WORTH_A_PASS:
                break
        first = place.replicas[:, 0] != self._load.replicas[:, 0]
        return Proposal(place.replicas, self._moves, int(np.count_nonzero(first)), self._bytes, self._unmet)

    # Hard goals

    def _move_what_must(self) -> None:
        for partition, spot in self._on_leaving():
            self._unmet += not self._best_move(partition, spot)
        for partition, spot in self._sharing_racks():
            if self._place.rack_pairs_too_many[partition] > 0:
                self._unmet += not self._best_move(partition, spot, mends_racks=True)
        for broker in np.flatnonzero(self._place.over_capacity()):
            self._relieve(int(broker))

    def _on_leaving(self) -> list[tuple[int, int]]:
        """Replicas on brokers that leave, as partitions and places in their lists; the largest first."""
        load, replicas = self._load, self._place.replicas
        partitions, spots = np.nonzero((replicas != NO_BROKER) & load.leaving[replicas] & load.may_move[:, None])
        order = np.argsort(-load.size[partitions], kind="stable")
        return list(zip(partitions[order].tolist(), spots[order].tolist(), strict=True))

    def _sharing_racks(self) -> list[tuple[int, int]]:
        """Replicas in a rack that has an earlier one of the partition and need not: followers before the leader."""
        load, replicas = self._load, self._place.replicas
        found = []
        for partition in np.flatnonzero((self._place.rack_pairs_too_many > 0) & load.may_move).tolist():
            racks = [int(load.racks[each]) for each in replicas[partition] if each != NO_BROKER]
            found += [(partition, spot) for spot in range(len(racks) - 1, 0, -1) if racks[spot] in racks[:spot]]
        return found

    def _relieve(self, broker: int) -> None:
        """Move replicas away until the broker is within its capacities, those first that take most of what is over."""
        place, load = self._place, self._load
        partitions, spots = self._replicas_on(broker)
        vectors = place.vectors(partitions, spots)
        over = np.maximum(place.totals[broker] - load.capacity[broker], 0)
        over = np.divide(over, load.capacity[broker], out=np.zeros_like(over), where=load.capacity[broker] > 0)
        for each in np.argsort(-(vectors @ over), kind="stable"):
            if not place.over_capacity()[broker]:
                return
            self._best_move(int(partitions[each]), int(spots[each]))
        self._unmet += bool(place.over_capacity()[broker])

    # Soft goals

    def _choose_leaders(self) -> None:
        place = self._place
        for _ in range(_PASSES):
            before = place.cost
            worth, spots = place.worth_of_leaders()
            step = -before * _WORTH_A_STEP
            for partition in np.argsort(worth, kind="stable"):
                if worth[partition] >= step:
                    break
                if place.worth_of_leader(partition, spots[partition]) < step:
                    place.lead(partition, spots[partition])
            if before - place.cost <= before * _WORTH_A_PASS:
                return

    def _move_for_balance(self) -> None:
        above = self._place.above_mean()
        for broker in np.argsort(-above, kind="stable"):
            if above[broker] <= self._tolerance or not self._may_move_more():
                return
            self._move_away(int(broker))

    def _move_away(self, broker: int) -> None:
        """From this broker, while it brings something: the replicas first that bring most for a byte."""
        place = self._place
        partitions, spots = self._replicas_on(broker)
        if not len(partitions):
            return
        vectors = place.vectors(partitions, spots)
        allowed = place.allowed(partitions, spots)
        worth = np.where(allowed, place.worth_of_moves(vectors, broker), np.inf)
        each_byte = worth.min(axis=1) / self._price[partitions]
        step = -place.cost * _WORTH_A_STEP
        for each in np.argsort(each_byte, kind="stable")[:_TRIED]:
            if each_byte[each] >= 0 or place.above_mean_of(broker) <= self._tolerance or not self._may_move_more():
                return
            now = np.where(allowed[each], place.worth_of_moves(vectors[each : each + 1], broker)[0], np.inf)
            enough = self._has_moved_enough()
            if enough[broker]:
                return
            now[enough] = np.inf
            target = int(now.argmin())
            if now[target] < step:
                self._move(int(partitions[each]), int(spots[each]), target)

    # Both

    def _best_move(self, partition: int, spot: int, *, mends_racks: bool = False) -> bool:
        """To where it costs least, of the brokers that have room."""
        place = self._place
        partitions, spots = np.array([partition], np.int32), np.array([spot], np.int32)
        source = int(place.replicas[partition, spot])
        worth = place.worth_of_moves(place.vectors(partitions, spots), source)[0]
        worth[~place.allowed(partitions, spots, mends_racks=mends_racks)[0] | self._has_moved_enough()] = np.inf
        for target in np.argsort(worth, kind="stable"):
            if worth[target] == np.inf:
                return False
            if self._move(partition, spot, int(target)):
                return True
        return False

    def _move(self, partition: int, spot: int, target: int) -> bool:
        size = float(self._load.size[partition])
        source = int(self._place.replicas[partition, spot])
        if not self._place.move(partition, spot, target):
            return False
        self._moves += 1
        self._bytes += size
        self._moves_of[[source, target]] += 1
        return True

    def _replicas_on(self, broker: int) -> tuple[Ints, Ints]:
        """Those that may move, as partitions and the places in their lists. In an order of the seed: equals share."""
        partitions, spots = np.nonzero((self._place.replicas == broker) & self._load.may_move[:, None])
        order = self._random.permutation(len(partitions))
        return partitions[order].astype(np.int32), spots[order].astype(np.int32)

    def _may_move_more(self) -> bool:
        limits = self._limits
        return (limits.most_moves is None or self._moves < limits.most_moves) and (
            limits.most_bytes is None or self._bytes < limits.most_bytes
        )

    def _has_moved_enough(self) -> Flags:
        """(B,) brokers that may take no more."""
        most = self._limits.most_moves_per_broker
        return np.zeros(len(self._moves_of), bool) if most is None else self._moves_of >= most
