"""The order in which a broker above its capacities gives leadership and replicas to other brokers.

Not responsible for the brokers that get them, nor for when the broker has given enough (optimiser.py).
"""

from __future__ import annotations

import numpy as np

from pykbroker.tools.balance.costed_placement import Placement
from pykbroker.tools.balance.load_model import Flags, Floats, Ints


def leaders_that_relieve(place: Placement, broker: int) -> list[tuple[int, int]]:
    """Return partitions whose leadership the broker should lose or get, and the place of its replica in their lists.
    Partitions that relieve the broker most come first."""
    over = place.over()[broker]
    if not over.any():
        return []
    partitions, spots = np.nonzero((place.replicas == broker) & place.load.may_reorder[:, None])
    change = place.leading[partitions] - place.following[partitions]
    relief = _relief(place, broker, np.where((spots == 0)[:, None], change, -change))
    return _ordered(partitions.astype(np.int32), spots.astype(np.int32), relief, relief > 0)


def replicas_that_relieve(
    place: Placement, broker: int, replicas: tuple[Ints, Ints], price: Floats
) -> list[tuple[int, int]]:
    """Return these replicas of the broker, as partitions and places in their lists: first those that relieve most in
    relation to their `price`, (P,)."""
    partitions, spots = replicas
    relief = _relief(place, broker, place.vectors(partitions, spots))
    return _ordered(partitions, spots, relief / price[partitions], relief > 0)


def smallest_replicas(place: Placement, replicas: tuple[Ints, Ints]) -> list[tuple[int, int]]:
    """Return the replicas of a broker that has too many of them but is within its capacities: first the smallest."""
    partitions, spots = replicas
    return _ordered(partitions, spots, -place.load.size[partitions], np.ones(len(partitions), bool))


def _relief(place: Placement, broker: int, vectors: Floats) -> Floats:
    """(N,) the part of the excess that each of these loads removes, as a share of the capacity, or as a share of the
    broker's load if the capacity is 0."""
    over = place.over()[broker]
    limit = place.load.capacity[broker]
    scale = np.where(limit > 0, limit, np.maximum(place.totals[broker], 1e-300))
    relief: Floats = (np.where(over > 0, np.minimum(vectors, over), 0.0) / scale).sum(axis=1)
    return relief


def _ordered(partitions: Ints, spots: Ints, worth: Floats, wanted: Flags) -> list[tuple[int, int]]:
    chosen = np.flatnonzero(wanted)
    order = chosen[np.argsort(-worth[chosen], kind="stable")]
    return list(zip(partitions[order].tolist(), spots[order].tolist(), strict=True))
