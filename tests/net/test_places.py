"""Connections of clients take no place of a listener between nodes or of a controller; no place is given twice."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.net.admission import Admission, AdmissionLimits
from pykbroker.net.connection import Connection
from pykbroker.net.connection_home import Limits
from pykbroker.net.listener import Listener
from pykbroker.net.places import Places, own_places
from pykbroker.runtime import Runtime
from pykbroker.runtime.descriptor_budget import divide
from tests.net.fakes import FakeRuntime, FakeTransport

NODES = ("BETWEEN", "CONTROLLER", "CONTROLLER_TLS")
CLIENTS = ("PLAINTEXT", "SSL", "SASL_SSL")

node_names = st.lists(st.sampled_from(NODES), unique=True)
client_names = st.lists(st.sampled_from(CLIENTS), unique=True)
limits_of_files = st.one_of(st.integers(0, 600), st.integers(600, 100_000))
arrivals = st.lists(st.tuples(st.sampled_from(("arrive", "end")), st.integers(0, 5), st.integers(1, 300)), max_size=30)


@pytest.mark.slow
@given(limits_of_files, node_names, client_names, arrivals)
def test_clients_never_shut_out_listeners_between_nodes_or_of_controllers(
    limit: int, nodes: list[str], clients: list[str], taken: list[tuple[str, int, int]]
) -> None:
    total = divide(limit).connections
    own = own_places(total, nodes=nodes, clients=clients)
    places = Places(total, own)
    names = nodes + clients
    for what, index, times in taken:
        if not names:
            break
        name = names[index % len(names)]
        for _ in range(times):
            if what == "arrive":
                places.take(name)
            elif places.taken(name):
                places.give_back(name)
    for name in clients:
        while places.taken(name) < total and places.take(name):
            pass
    assert sum(map(places.taken, names)) <= total
    for name in nodes:
        assert own[name] >= min(8, total // 12)
        for _ in range(own[name] - places.taken(name)):
            assert places.take(name), name
    assert sum(map(places.taken, names)) <= total


@pytest.mark.slow
@given(limits_of_files, st.sampled_from(CLIENTS))
def test_clients_get_all_that_is_not_kept_for_nodes(limit: int, name: str) -> None:
    total = divide(limit).connections
    places = Places(total, own := own_places(total, nodes=NODES, clients=[name]))
    for _ in range(total - sum(own[node] for node in NODES)):
        assert places.take(name)
    assert not places.take(name)
    if total >= 4:
        places.give_back(name)
        assert places.take(name)
    assert not places.take(name)


class Server:
    """Two listeners that share two places for clients and one for nodes."""

    def __init__(self, limits: AdmissionLimits | None = None) -> None:
        runtime = cast(Runtime, FakeRuntime())
        places = Places(3, {"BETWEEN": 1})
        admission = Admission(runtime.loop, limits or AdmissionLimits())
        self.listeners = {
            name: Listener(runtime, name, Limits(), admission=admission, places=places)
            for name in ("PLAINTEXT", "BETWEEN")
        }
        for listener in self.listeners.values():
            listener.answer_with(lambda connection, frame: [])

    def arrive(self, name: str = "PLAINTEXT") -> tuple[Connection, FakeTransport] | None:
        """Accept a connection as a listening socket does; return None if it is closed at once."""
        protocol = self.listeners[name].accept()
        if protocol is None:
            return None
        transport = FakeTransport()
        protocol.connection_made(cast(asyncio.BaseTransport, transport))
        return cast(Connection, protocol), transport


def test_a_listener_closes_what_it_has_no_place_for_and_says_so_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    first, second = server.arrive(), server.arrive()
    assert first is not None
    assert second is not None
    for _ in range(100):
        assert server.arrive() is None
    (line,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert line == (
        "Listener PLAINTEXT: a new connection is closed, because 2 are open and the limit of open files (ulimit -n) "
        "allows no more"
    )
    assert server.arrive("BETWEEN") is not None
    first[0].connection_lost(None)
    assert server.arrive() is not None
    assert server.arrive() is None


def test_connections_that_wait_or_are_refused_have_a_place_until_they_are_gone() -> None:
    server = Server(AdmissionLimits(connections=1, waiting=1))
    made = [server.arrive() for _ in range(2)]
    assert server.arrive() is None
    waiting = made[1]
    assert waiting is not None
    waiting[0].connection_lost(None)
    # Now Apache Kafka's bound refuses it, and the descriptor is open until the transport has gone.
    again = server.arrive()
    assert again is not None
    assert server.arrive() is None


def test_a_connection_that_was_reset_before_it_was_made_gives_its_place_back() -> None:
    server = Server()
    assert server.arrive() is not None
    for _ in range(3):
        protocol = server.listeners["PLAINTEXT"].accept()
        assert protocol is not None
        protocol.connection_lost(ConnectionResetError())


def test_a_connection_that_is_refused_by_its_address_gives_its_place_back() -> None:
    server = Server(AdmissionLimits(per_address=1))
    assert server.arrive() is not None
    for _ in range(10):
        refused = server.arrive()
        assert refused is not None
        assert refused[1].closed
        assert server.arrive() is None
        refused[0].connection_lost(None)
