"""kafka-cluster unregister-controller for a controller that has left the quorum (KIP-1312): ours beside that of Apache
Kafka 4.4.0, which is the first that has it."""

from __future__ import annotations

import re

import pytest

from compat_tests.our_tools.both import CLASSES, ours
from compat_tests.tool_server import run_shared
from pykbroker.testing import Cluster
from testkit.clients import wait_until
from testkit.oracle.kafka import NEWEST, kafka_libs


def leave(cluster: Cluster, number: int) -> None:
    """Let a controller leave the quorum, and stop it. Its registration stays."""
    at = ["--bootstrap-server", cluster.bootstrap_servers]
    table = ours("metadata-quorum", [*at, "describe", "--replication"]).out
    found = re.search(rf"^{number}\s+(\S+)\s", table, re.M)
    assert found is not None, table
    words = ["remove-controller", "--controller-id", str(number), "--controller-directory-id", found[1]]
    removed = ours("metadata-quorum", [*at, *words])
    assert removed.status == 0, removed
    cluster.stop(number)


@pytest.mark.slow
def test_a_controller_that_has_left_is_unregistered() -> None:
    kafka_libs(NEWEST)
    said = []
    with Cluster(nodes=4, release="4.4") as cluster:

        def registered() -> set[int]:
            return set(cluster._image().controllers)

        at = ["--bootstrap-server", cluster.bootstrap_servers]
        wait_until(lambda: registered() == {1, 2, 3, 4}, "all controllers are registered")
        others = [number for number in cluster.nodes if number != cluster.controller()]
        for number, is_ours in zip(others, (True, False), strict=False):
            leave(cluster, number)
            assert number in registered(), "the end of a controller does not unregister it"
            words = ["unregister-controller", *at, "--id", str(number)]
            if is_ours:
                done = ours("cluster", words)
                said.append((done.status, done.out.replace(str(number), "‹id›")))
                again, theirs = (
                    ours("cluster", words),
                    run_shared(CLASSES["cluster"], words, version=NEWEST, check=False),
                )
                assert again.status == theirs.status == 1
                refusal = f"Controller ID {number} is not currently registered."
                assert refusal in again.err
                assert refusal in theirs.err
            else:
                finished = run_shared(CLASSES["cluster"], words, version=NEWEST)
                said.append((finished.status, finished.out.replace(str(number), "‹id›")))
            wait_until(lambda gone=number: gone not in registered(), "the controller is gone")  # type: ignore[misc]
    assert said == [(0, "Controller ‹id› is no longer registered.\n")] * 2
