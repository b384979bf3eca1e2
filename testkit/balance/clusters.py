"""Artificial clusters: brokers, partitions and loads from a seed."""

from __future__ import annotations

import numpy as np

from pykbroker.tools.balance.load_model import ClusterLoad
from pykbroker.tools.balance.seen import LoadResource


def cluster(
    brokers: int = 12,
    partitions: int = 600,
    *,
    replicas: int = 3,
    racks: int = 4,
    seed: int = 1,
    skew: float = 0.5,
) -> ClusterLoad:
    """Return a rack-aware and uneven cluster: a few brokers have many replicas, a few partitions most of the bytes.
    `skew`: the deviation of the logarithm of the brokers' shares of replicas."""
    random = np.random.default_rng(seed)
    rack = (np.arange(brokers) % racks).astype(np.int32)
    share = random.lognormal(0, skew, brokers)
    # The `replicas` best of a draw for each partition, one from each rack.
    draw = np.log(share)[None, :] + random.gumbel(size=(partitions, brokers))
    placed = np.empty((partitions, replicas), np.int32)
    for place in range(replicas):
        placed[:, place] = draw.argmax(axis=1)
        draw[rack[None, :] == rack[placed[:, place]][:, None]] = -np.inf
    bytes_in = random.lognormal(10, 1, partitions)
    return ClusterLoad(
        racks=rack,
        capacity=np.full((brokers, len(LoadResource)), np.inf),
        most_replicas=np.full(brokers, np.iinfo(np.int32).max, np.int32),
        alive=np.ones(brokers, bool),
        may_take=np.ones(brokers, bool),
        leaving=np.zeros(brokers, bool),
        replicas=placed,
        may_move=np.ones(partitions, bool),
        may_reorder=np.ones(partitions, bool),
        bytes_in=bytes_in,
        bytes_out=2 * bytes_in * random.lognormal(0, 0.5, partitions),
        size=bytes_in * 3600 * random.lognormal(0, 0.5, partitions),
        leader_cpu=bytes_in * 1e-8,
        follower_cpu=bytes_in * 3e-9,
    )
