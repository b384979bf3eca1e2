"""Which listeners have places that clients cannot take, for any listeners and any limit of open files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.config.listeners import EndPoint, Listeners
from pykbroker.node.ports import places_of
from pykbroker.runtime.descriptor_budget import divide


@st.composite
def listeners(draw: st.DrawFn) -> Listeners:
    brokers = draw(st.lists(st.sampled_from(["A", "B", "C", "D"]), unique=True))
    controllers = draw(st.lists(st.sampled_from(["X", "Y"]), unique=True, min_size=0 if brokers else 1))
    points = {name: EndPoint(name, "localhost", 0, "PLAINTEXT") for name in (*brokers, *controllers)}
    broker, controller = (tuple(points[name] for name in names) for names in (brokers, controllers))
    between = draw(st.sampled_from(brokers)) if brokers else "PLAINTEXT"
    protocols = dict.fromkeys(points, "PLAINTEXT")
    return Listeners(
        broker + controller, broker, controller, broker, controller, tuple(controllers), between, protocols
    )


@given(listeners(), st.integers(0, 70_000))
def test_clients_never_shut_out_the_listener_between_brokers_nor_those_of_controllers(
    found: Listeners, limit: int
) -> None:
    total = divide(limit).connections
    places = places_of(total, found)
    controllers = [point.listener_name for point in found.controller]
    brokers = [point.listener_name for point in found.broker]
    # Where clients and brokers have one listener, nothing tells them apart.
    nodes = controllers + ([found.inter_broker_name] if len(brokers) > 1 else [])
    for name in brokers:
        while name not in nodes and places.take(name):
            pass
    for name in nodes:
        for _ in range(min(256, total // 4 // len(nodes))):
            assert places.take(name), name
    # All of them have no more than there are descriptors for.
    for name in nodes:
        while places.take(name):
            pass
    assert sum(places.taken(name) for name in brokers + controllers) <= total
