"""Balance evens out the load of four brokers while producers and consumers run without an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.balance.balanced_cluster import prove

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    ("rate", "window_seconds"),
    [(1e6, 2.0), pytest.param(20e6, 60.0, marks=pytest.mark.long(amount="20 MB/s, 40 partitions, minutes"))],
)
def test_the_spread_of_the_load_falls_under_load(tmp_path: Path, rate: float, window_seconds: float) -> None:
    proof = prove(tmp_path, rate, window_seconds, drains=True)
    assert not proof.errors
    assert proof.read == proof.acknowledged > 0
    leader_in, replication_in = proof.falls()
    assert leader_in >= 0.6, proof
    assert replication_in >= 0.6, proof
    # It had some of 80 replicas before.
    assert proof.drained == 0
    assert proof.filled is not None
    assert proof.filled >= 10
