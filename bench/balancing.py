"""Balance (docs/balance.md): a plan for 200 brokers with 200,000 partitions, and four brokers under load.

    python bench/balancing.py [--rate BYTES/S] [--window SECONDS]

Prints how long the plan takes, how far each coefficient of variation falls, and what is copied beside the sum of what
brokers have above the means; then by how much the coefficients of leaders' bytes in and of replication bytes in fall on
four brokers, as processes, while producers and consumers run. Apache Kafka has nothing of the kind beside which it
could stand.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("", "wire", "log", "raft")]

import numpy as np  # noqa: E402

from pykbroker.balance.goals import violations  # noqa: E402
from pykbroker.balance.load_model import broker_loads, variation  # noqa: E402
from pykbroker.balance.optimiser import optimise  # noqa: E402
from pykbroker.balance.seen import LoadResource  # noqa: E402
from tests.balance.clusters import cluster  # noqa: E402
from tests.cli.balanced_cluster import prove, variation_of  # noqa: E402

BROKERS, PARTITIONS = 200, 200_000


def large_plan() -> None:
    load = cluster(BROKERS, PARTITIONS, racks=10)
    begin, spent = time.monotonic(), time.process_time()
    proposal = optimise(load)
    seconds, spent = time.monotonic() - begin, time.process_time() - spent
    before, after = broker_loads(load, load.replicas), broker_loads(load, proposal.replicas)
    disks = before[:, LoadResource.DISK]
    above = np.maximum(disks - disks.mean(), 0).sum()
    print(f"{BROKERS} brokers, {PARTITIONS:,} partitions: {seconds:.1f} s, {spent:.1f} s of CPU")
    print(f"  hard goals broken: {len(violations(load, proposal.replicas))}")
    print(f"  bytes moved: {proposal.bytes_moved / above:.2f} times the sum above the means")
    first, last = variation(before, load), variation(after, load)
    for each in LoadResource:
        print(
            f"  {each.name.lower()}: {first[each]:.3f} to {last[each]:.3f}, falls by {1 - last[each] / first[each]:.1%}"
        )


def four_brokers(rate: float, window_seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        proof = prove(Path(folder), rate, window_seconds)
    print(f"four brokers, {rate / 1e6:g} MB/s: {proof.acknowledged:,} records, {proof.read:,} read")
    print(f"  errors: {len(proof.errors)} {'; '.join(proof.errors[:3])}")
    for name, rates in (("leader bytes in", proof.leader_in), ("replication bytes in", proof.replication_in)):
        first, last = map(variation_of, rates)
        print(f"  {name}: {first:.3f} to {last:.3f}, falls by {1 - last / first:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=20e6)
    parser.add_argument("--window", type=float, default=20.0)
    options = parser.parse_args()
    large_plan()
    four_brokers(options.rate, options.window)


if __name__ == "__main__":
    main()
