"""The connection of a fetcher to its leader."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykbroker.net.client import ConnectionSetup
from pykbroker.replica.fetching import leader_end_point
from pykbroker.replica.fetching.follower_requests import FetchSettings
from pykbroker.replica.fetching.leader_end_point import FetcherWorld, LeaderEndPoint
from pykbroker.replica.quota import ReplicationQuota, WindowedRate
from pykbroker_wire.messages.fetch import FetchRequest
from pykbroker_wire.messages.list_offsets import ListOffsetsRequest
from tests.coordinator.fakes import World, as_runtime


class Connection:
    """A connection that remembers what was sent."""

    made: list[Connection]

    def __init__(self, runtime: object, host: str, port: int, name: str, setup: object, **others: object) -> None:
        self.host, self.port, self.name = host, port, name
        self.sent: list[tuple[object, int, int]] = []
        self.pauses_ended = 0
        self.is_closed = False
        Connection.made.append(self)

    def send(self, request: object, timeout_ms: int, *, least_version: int) -> asyncio.Future[Any]:
        self.sent.append((request, timeout_ms, least_version))
        return WORLD.loop.create_future()

    def end_pause(self) -> None:
        self.pauses_ended += 1

    def close(self) -> None:
        self.is_closed = True


WORLD = World()


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[str, int]]:
    Connection.made = []
    monkeypatch.setattr(leader_end_point, "BrokerConnection", Connection)
    return {}


@pytest.fixture
def end_point(addresses: dict[int, tuple[str, int]]) -> LeaderEndPoint:
    settings = FetchSettings(500, 1, 100, 1000, 1.0)
    quota = ReplicationQuota(WindowedRate(WORLD.loop.time, 11, 1), lambda: 1 << 60)
    world = FetcherWorld(
        as_runtime(WORLD), 1, settings, 30_000, 65_536, ConnectionSetup(), addresses.get, int, print, quota
    )
    return LeaderEndPoint(world, 2, 0)


def test_without_an_address_nothing_is_sent(end_point: LeaderEndPoint) -> None:
    assert end_point.send(FetchRequest()) is None
    assert end_point.address == ("", -1)
    end_point.end_pause()
    end_point.close()


def test_requests_share_a_connection_and_have_the_versions_that_a_follower_needs(
    end_point: LeaderEndPoint, addresses: dict[int, tuple[str, int]]
) -> None:
    addresses[2] = ("host", 9092)
    fetch, list_offsets = FetchRequest(), ListOffsetsRequest()
    assert end_point.send(fetch) is not None
    assert end_point.send(list_offsets) is not None
    (connection,) = Connection.made
    assert connection.name == "broker-1-fetcher-0"
    assert connection.sent == [(fetch, 30_000, 13), (list_offsets, 30_000, 4)]
    assert end_point.address == ("host", 9092)
    assert end_point.requests.count == 2


def test_another_address_ends_the_connection(end_point: LeaderEndPoint, addresses: dict[int, tuple[str, int]]) -> None:
    addresses[2] = ("host", 9092)
    end_point.send(FetchRequest())
    addresses[2] = ("elsewhere", 9092)
    end_point.send(FetchRequest())
    old, new = Connection.made
    assert old.is_closed
    assert not new.is_closed
    assert (new.host, len(new.sent)) == ("elsewhere", 1)
    del addresses[2]
    assert end_point.send(FetchRequest()) is None
    assert new.is_closed
