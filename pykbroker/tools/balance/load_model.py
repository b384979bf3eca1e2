"""The load of a cluster as arrays: the costs of its partitions, the places of their replicas, the limits of its
brokers.

Brokers are numbered 0 to B-1 and partitions 0 to P-1; the caller that made the model has their ids and names. Rates are
bytes per second, sizes bytes, CPU a share of one core. Not responsible for the use of the model (optimiser.py) nor for
the rules of a placement (goals.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pykbroker.tools.balance.seen import LoadResource

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int32]
Flags: TypeAlias = NDArray[np.bool_]

#: In `ClusterLoad.replicas`: this partition has no further replica.
NO_BROKER = -1


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """Shapes: B brokers, P partitions, F the largest number of replicas, R `len(LoadResource)`."""

    #: (B,) the number of the broker's rack; without a rack, a number of its own
    racks: Ints
    #: (B, R) the most that a broker may have; infinity without a limit
    capacity: Floats
    #: (B,) the most replicas that a broker may have
    most_replicas: Ints
    #: (B,) the broker is in the cluster; a plan can name only such brokers
    alive: Flags
    #: (B,) the broker may get replicas and leadership, because it is alive and does not leave
    may_take: Flags
    #: (B,) the broker leaves the cluster, so that all its replicas have to move
    leaving: Flags
    #: (P, F) brokers in the order of preference; the first is the leader; NO_BROKER after the last broker
    replicas: Ints
    #: (P,) replicas of the partition may move
    may_move: Flags
    #: (P,) another replica of the partition may become the preferred leader
    may_reorder: Flags
    #: (P,) bytes that producers write
    bytes_in: Floats
    #: (P,) bytes that consumers read, without followers
    bytes_out: Floats
    #: (P,) bytes of one replica on its disk
    size: Floats
    #: (P,) shares of one core: of the leader, and of each follower
    leader_cpu: Floats
    follower_cpu: Floats

    @property
    def replica_counts(self) -> Ints:
        """(P,) the number of replicas of each partition."""
        counts: Ints = np.count_nonzero(self.replicas != NO_BROKER, axis=1).astype(np.int32)
        return counts

    def leading(self) -> Floats:
        """(P, R) the load of each partition on its leader."""
        followers = self.replica_counts - 1
        out = self.bytes_out + self.bytes_in * followers
        nothing, one = np.zeros_like(self.size), np.ones_like(self.size)
        return np.stack([self.bytes_in, nothing, out, one, self.size, self.leader_cpu], axis=1)

    def following(self) -> Floats:
        """(P, R) the load of each partition on each of its followers."""
        nothing = np.zeros_like(self.size)
        return np.stack([nothing, self.bytes_in, nothing, nothing, self.size, self.follower_cpu], axis=1)


def names_gone(load: ClusterLoad, replicas: Ints) -> Flags:
    """(P,) True where a replica is on a broker that is down."""
    gone: Flags = np.any((replicas != NO_BROKER) & ~load.alive[replicas], axis=1)
    return gone


def new_replicas(before: Ints, after: Ints) -> Ints:
    """(P,) the number of replicas of a partition that have to be copied, because their broker had no replica of it."""
    copied = np.zeros(len(after), np.int32)
    for place in range(after.shape[1]):
        here = after[:, place]
        copied += (here != NO_BROKER) & ~np.any(before == here[:, None], axis=1)
    return copied


def broker_loads(load: ClusterLoad, replicas: Ints) -> Floats:
    """(B, R) the load of each broker with these replicas."""
    brokers = len(load.racks)
    totals = np.zeros((brokers, len(LoadResource)))
    for place in range(replicas.shape[1]):
        here = replicas[:, place]
        there = here != NO_BROKER
        vectors = (load.leading() if place == 0 else load.following())[there]
        for resource in LoadResource:
            totals[:, resource] += np.bincount(here[there], weights=vectors[:, resource], minlength=brokers)
    return totals


def variation(totals: Floats, load: ClusterLoad) -> Floats:
    """(R,) the coefficient of variation (standard deviation over mean) among the brokers that may take load."""
    taking = totals[load.may_take]
    means = taking.mean(axis=0)
    spread: Floats = np.divide(taking.std(axis=0), means, out=np.zeros(len(LoadResource)), where=means > 0)
    return spread
