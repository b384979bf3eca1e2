"""Balance evens out the load of four brokers while producers and consumers run without an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.balance.balanced_cluster import prove

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    ("rate", "window_seconds", "linger_ms"),
    [
        # A batch waits for more records, because each is a request to the leader, of the follower and of the reader.
        (3e5, 2.0, 400),
        pytest.param(20e6, 60.0, 20, marks=pytest.mark.long(amount="20 MB/s, 40 partitions, minutes")),
    ],
)
def test_the_spread_of_the_load_falls_under_load(
    tmp_path: Path, rate: float, window_seconds: float, linger_ms: int
) -> None:
    proof = prove(tmp_path, rate, window_seconds, drains=True, linger_ms=linger_ms)
    assert not proof.errors
    assert proof.read == proof.acknowledged > 0
    leader_in, replication_in = proof.falls()
    assert leader_in >= 0.6, proof
    assert replication_in >= 0.6, proof
    # It had some of 80 replicas before.
    assert proof.drained == 0
    assert proof.filled is not None
    assert proof.filled >= 10
