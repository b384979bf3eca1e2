"""Whatever clients do at their listeners, the listener between brokers is served as if they were not there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.net.admission import UNBOUNDED, AdmissionLimits
from pykbroker.net.connection import Connection
from pykbroker.net.connection_home import Limits
from pykbroker.net.listener import Listener
from pykbroker.runtime import Runtime
from tests.net.fakes import FakeLoop, FakeRuntime, FakeTransport, connect, make_listener

BETWEEN = "BETWEEN"
CLIENTS = ("PLAINTEXT", "SECOND", "THIRD")
ADDRESSES = ("10.0.0.1", "10.0.0.2")

counts = st.sampled_from([1, 2, 3, 5, UNBOUNDED])


def shared_limits() -> st.SearchStrategy[AdmissionLimits]:
    """Bounds that no single listener has for itself, and bounds of clients' listeners."""
    return st.builds(
        AdmissionLimits,
        connections=counts,
        listener_connections=st.dictionaries(st.sampled_from(CLIENTS), counts),
        per_address=counts,
        address_overrides=st.dictionaries(st.sampled_from(ADDRESSES), counts),
        rate=counts,
        listener_rates=st.dictionaries(st.sampled_from(CLIENTS), counts),
        burst_seconds=st.just(1.0),
        waiting=st.integers(1, 3),
        protected=st.just(BETWEEN),
    )


@dataclass
class Server:
    """Listeners that share one admission."""

    limits: AdmissionLimits
    opened: dict[str, list[tuple[Connection, FakeTransport]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = make_listener(lambda connection, frame: [])
        self.loop = cast(FakeLoop, first.loop)
        first.admission.change(self.limits)
        self.admission = first.admission
        self.listeners = {"PLAINTEXT": first}
        runtime = cast(Runtime, FakeRuntime(self.loop))
        for name in (*CLIENTS[1:], BETWEEN):
            other = self.listeners[name] = Listener(runtime, name, Limits(), admission=first.admission)
            other.answer_with(first.dispatch)

    def arrive(self, name: str, host: str = ADDRESSES[0]) -> str:
        """Return "served", "waiting" or "refused"."""
        connection, transport = connect(self.listeners[name], host)
        if transport.closed:
            connection.connection_lost(None)
            return "refused"
        self.opened.setdefault(name, []).append((connection, transport))
        return "served" if transport.reading else "waiting"

    def end(self, name: str, index: int) -> None:
        if opened := self.opened.get(name):
            opened.pop(index % len(opened))[0].connection_lost(None)

    def lose_closed(self) -> None:
        """Lose the closed transports, as the loop does next."""
        for opened in self.opened.values():
            for pair in list(opened):
                if pair[1].closed:
                    opened.remove(pair)
                    pair[0].connection_lost(None)

    def count(self, *names: str) -> int:
        return sum(len(self.opened.get(name, ())) for name in names)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.sampled_from(CLIENTS), st.sampled_from(ADDRESSES)),
        st.tuples(st.just("end"), st.sampled_from(CLIENTS), st.integers(0, 9)),
        st.tuples(st.just("pass"), st.sampled_from([0.1, 1.0, 10.0]), st.none()),
        st.tuples(st.just("lost"), st.none(), st.none()),
    ),
    max_size=40,
)


@pytest.mark.slow
@given(shared_limits(), steps, st.integers(1, 4))
def test_clients_never_shut_out_the_listener_between_brokers(
    limits: AdmissionLimits, taken: list[tuple[str, object, object]], brokers: int
) -> None:
    server = Server(limits)
    for what, one, two in taken:
        if what == "arrive":
            server.arrive(str(one), str(two))
        elif what == "end":
            server.end(str(one), cast(int, two))
        elif what == "pass":
            server.loop.pass_seconds(cast(float, one))
        else:
            server.lose_closed()
    allowed = limits.address_overrides.get(ADDRESSES[0], limits.per_address)
    for number in range(min(brokers, allowed)):
        assert server.arrive(BETWEEN) == "served", f"broker {number}"
    # Beyond that, the address of the brokers itself has too many.
    if brokers > allowed:
        assert server.arrive(BETWEEN) == "refused"
    # A client has given back the place that a broker took.
    server.lose_closed()
    if server.count(*CLIENTS):
        assert len(server.admission) <= max(limits.connections, min(brokers, allowed))


@given(shared_limits(), st.lists(st.sampled_from(CLIENTS), max_size=30), st.sampled_from(CLIENTS))
def test_clients_that_wait_at_one_listener_take_no_place_in_the_queue_of_another(
    limits: AdmissionLimits, arrivals: list[str], name: str
) -> None:
    server = Server(limits)
    waiting = 0
    for arrived in arrivals:
        waiting += server.arrive(arrived) == "waiting" and arrived == name
    if waiting < limits.waiting:
        address = limits.address_overrides.get(ADDRESSES[1], limits.per_address)
        assert address == 0 or server.arrive(name, ADDRESSES[1]) != "refused"


def test_each_broker_takes_the_place_of_another_client() -> None:
    """Formerly, two brokers that came before the first client was gone took the place of one client together."""
    server = Server(AdmissionLimits(connections=2, protected=BETWEEN))
    for _ in range(2):
        assert server.arrive("PLAINTEXT") == "served"
    for _ in range(2):
        assert server.arrive(BETWEEN) == "served"
    server.lose_closed()
    assert (server.count("PLAINTEXT"), server.count(BETWEEN)) == (0, 2)


def test_those_that_wait_are_served_in_the_order_in_which_they_came() -> None:
    server = Server(AdmissionLimits(connections=1))
    assert server.arrive("PLAINTEXT") == "served"
    assert [server.arrive(name) for name in ("THIRD", "SECOND", "THIRD")] == ["waiting"] * 3
    order = []
    for ending in ("PLAINTEXT", "THIRD", "SECOND"):
        server.end(ending, 0)
        order.append([name for name, opened in server.opened.items() if any(pair[1].reading for pair in opened)])
    assert order == [["THIRD"], ["SECOND"], ["THIRD"]]
