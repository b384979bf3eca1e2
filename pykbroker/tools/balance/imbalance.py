"""The distance of each broker's load from the mean, and what it costs; pure.

The cost is one number: the sum of weight * (distance from the mean / mean) ** 2 over brokers and resources. Not
responsible for the replicas that make the load (costed_placement.py).

Invariant: the distance of a broker that does not count is 0. A broker counts if it may take replicas, or leaves.
"""

from __future__ import annotations

import numpy as np

from pykbroker.tools.balance.load_model import ClusterLoad, Flags, Floats


class Imbalance:
    """`totals` (B, R): the load of each broker. `weights` (R,): the weight of the soft goal of each resource."""

    def __init__(self, load: ClusterLoad, totals: Floats, weights: Floats) -> None:
        shared = totals[load.may_take | load.leaving].sum(axis=0)
        means = shared / max(1, np.count_nonzero(load.may_take))
        counts = (means > 0) & (weights > 0)
        #: (R,) the cost of a squared distance, for each resource
        self.scale: Floats = np.divide(weights, means * means, out=np.zeros_like(means), where=counts)
        self._shares: Floats = np.divide(1.0, means, out=np.zeros_like(means), where=counts)
        targets = np.where(load.may_take[:, None], means, 0.0)
        #: (B, 1) True for the brokers that count in the cost
        self.counted: Flags = (load.may_take | load.leaving)[:, None]
        #: the same as 1 and 0, for one broker at a time
        self.counts_once: list[int] = self.counted[:, 0].astype(int).tolist()
        #: (B, R)
        self.distances: Floats = np.where(self.counted, totals - targets, 0.0)

    @property
    def cost(self) -> float:
        return float((self.distances * self.distances * self.scale).sum())

    def above_mean(self) -> Floats:
        """(B,) the greatest distance of each broker above a mean, as a share of that mean."""
        above: Floats = self.in_means().max(axis=1)
        return above

    def in_means(self) -> Floats:
        """(B, R) the distances, as shares of the mean."""
        return self.distances * self._shares

    def add(self, broker: int, vector: Floats) -> None:
        """Add a load to a broker. A negative load takes it away."""
        if self.counted[broker]:
            self.distances[broker] += vector

    def worth_of_moves(self, vectors: Floats, source: int) -> Floats:
        """(N, B) the change of the cost if a replica of `vectors` goes from `source` to each broker."""
        scaled = vectors * self.scale
        away = scaled @ self.distances[source]
        own = (vectors * scaled).sum(axis=1)
        sides = self.counted[:, 0] + self.counted[source].astype(float)
        worth: Floats = 2 * (scaled @ self.distances.T) + own[:, None] * sides - 2 * away[:, None]
        return worth

    def worth_of_move(self, vector: Floats, source: int) -> Floats:
        """(B,) the value of `worth_of_moves` for one replica."""
        scaled = vector * self.scale
        own, away = vector.dot(scaled), self.distances[source].dot(scaled)
        sides = self.counted[:, 0] + self.counts_once[source]
        worth: Floats = 2 * self.distances.dot(scaled) + (own * sides - 2 * away)
        return worth
