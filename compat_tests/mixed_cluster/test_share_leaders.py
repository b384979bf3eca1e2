"""The leader of share partitions moves between Apache Kafka 4.4 and pykbroker, and is killed and restarted on both.

The cluster is at the levels of 4.3. test_share_coordinator.py has the same with Apache Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.members import Cluster
from compat_tests.mixed_cluster.share_leader_moves import leaders_move
from compat_tests.mixed_cluster.test_share_coordinator import (
    KAFKA,
    OFFSETS,
    OURS,
    SETTINGS,
    SHARES,
    brokers_of_both,
)
from testkit.oracle.kafka import NEWEST, kafka_libs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def newest(new_cluster: NewCluster) -> Iterator[Cluster]:
    kafka_libs(NEWEST)
    with brokers_of_both(new_cluster, settings=SETTINGS, kafka=NEWEST) as made:
        yield made


def test_leaders_of_the_newest_release(newest: Cluster) -> None:
    leaders_move(newest, "newest", (OFFSETS, SHARES), moves=(OURS, KAFKA), ends=(KAFKA,))
