"""Leader hints of KIP-951: where a client should go instead."""

from __future__ import annotations

from typing import NamedTuple

from pykbroker.serving.services import BrokerServices


class ReachableBroker(NamedTuple):
    """A broker as a client of one listener reaches it."""

    node_id: int
    host: str
    port: int
    rack: str | None


def node_on_listener(services: BrokerServices, broker_id: int, listener_name: str) -> ReachableBroker | None:
    """The endpoint of an unfenced broker on a listener, or None."""
    broker = services.metadata.image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return None
    endpoint = broker.endpoints.get(listener_name)
    if endpoint is None:
        return None
    return ReachableBroker(broker_id, endpoint.host, endpoint.port, broker.rack)


def leader_hint(
    services: BrokerServices, listener_name: str, topic: str, index: int
) -> tuple[int, int, ReachableBroker | None]:
    """Leader id, leader epoch (-1, -1 when unknown) and its node, None when it cannot be reached."""
    image = services.metadata.image.topics.partition(topic, index)
    if image is None:
        return -1, -1, None
    return image.leader, image.leader_epoch, node_on_listener(services, image.leader, listener_name)
