"""Listeners have places that clients of others cannot take, for any listeners and any limit of open files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.config.listeners import EndPoint, ListenerConfig
from pykbroker.node.ports import connections_of, places_of
from pykbroker.runtime.descriptor_budget import divide


@st.composite
def listeners(draw: st.DrawFn) -> ListenerConfig:
    brokers = draw(st.lists(st.sampled_from(["A", "B", "C", "D"]), unique=True))
    controllers = draw(st.lists(st.sampled_from(["X", "Y"]), unique=True, min_size=0 if brokers else 1))
    points = {name: EndPoint(name, "localhost", 0, "PLAINTEXT") for name in (*brokers, *controllers)}
    broker, controller = (tuple(points[name] for name in names) for names in (brokers, controllers))
    between = draw(st.sampled_from(brokers)) if brokers else "PLAINTEXT"
    protocols = dict.fromkeys(points, "PLAINTEXT")
    return ListenerConfig(
        broker + controller, broker, controller, broker, controller, tuple(controllers), between, protocols
    )


@pytest.mark.slow
@given(listeners(), st.integers(0, 70_000))
def test_clients_never_shut_out_the_listener_between_brokers_nor_those_of_controllers(
    found: ListenerConfig, limit: int
) -> None:
    total = divide(limit).connections
    parts = connections_of(total, found)
    # Each half has an event loop, and they share no count.
    assert sum(parts) == total
    for part, points in zip(parts, (found.broker, found.controller), strict=True):
        assert part >= total // 4 or not points
        places = places_of(part, points, found)
        names = [point.listener_name for point in points]
        # If clients and brokers share one listener, they cannot be distinguished.
        nodes = [
            name for name in names if points is found.controller or (len(names) > 1 and name == found.inter_broker_name)
        ]
        for name in names:
            while name not in nodes and places.take(name):
                pass
        for name in nodes:
            for _ in range(min(256, part // 4 // len(nodes))):
                assert places.take(name), name
        # All of them together have no more than there are descriptors.
        for name in nodes:
            while places.take(name):
                pass
        assert sum(places.taken(name) for name in names) <= part
