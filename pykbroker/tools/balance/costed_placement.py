"""The places of the replicas while a plan is made: the loads of brokers, the worth of a change, and the change itself.

A change of one partition touches two brokers, so its worth is a product of small vectors. Responsible for the hard
goals of one change (goals.py judges a whole placement). Not responsible for the cost (imbalance.py), nor for the order
of changes (optimiser.py).
"""

from __future__ import annotations

import numpy as np

from pykbroker.tools.balance.goals import fewest_rack_pairs, over_capacity, rack_pairs
from pykbroker.tools.balance.imbalance import Imbalance
from pykbroker.tools.balance.load_model import NO_BROKER, ClusterLoad, Flags, Floats, Ints, broker_loads


class Placement:
    """`weights` (R,): the weight of the soft goal of each resource."""

    def __init__(self, load: ClusterLoad, weights: Floats) -> None:
        self.load = load
        self.replicas: Ints = load.replicas.copy()
        self.leading = load.leading()
        self.following = load.following()
        self.totals = broker_loads(load, self.replicas)
        self.counts = np.bincount(self.replicas[self.replicas != NO_BROKER], minlength=len(load.racks))
        self._pairs = rack_pairs(self.replicas, load.racks)
        self._fewest_pairs = fewest_rack_pairs(load)
        self.imbalance = Imbalance(load, self.totals, weights)
        self._limited = bool(np.isfinite(load.capacity).any())
        # (P, R) the load by which leading a partition exceeds following it. `_own_change` is the sum of
        # change ** 2 * scale over the resources.
        change = self.leading - self.following
        self._scaled_change: Floats = change * self.imbalance.scale
        self._own_change: Floats = (change * self._scaled_change).sum(axis=1)
        self._all = np.ones(len(load.racks), bool)
        self._rack_of: list[int] = load.racks.tolist()
        self._bounded = bool((load.most_replicas < np.iinfo(np.int32).max).any())

    # Leadership

    def worth_of_leaders(self) -> tuple[Floats, Ints]:
        """(P,) the change of the cost with the best other leader of each partition, and (P,) the place of that replica;
        infinity if there is none."""
        load = self.load
        scaled = self._scaled_change
        best = np.full(len(self.replicas), np.inf)
        places = np.zeros(len(self.replicas), np.int32)
        first = self.replicas[:, 0]
        counted, distances = self.imbalance.counted, self.imbalance.distances
        own = self._own_change * (1 + counted[first, 0])
        for place in range(1, self.replicas.shape[1]):
            other = self.replicas[:, place]
            worth = 2 * ((distances[other] - distances[first]) * scaled).sum(axis=1) + own
            worth[(other == NO_BROKER) | ~load.may_take[other] | ~load.may_reorder] = np.inf
            better = worth < best
            best[better], places[better] = worth[better], place
        return best, places

    def worth_of_leader(self, partition: int, place: int) -> float:
        """Return the current value of `worth_of_leaders` for one partition and place; infinity if a capacity forbids
        it."""
        first, other = self.replicas[partition, 0], self.replicas[partition, place]
        if self._limited:
            change = self.leading[partition] - self.following[partition]
            # The old leader becomes a follower, which may raise its load of some resource.
            if not (self._has_room(other, change) and self._has_room(first, -change)):
                return np.inf
        imbalance = self.imbalance
        distance = (imbalance.distances[other] - imbalance.distances[first]).dot(self._scaled_change[partition])
        sides = imbalance.counts_once[first] + imbalance.counts_once[other]
        return float(2 * distance + sides * self._own_change[partition])

    def lead(self, partition: int, place: int) -> None:
        """Make the replica at `place` the preferred leader."""
        row = self.replicas[partition]
        change = self.leading[partition] - self.following[partition]
        self._add(row[0], -change)
        self._add(row[place], change)
        row[0], row[place] = row[place], row[0]

    # Moves

    def vectors(self, partitions: Ints, places: Ints) -> Floats:
        """(N, R) the load of these replicas on the broker that they are on."""
        first = (places == 0)[:, None]
        return np.where(first, self.leading[partitions], self.following[partitions])

    def vector(self, partition: int, place: int) -> Floats:
        """Return the value of `vectors` for one replica."""
        found: Floats = (self.leading if place == 0 else self.following)[partition]
        return found

    def allowed(self, partitions: Ints, places: Ints, *, mends_racks: bool = False) -> Flags:
        """(N, B) True where the replica may go to the broker: the broker may take replicas and has no replica of the
        partition. The number of the partition's pairs of replicas in one rack must not rise above its present value or
        the fewest possible, whichever is greater. With `mends_racks` it must fall. `room` checks capacities."""
        load = self.load
        count = len(partitions)
        found: Flags = np.repeat(load.may_take[None, :], count, axis=0)
        rows = self.replicas[partitions]
        own_rack = load.racks[rows[np.arange(count), places]]
        same_there = np.zeros(found.shape, np.int32)
        same_here = np.zeros(count, np.int32)
        for place in range(rows.shape[1]):
            other = rows[:, place]
            known = np.flatnonzero(other != NO_BROKER)
            found[known, other[known]] = False
            known = known[places[known] != place]
            racks = load.racks[other[known]]
            same_there[known] += load.racks[None, :] == racks[:, None]
            same_here[known] += racks == own_rack[known]
        pairs = self._pairs[partitions]
        most = same_here - 1 if mends_racks else np.maximum(pairs, self._fewest_pairs[partitions]) - pairs + same_here
        found &= same_there <= most[:, None]
        return found

    def room(self, vector: Floats) -> Flags:
        """(B,) True where a broker has room for one more replica of this load."""
        found: Flags = self._all
        if self._bounded:
            found = found & (self.counts < self.load.most_replicas)
        if self._limited:
            found = found & np.all((self.totals + vector <= self.load.capacity) | (vector <= 0), axis=1)
        return found

    def move(self, partition: int, place: int, broker: int) -> bool:
        """Move a replica. Returns False, and changes nothing, if the broker has no room for it."""
        vector = self.vector(partition, place)
        if self.counts[broker] >= self.load.most_replicas[broker] or not self._has_room(broker, vector):
            return False
        self.put(partition, place, broker)
        return True

    def put(self, partition: int, place: int, broker: int) -> None:
        """Move a replica without checking for room."""
        row, vector = self.replicas[partition], self.vector(partition, place)
        source = row[place]
        self._add(source, -vector)
        self._add(broker, vector)
        self.counts[source] -= 1
        self.counts[broker] += 1
        row[place] = broker
        racks = [self._rack_of[each] for each in row.tolist() if each != NO_BROKER]
        self._pairs[partition] = sum(racks[:each].count(rack) for each, rack in enumerate(racks))

    @property
    def rack_pairs_too_many(self) -> Ints:
        """(P,) the number of pairs of replicas in one rack, above the fewest that the racks allow."""
        return self._pairs - self._fewest_pairs

    def over(self) -> Floats:
        """(B, R) the load above the capacities."""
        return over_capacity(self.load, self.totals)

    def over_count(self) -> Flags:
        """(B,) True where a broker has too many replicas."""
        over: Flags = (self.counts > self.load.most_replicas) & self.load.alive
        return over

    def _has_room(self, broker: int, vector: Floats) -> bool:
        """Return True if no resource that the change raises gets above the capacity."""
        if not self._limited:
            return True
        after = self.totals[broker] + vector
        return bool(np.all((after <= self.load.capacity[broker]) | (vector <= 0)))

    def _add(self, broker: int, vector: Floats) -> None:
        self.totals[broker] += vector
        self.imbalance.add(broker, vector)
