"""Balance (docs/balance.md): a plan for 200 brokers with 200,000 partitions, and four brokers under load.

Both compare the cluster before and after balancing: the coefficients of variation of the load of its brokers.

* The large plan is for a computed load (testkit/balance/clusters.py): how long it takes, which hard goals it
  breaks, and how much it copies compared with the load that brokers have above the means.
* The four brokers are processes with 40 partitions of two replicas. Their rates are measured before and after `balance
  plan` and `balance run`, while producers and a consumer run (testkit/balance/balanced_cluster.py).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.measurements import Figure, Found, Kind, Measurement
from bench.servers import Server
from bench.sides import Sides
from pykbroker.tools.balance.seen import LoadResource

BROKERS, PARTITIONS, RACKS = 200, 200_000, 10
RATE = 20e6
WINDOW_SECONDS = 10.0
SIDES = Sides("as it was", "balanced")
#: The factor for a coefficient that falls by 60 %.
_TARGET = 2.5
_RATES = ("leader bytes in", "replication bytes in")


class _Clusters:
    """The measurements make their clusters themselves."""

    def start(self) -> None:
        pass

    def delete_topics(self) -> None:
        pass

    def stop(self) -> None:
        pass


def _made(side: type[Server]) -> _Clusters:
    return _Clusters()


KIND = Kind("balance", _made, lambda clusters, seconds: None, alone=True)


def _named(resource: LoadResource) -> str:
    return resource.name.lower().replace("_", " ")


def large_plan(clusters: _Clusters, seconds: float) -> dict[str, float]:
    import numpy as np

    from pykbroker.tools.balance.goals import violations
    from pykbroker.tools.balance.load_model import broker_loads, variation
    from pykbroker.tools.balance.optimiser import optimise
    from testkit.balance.clusters import cluster

    load = cluster(BROKERS, PARTITIONS, racks=RACKS)
    begin, cpu = time.monotonic(), time.process_time()
    proposal = optimise(load)
    took, cpu = time.monotonic() - begin, time.process_time() - cpu
    before, after = broker_loads(load, load.replicas), broker_loads(load, proposal.replicas)
    disks = before[:, LoadResource.DISK]
    above = float(np.maximum(disks - disks.mean(), 0).sum())
    first, last = variation(before, load), variation(after, load)
    return {
        "time": took,
        "CPU, s": cpu,
        "hard goals broken": len(violations(load, proposal.replicas)),
        "bytes moved, times the sum above the means": proposal.bytes_moved / above,
        **{_named(each): float(last[each]) for each in LoadResource},
        **{SIDES.others(_named(each)): float(first[each]) for each in LoadResource},
    }


def four_brokers(clusters: _Clusters, seconds: float) -> dict[str, float]:
    from testkit.balance.balanced_cluster import prove, variation_of

    with tempfile.TemporaryDirectory(prefix="pykbroker-bench-") as folder:
        proof = prove(Path(folder), RATE, WINDOW_SECONDS)
    found: dict[str, float] = {
        "errors": len(proof.errors),
        "records lost, or read twice": abs(proof.acknowledged - proof.read),
        "records": proof.acknowledged,
    }
    for name, (before, after) in zip(_RATES, (proof.leader_in, proof.replication_in), strict=True):
        found |= {SIDES.others(name): variation_of(before), name: variation_of(after)}
    return found


def _evened(name: str) -> Figure:
    return Figure(name, "", more_is_better=False, target=_TARGET)


def _limited(name: str, unit: str, at_most: float) -> Figure:
    return Figure(name, unit, more_is_better=False, at_most=at_most)


def _measurement(title: str, measure: Callable[[_Clusters, float], Found], *figures: Figure) -> Measurement:
    return Measurement(title, measure, figures, fresh=True, most_rounds=1, kind=KIND, sides=SIDES)


BALANCING = [
    _measurement(
        f"balance, a plan for {BROKERS} brokers and {PARTITIONS:,} partitions",
        large_plan,
        *(_evened(_named(each)) for each in LoadResource),
        _limited("time", "s", 120),
        _limited("hard goals broken", "", 0),
        _limited("bytes moved, times the sum above the means", "", 1.5),
    ),
    _measurement(
        f"balance, four brokers, RF 2, 40 partitions, {RATE / 1e6:g} MB/s",
        four_brokers,
        *(_evened(name) for name in _RATES),
        _limited("errors", "", 0),
        _limited("records lost, or read twice", "", 0),
    ),
]
