"""The gauges of a controller, computed from its image."""

from __future__ import annotations

from pykbroker.controller import controller_metrics
from pykbroker.metrics.registry import Metrics
from tests.controller.test_brokers import beat, make
from tests.controller.world import Pure


def test_gauges_tell_of_brokers_and_partitions() -> None:
    pure = Pure()
    metrics = Metrics()
    is_active = False
    controller_metrics.register(metrics, lambda: pure.state.image, is_active=lambda: is_active)

    def gauge(name: str) -> float:
        return metrics.snapshot()[f"kafka.controller:type=KafkaController,name={name}"]

    make(pure, [0, 1], [1, 0])
    make(pure, [2], name="single")
    assert (gauge("GlobalTopicCount"), gauge("GlobalPartitionCount")) == (2, 3)
    assert (gauge("ActiveBrokerCount"), gauge("FencedBrokerCount")) == (3, 0)
    assert (gauge("OfflinePartitionsCount"), gauge("PreferredReplicaImbalanceCount")) == (0, 0)
    assert gauge("BrokerRegistrationState,broker=2") == 30
    assert gauge("ActiveControllerCount") == 0

    is_active = True
    beat(pure, 2, want_fence=True)
    beat(pure, 0, want_fence=True)
    assert gauge("ActiveControllerCount") == 1
    assert (gauge("ActiveBrokerCount"), gauge("FencedBrokerCount")) == (1, 2)
    # One partition has lost its one replica, and broker 1 leads another instead of broker 0.
    assert (gauge("OfflinePartitionsCount"), gauge("PreferredReplicaImbalanceCount")) == (1, 2)
    assert (gauge("BrokerRegistrationState,broker=0"), gauge("BrokerRegistrationState,broker=1")) == (10, 30)

    beat(pure, 1, want_shut_down=True)
    assert gauge("ControlledShutdownBrokerCount") == 1
