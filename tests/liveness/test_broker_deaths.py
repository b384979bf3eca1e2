"""A broker's process is gone before its session is over: the rule, and a machine of everything that may happen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from pykbroker.liveness.broker_deaths import (
    GRACE_MS,
    LEFT_MS,
    BrokerAlive,
    BrokerDeaths,
    BrokerGone,
    DeathEffect,
    ProbeEndpoints,
    Registration,
    TryEndpoint,
)
from pykbroker.liveness.peer_ends import RETURN_MS
from pykbroker.net.client import PeerAddress

A, B = ("one", 9092), ("two", 9093)


def registration(epoch: int = 5, *endpoints: PeerAddress, **changes: Any) -> Registration:
    fields: dict[str, Any] = {"is_fenced": False, "in_controlled_shutdown": False}
    return Registration(epoch, endpoints or (A, B), **(fields | changes))


def watched(*, armed: tuple[PeerAddress, ...] = (A, B), **changes: Any) -> BrokerDeaths:
    """An active controller with broker 7, of epoch 5, whose last heartbeat came over connection 1."""
    deaths = BrokerDeaths()
    assert deaths.metadata({7: registration(**changes)}) == [TryEndpoint(7, 5, A), TryEndpoint(7, 5, B)]
    for endpoint in (A, B):
        deaths.tried(7, 5, endpoint, accepts=endpoint in armed)
    deaths.activated(0)
    assert deaths.heartbeat(7, 5, 1) == []
    return deaths


def probe_after_the_end(deaths: BrokerDeaths, connection: int = 1) -> ProbeEndpoints:
    (probe,) = deaths.connection_ended(connection, by_peer=True, now_ms=0)
    assert isinstance(probe, ProbeEndpoints)
    return probe


def test_all_armed_endpoints_refuse() -> None:
    deaths = watched()
    probe = probe_after_the_end(deaths)
    assert probe.endpoints == (A, B)
    assert deaths.probed(7, probe.number, A, refuses=True) == []
    assert deaths.probed(7, probe.number, B, refuses=True) == [BrokerGone(7, 5, (A, B))]


def test_one_endpoint_does_not_refuse() -> None:
    deaths = watched()
    probe = probe_after_the_end(deaths)
    assert deaths.probed(7, probe.number, A, refuses=False) == []
    assert deaths.probed(7, probe.number, B, refuses=True) == []


def test_only_armed_endpoints_are_asked() -> None:
    deaths = watched(armed=(B,))
    probe = probe_after_the_end(deaths)
    assert probe.endpoints == (B,)
    assert deaths.probed(7, probe.number, B, refuses=True) == [BrokerGone(7, 5, (B,))]


def test_nothing_is_armed() -> None:
    assert watched(armed=()).connection_ended(1, by_peer=True, now_ms=0) == []


def test_this_node_ended_the_connection() -> None:
    deaths = watched()
    assert deaths.connection_ended(1, by_peer=False, now_ms=0) == []


def test_another_connection_ends() -> None:
    deaths = watched()
    assert deaths.heartbeat(7, 5, 2) == []
    assert deaths.connection_ended(1, by_peer=True, now_ms=0) == []
    assert deaths.connection_ended(2, by_peer=True, now_ms=0)


def test_a_heartbeat_takes_a_probe_back() -> None:
    deaths = watched()
    probe = probe_after_the_end(deaths)
    assert deaths.heartbeat(7, 5, 2) == []
    assert deaths.probed(7, probe.number, A, refuses=True) == []
    assert deaths.probed(7, probe.number, B, refuses=True) == []
    # Its answers do not count for the next probe either.
    following = probe_after_the_end(deaths, 2)
    assert deaths.probed(7, probe.number, A, refuses=True) == []
    assert deaths.probed(7, following.number, B, refuses=True) == []


def test_a_controlled_shutdown_is_left_alone() -> None:
    deaths = watched()
    assert deaths.heartbeat(7, 5, 1, is_leaving=True) == []
    assert deaths.connection_ended(1, by_peer=True, now_ms=0) == []


def test_a_newer_epoch_begins_anew() -> None:
    deaths = watched()
    probe = probe_after_the_end(deaths)
    assert deaths.metadata({7: registration(9)}) == [TryEndpoint(7, 9, A), TryEndpoint(7, 9, B)]
    assert deaths.probed(7, probe.number, A, refuses=True) == []
    assert deaths.probed(7, probe.number, B, refuses=True) == []
    # Neither the former incarnation's endpoints count, nor its later messages.
    deaths.tried(7, 5, A, accepts=True)
    assert deaths.heartbeat(7, 5, 3) == []
    assert deaths.connection_ended(3, by_peer=True, now_ms=0) == []
    assert deaths.heartbeat(7, 9, 4) == []
    assert deaths.connection_ended(4, by_peer=True, now_ms=0) == []


def test_a_living_broker_is_disarmed_until_it_registers_anew() -> None:
    deaths = watched()
    probe = probe_after_the_end(deaths)
    for endpoint in (A, B):
        deaths.probed(7, probe.number, endpoint, refuses=True)
    assert deaths.heartbeat(7, 5, 2) == [BrokerAlive(7, 5)]
    assert deaths.heartbeat(7, 5, 2) == []
    assert deaths.connection_ended(2, by_peer=True, now_ms=0) == []
    deaths.deactivated()
    deaths.activated(0)
    assert deaths.clock(GRACE_MS) == []
    deaths.metadata({7: registration(9)})
    for endpoint in (A, B):
        deaths.tried(7, 9, endpoint, accepts=True)
    deaths.heartbeat(7, 9, 3)
    assert deaths.connection_ended(3, by_peer=True, now_ms=0)


def test_a_new_controller_asks_after_a_while() -> None:
    deaths = BrokerDeaths()
    deaths.metadata({7: registration(5, A), 8: registration(6, B), 9: registration(7, A, is_fenced=True)})
    for broker_id, endpoint in ((7, A), (8, B), (9, A)):
        deaths.tried(broker_id, broker_id - 2, endpoint, accepts=True)
    deaths.activated(1_000)
    assert deaths.heartbeat(8, 6, None) == []
    assert deaths.deadline_ms == 1_000 + GRACE_MS
    assert deaths.clock(1_000 + GRACE_MS - 1) == []
    (probe,) = deaths.clock(1_000 + GRACE_MS)
    assert isinstance(probe, ProbeEndpoints)
    assert probe.broker_id == 7
    assert deaths.deadline_ms is None
    assert deaths.probed(7, probe.number, A, refuses=True) == [BrokerGone(7, 5, (A,))]


def test_a_standby_fences_nothing() -> None:
    deaths = watched()
    probe = probe_after_the_end(deaths)
    deaths.deactivated()
    assert deaths.probed(7, probe.number, A, refuses=True) == []
    assert deaths.probed(7, probe.number, B, refuses=True) == []
    assert deaths.heartbeat(7, 5, 2) == []
    assert deaths.connection_ended(2, by_peer=True, now_ms=0) == []


def test_each_registration_is_tried_once() -> None:
    deaths = BrokerDeaths()
    first = TryEndpoint(7, 5, A)
    assert deaths.metadata({7: registration(5, A, is_fenced=True)}) == [first]
    assert deaths.metadata({7: registration(5, A)}) == []
    assert deaths.is_trying(first)
    assert deaths.metadata({7: registration(6, A)}) == [TryEndpoint(7, 6, A)]
    assert not deaths.is_trying(first)
    deaths.tried(7, 6, A, accepts=False)
    assert not deaths.is_trying(TryEndpoint(7, 6, A))
    assert deaths.metadata({7: registration(6, A)}) == []


def test_a_heartbeat_may_come_before_the_metadata() -> None:
    deaths = BrokerDeaths()
    deaths.activated(0)
    assert deaths.heartbeat(7, 5, 1) == []
    assert deaths.metadata({}) == []
    assert deaths.heartbeat(7, 5, 1) == []
    assert deaths.metadata({7: registration(5, A)}) == [TryEndpoint(7, 5, A)]
    deaths.tried(7, 5, A, accepts=True)
    assert deaths.connection_ended(1, by_peer=True, now_ms=0)


def test_a_broker_that_is_not_back_is_fenced_whatever_its_endpoints_say() -> None:
    deaths = watched()
    probe = probe_after_the_end(deaths)
    assert deaths.probed(7, probe.number, A, refuses=False) == []
    assert deaths.deadline_ms == RETURN_MS
    assert deaths.clock(RETURN_MS - 1) == []
    assert deaths.clock(RETURN_MS) == [BrokerGone(7, 5, ())]
    assert deaths.heartbeat(7, 5, 2) == [BrokerAlive(7, 5)]


def test_a_broker_that_is_back_is_not_fenced() -> None:
    deaths = watched()
    probe_after_the_end(deaths)
    assert deaths.heartbeat(7, 5, 2) == []
    assert deaths.clock(RETURN_MS) == []


def test_a_new_registration_takes_the_end_back() -> None:
    deaths = watched()
    probe_after_the_end(deaths)
    deaths.metadata({7: registration(9)})
    assert deaths.clock(RETURN_MS) == []


def test_the_broker_of_the_former_leader_is_fenced_if_it_is_not_back() -> None:
    deaths = BrokerDeaths()
    deaths.metadata({7: registration(5), 8: registration(6)})
    deaths.leader_left(7, 900)
    deaths.activated(1_000)
    assert deaths.clock(1_000 + GRACE_MS) == [BrokerGone(7, 5, ())]
    deaths = BrokerDeaths()
    deaths.metadata({7: registration(5)})
    deaths.leader_left(7, 900)
    deaths.activated(1_000)
    deaths.heartbeat(7, 5, 1)
    assert deaths.clock(1_000 + GRACE_MS) == []


def test_a_former_leader_that_has_registered_again_is_not_fenced() -> None:
    """It led, was restarted, and serves again when the next controller dies and a third one takes over."""
    deaths = BrokerDeaths()
    deaths.metadata({7: registration(5)})
    deaths.leader_left(7, 900)
    deaths.metadata({7: registration(6)})
    deaths.activated(1_000)
    assert not [effect for effect in deaths.clock(1_000 + GRACE_MS) if isinstance(effect, BrokerGone)]


def test_a_leader_that_left_long_ago_is_not_fenced_for_it() -> None:
    deaths = BrokerDeaths()
    deaths.metadata({7: registration(5)})
    deaths.leader_left(7, 900)
    deaths.activated(900 + LEFT_MS)
    assert not [effect for effect in deaths.clock(900 + LEFT_MS + GRACE_MS) if isinstance(effect, BrokerGone)]


BROKERS = st.sampled_from((1, 2))


class Anything(RuleBasedStateMachine):
    """Events in any order, with probes answered or not. A model of the rule judges each effect."""

    tries: Bundle[TryEndpoint] = Bundle("tries")

    def __init__(self) -> None:
        super().__init__()
        self.deaths = BrokerDeaths()
        self.now_ms = 0
        self.epoch = 2
        self.image = {1: registration(1), 2: registration(2)}
        self.is_active = True
        self.connections = 0
        #: the newest heartbeat of each broker: its connection, negative for one that asks for a shutdown
        self.last: dict[int, int] = {}
        #: accepted since the registration, by broker epoch
        self.accepted: dict[int, set[PeerAddress]] = {1: {A, B}, 2: {A, B}}
        #: probes that a heartbeat, another probe or a new role took back, or one answer ended
        self.void: set[int] = set()
        self.open: dict[int, ProbeEndpoints] = {}
        self.refused: dict[int, set[PeerAddress]] = {}
        self.fenced: set[int] = set()
        self.disarmed: set[int] = set()
        self.silent_since: dict[int, int] = {}
        #: the time at which each broker ended the connection of its heartbeats
        self.ended: dict[int, int] = {}
        for effect in self.deaths.metadata(self.image):
            assert isinstance(effect, TryEndpoint)
            self.deaths.tried(effect.broker_id, effect.broker_epoch, effect.endpoint, accepts=True)
        self.deaths.activated(0)
        self.silent_since = {1: 0, 2: 0}

    def take_back(self, broker_id: int) -> None:
        self.void.update(number for number, probe in self.open.items() if probe.broker_id == broker_id)

    def see(self, effects: list[DeathEffect]) -> list[ProbeEndpoints]:
        found: list[ProbeEndpoints] = []
        for effect in effects:
            if isinstance(effect, ProbeEndpoints):
                epoch = self.image[effect.broker_id].broker_epoch
                assert self.is_active
                assert set(effect.endpoints) == self.accepted[epoch] != set()
                assert epoch not in self.fenced
                self.take_back(effect.broker_id)
                self.open[effect.number] = effect
                self.refused[effect.number] = set()
                found.append(effect)
            elif isinstance(effect, BrokerGone):
                assert effect.broker_epoch not in self.fenced
                self.fenced.add(effect.broker_epoch)
            elif isinstance(effect, BrokerAlive):
                assert effect.broker_epoch in self.fenced
                assert effect.broker_epoch not in self.disarmed
                self.disarmed.add(effect.broker_epoch)
        return found

    @precondition(lambda self: self.connections % 7 == 6)
    @rule(target=tries, broker_id=BROKERS, endpoints=st.sets(st.sampled_from((A, B)), min_size=1))
    def register(self, broker_id: int, endpoints: set[PeerAddress]) -> Any:
        self.epoch += 1
        self.take_back(broker_id)
        self.last.pop(broker_id, None)
        self.silent_since.pop(broker_id, None)
        self.ended.pop(broker_id, None)
        self.accepted[self.epoch] = set()
        self.image[broker_id] = registration(self.epoch, *sorted(endpoints))
        return self.tries_of(self.deaths.metadata(self.image))

    def tries_of(self, effects: list[DeathEffect]) -> Any:
        tries = [effect for effect in effects if isinstance(effect, TryEndpoint)]
        assert len(tries) == len(effects)
        # A bundle takes one value. The first endpoint is tried; the other one never answers or does not exist.
        return tries[0]

    @rule(attempt=consumes(tries), accepts=st.booleans())
    def tried(self, attempt: TryEndpoint, accepts: bool) -> None:
        self.deaths.tried(attempt.broker_id, attempt.broker_epoch, attempt.endpoint, accepts=accepts)
        if accepts and self.image[attempt.broker_id].broker_epoch == attempt.broker_epoch:
            self.accepted[attempt.broker_epoch].add(attempt.endpoint)

    @precondition(lambda self: not self.is_active or self.connections % 5 == 4)
    @rule()
    def change_role(self) -> None:
        self.is_active = not self.is_active
        self.void.update(self.open)
        self.last.clear()
        self.ended.clear()
        self.silent_since.clear()
        if self.is_active:
            self.deaths.activated(self.now_ms)
            self.silent_since = dict.fromkeys(self.image, self.now_ms)
        else:
            self.deaths.deactivated()

    @rule(broker_id=BROKERS, leaves=st.integers(0, 9))
    def heartbeat(self, broker_id: int, leaves: int) -> None:
        epoch = self.image[broker_id].broker_epoch
        self.connections += 1
        is_leaving = leaves == 9
        effects = self.deaths.heartbeat(broker_id, epoch, self.connections, is_leaving=is_leaving)
        assert not self.see(effects)
        if self.is_active:
            self.take_back(broker_id)
            self.silent_since.pop(broker_id, None)
            self.ended.pop(broker_id, None)
            self.last[broker_id] = -self.connections if is_leaving else self.connections
            assert (epoch in self.fenced) == (epoch in self.disarmed)
        else:
            assert not effects

    @precondition(lambda self: self.last)
    @rule(broker_id=BROKERS, by_peer=st.integers(0, 9))
    def end_connection(self, broker_id: int, by_peer: int) -> None:
        connection = self.last.pop(broker_id, 0)
        epoch = self.image[broker_id].broker_epoch
        found = []
        if connection:
            ended = self.deaths.connection_ended(abs(connection), by_peer=by_peer < 9, now_ms=self.now_ms)
            found = self.see(ended)
            if by_peer < 9 and connection > 0:
                self.ended[broker_id] = self.now_ms
        may_probe = by_peer < 9 and connection > 0 and epoch not in self.fenced and self.accepted[epoch] != set()
        assert len(found) == may_probe

    @rule(passed_ms=st.sampled_from((1, GRACE_MS)))
    def pass_time(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        effects = self.deaths.clock(self.now_ms)
        for effect in effects:
            if isinstance(effect, BrokerGone):
                assert effect.refused == ()
                assert self.ended.pop(effect.broker_id) <= self.now_ms - RETURN_MS
                self.take_back(effect.broker_id)
        for probe in self.see(effects):
            assert self.silent_since.pop(probe.broker_id) <= self.now_ms - GRACE_MS

    @precondition(lambda self: self.open)
    @rule(back=st.integers(1, 3), endpoint=st.sampled_from((A, B)), refuses=st.integers(0, 9))
    def answer(self, back: int, endpoint: PeerAddress, refuses: int) -> None:
        probe = list(self.open.values())[-min(back, len(self.open))]
        if endpoint not in probe.endpoints:
            return
        effects = self.deaths.probed(probe.broker_id, probe.number, endpoint, refuses=refuses < 9)
        is_open = probe.number not in self.void
        if refuses == 9:
            self.void.add(probe.number)
        elif is_open:
            self.refused[probe.number].add(endpoint)
        should_fence = is_open and refuses < 9 and self.refused[probe.number] == set(probe.endpoints)
        assert [type(effect) for effect in effects] == ([BrokerGone] if should_fence else [])
        if should_fence:
            self.void.add(probe.number)
        self.see(effects)

    @invariant()
    def a_standby_probes_nothing(self) -> None:
        if not self.is_active:
            assert self.deaths.deadline_ms is None


TestAnything = pytest.mark.slow(Anything.TestCase)
TestAnything.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
