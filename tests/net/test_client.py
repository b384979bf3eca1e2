"""A connection to another node: each request is answered, or fails in time, and leaves nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from pykbroker.net.client import BrokerConnection, ClientConnection, ConnectionSetup, Disconnected
from pykbroker.net.connection_state import ConnectionState, End
from pykbroker.net.versions import UnsupportedVersion, in_version
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from pykbroker_wire.messages.broker_registration import BrokerRegistrationRequest, Feature
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pykbroker_wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataResponse
from pykbroker_wire.messages.vote import RequestPartitionData, RequestTopicData, VoteRequest
from pykbroker_wire.primitives import EncodeError
from pykbroker_worlds.simulated.world import SimRuntime, SimWorld
from tests.net.fakes import FakeTransport
from tests.net.peer import Peer

PORT = 9092
HEARTBEAT, METADATA = int(ApiKey.BROKER_HEARTBEAT), int(ApiKey.METADATA)
T = TypeVar("T")


class Node:
    """A client, a peer that listens, and a virtual clock."""

    def __init__(self, world: SimWorld, peer: Peer) -> None:
        self.world = world
        self.peer = peer
        self.listening = world.network.listen(world.runtime("server", MemoryDisk()), peer, PORT)
        self.listening.serving = True
        self.runtime: SimRuntime = world.runtime("client", MemoryDisk())
        self.client = BrokerConnection(self.runtime, "localhost", PORT, "me", ConnectionSetup(2_000, 8_000))

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def run(self, play: Callable[[], Awaitable[T]]) -> T:
        async def whole() -> T:
            return await play()

        return self.world.loop.run_until_complete(whole())

    def ask(self, request: Any = None, timeout_ms: int = 1_000, **how: int) -> Any:
        """Send one request, and wait until everything rests."""

        async def one() -> Any:
            try:
                return await self.client.send(request or MetadataRequest(), timeout_ms, **how)
            finally:
                await asyncio.sleep(0.1)

        return self.run(one)


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def node(peer: Peer) -> Iterator[Node]:
    world = SimWorld(1)
    node = Node(world, peer)
    yield node
    node.client.close()
    world.loop.run_until_complete(asyncio.sleep(0.1))
    world.loop.close()


def test_one_connection_serves_many_requests(node: Node) -> None:
    assert isinstance(node.ask(), MetadataResponse)
    assert isinstance(node.ask(), MetadataResponse)
    assert len(node.peer.connections) == 1
    assert node.peer.asked_versions == [APIS[ApiKey.API_VERSIONS].max_version]


def test_requests_wait_for_a_connection_and_share_it(node: Node) -> None:
    async def play() -> list[Any]:
        sent = [node.client.send(request, 1_000) for request in (MetadataRequest(), DescribeClusterRequest())]
        return list(await asyncio.gather(*sent))

    first, second = node.run(play)
    assert isinstance(first, MetadataResponse)
    assert isinstance(second, DescribeClusterResponse)
    assert len(node.peer.connections) == 1


# -- versions ---------------------------------------------------------------------------------------------------------


def test_the_newest_version_that_both_sides_know_is_used(node: Node, peer: Peer) -> None:
    """Formerly a node of another release closed the connection, because requests used our newest version."""
    peer.ranges[METADATA] = (4, 9)
    node.ask()
    peer.ranges[METADATA] = (4, 99)
    node.client.close()
    node.client = BrokerConnection(node.runtime, "localhost", PORT, "me")
    node.ask()
    assert peer.requests == [(METADATA, 9), (METADATA, APIS[METADATA].max_version)]


@pytest.mark.parametrize(("names_versions", "second"), [(True, 2), (False, 0)])
def test_a_peer_that_does_not_know_our_api_versions_is_asked_in_its_own(
    node: Node, peer: Peer, names_versions: bool, second: int
) -> None:
    peer.ranges[ApiKey.API_VERSIONS] = (0, 2)
    peer.names_versions = names_versions
    assert isinstance(node.ask(), MetadataResponse)
    assert peer.asked_versions == [APIS[ApiKey.API_VERSIONS].max_version, second]
    assert len(peer.connections) == 1


@pytest.mark.parametrize("served", [(9, 9), (0, -1)])
def test_a_peer_whose_versions_cannot_be_learned_is_left(node: Node, peer: Peer, served: tuple[int, int]) -> None:
    peer.ranges[ApiKey.API_VERSIONS] = served
    with pytest.raises(Disconnected, match="refused ApiVersions"):
        node.ask()
    assert peer.connections[0].lost
    assert peer.requests == []


def test_a_request_that_the_peer_lacks_fails_alone(node: Node, peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    """Formerly it ended the connection, and with it every other request."""
    del peer.ranges[HEARTBEAT]
    peer.held.add(METADATA)

    async def play() -> Any:
        other = node.client.send(MetadataRequest(), 10_000)
        await asyncio.sleep(0.1)
        for _ in range(3):
            with pytest.raises(UnsupportedVersion, match=rf"localhost:{PORT}: the peer does not serve BrokerHeartbeat"):
                await node.client.send(BrokerHeartbeatRequest(), 1_000)
        peer.release()
        return await other

    with caplog.at_level(logging.WARNING):
        assert isinstance(node.run(play), MetadataResponse)
    assert peer.requests == [(METADATA, APIS[METADATA].max_version)]
    assert len(caplog.records) == 1
    assert not peer.connections[0].lost


@pytest.mark.parametrize(
    ("served", "how"),
    [((20, 21), {}), ((0, 3), {"least_version": 4}), ((0, 3), {"version": 4}), ((2, 9), {"version": 1})],
)
def test_no_version_fits(node: Node, peer: Peer, served: tuple[int, int], how: dict[str, int]) -> None:
    peer.ranges[METADATA] = served
    with pytest.raises(UnsupportedVersion, match=f"the peer serves Metadata in versions {served[0]} to {served[1]}"):
        node.ask(**how)
    assert peer.requests == []


def test_the_caller_may_choose_the_version(node: Node, peer: Peer) -> None:
    node.ask(version=5)
    node.ask(least_version=5)
    assert peer.requests == [(METADATA, 5), (METADATA, APIS[METADATA].max_version)]


def test_a_field_that_the_older_version_lacks_fails_clearly(node: Node, peer: Peer) -> None:
    """As in Apache Kafka: a field that is set and may not be left out makes a request impossible in that version."""
    peer.ranges[ApiKey.VOTE] = (0, 1)
    vote = VoteRequest(topics=[RequestTopicData(topic_name="t", partitions=[RequestPartitionData(pre_vote=True)])])
    with pytest.raises(UnsupportedVersion, match=r"pre_vote is set, but version 1 does not have it"):
        node.ask(vote)
    vote.topics[0].partitions[0].pre_vote = False
    node.ask(vote)
    assert peer.requests == [(ApiKey.VOTE, 1)]


def test_a_request_that_has_no_form_at_all_is_our_mistake(node: Node) -> None:
    with pytest.raises(EncodeError):
        node.ask(DescribeClusterRequest(endpoint_type=1_000))
    assert isinstance(node.ask(), MetadataResponse)


def test_a_fetch_of_an_older_version_names_its_replica(node: Node, peer: Peer) -> None:
    """Before version 15 the replica id is in another field."""
    peer.ranges[ApiKey.FETCH] = (4, 12)
    fetch = FetchRequest(
        replica_state=ReplicaState(replica_id=3), topics=[FetchTopic(topic="t", partitions=[FetchPartition()])]
    )
    node.ask(fetch)
    _, version, seen = peer.seen[-1]
    assert (version, seen.replica_id) == (12, 3)
    assert (fetch.replica_id, fetch.replica_state.replica_id) == (-1, 3)


def test_a_registration_of_an_older_version_leaves_out_features_from_0() -> None:
    features = [Feature(name="a", min_supported_version=0), Feature(name="b", min_supported_version=1)]
    registration = BrokerRegistrationRequest(features=features)
    older: Any = in_version(registration, 3)
    assert [feature.name for feature in older.features] == ["b"]
    assert in_version(registration, 4) is registration
    assert registration.features == features


# -- timeouts ---------------------------------------------------------------------------------------------------------


def test_a_request_that_times_out_ends_alone(node: Node, peer: Peer) -> None:
    """Formerly, a slow forwarded request and a heartbeat that timed out after it were both lost with the connection."""
    peer.held.add(METADATA)

    async def play() -> tuple[Any, Any]:
        slow = node.client.send(MetadataRequest(), 30_000)
        await asyncio.sleep(0.1)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await node.client.send(BrokerHeartbeatRequest(), 4_500)
        assert not slow.done()
        peer.release()
        after = await node.client.send(DescribeClusterRequest(), 1_000)
        return await slow, after

    slow, after = node.run(play)
    assert isinstance(slow, MetadataResponse)
    assert isinstance(after, DescribeClusterResponse)
    assert [connection.lost for connection in peer.connections] == [False]


def test_a_request_that_is_cancelled_ends_alone(node: Node, peer: Peer) -> None:
    peer.held.add(METADATA)

    async def play() -> Any:
        gone = node.client.send(MetadataRequest(), 30_000)
        await asyncio.sleep(0.1)
        gone.cancel()
        after = node.client.send(DescribeClusterRequest(), 1_000)
        await asyncio.sleep(0.1)
        peer.release()
        return await after

    assert isinstance(node.run(play), DescribeClusterResponse)
    assert len(peer.connections) == 1


def test_a_peer_that_vanished_is_left_with_the_first_timeout(node: Node, peer: Peer) -> None:
    """Formerly, requests went over the dead connection of a vanished peer, for as long as TCP tries."""
    node.ask()
    peer.is_silent = True
    started = node.now

    async def play() -> float:
        with pytest.raises(TimeoutError):
            await node.client.send(BrokerHeartbeatRequest(), 1_000)
        ended = node.now
        await asyncio.sleep(0.1)
        return ended

    assert node.run(play) - started == pytest.approx(1.0, abs=0.01)
    assert peer.connections[0].lost
    peer.is_silent = False
    assert isinstance(node.ask(), MetadataResponse)
    assert len(peer.connections) == 2


def test_a_peer_that_vanishes_later_is_found_out_by_its_silence(node: Node, peer: Peer) -> None:
    """A response came after the request was sent, and then nothing: the first timeout is no proof yet."""
    peer.held.add(HEARTBEAT)

    async def play() -> tuple[float, float]:
        await node.client.send(MetadataRequest(), 1_000)
        started = node.now
        peer.held = {METADATA}
        answered = node.client.send(MetadataRequest(), 30_000)
        owed = node.client.send(BrokerHeartbeatRequest(), 5_000)
        await asyncio.sleep(4)
        peer.held = {HEARTBEAT}
        peer.connections[0].go_on()
        await answered
        heard = node.now
        with pytest.raises(TimeoutError):
            await owed
        assert node.now - started == pytest.approx(5, abs=0.1)
        await asyncio.sleep(heard + 4.9 - node.now)
        assert not peer.connections[0].lost
        await asyncio.sleep(0.2)
        return heard, node.now

    node.run(play)
    assert peer.connections[0].lost


def test_while_bytes_arrive_the_peer_is_there(node: Node, peer: Peer) -> None:
    """A large response over a slow line takes longer than its request may; those after it still come."""
    peer.held.add(METADATA)

    async def play() -> Any:
        slow = node.client.send(MetadataRequest(), 1_000)
        behind = node.client.send(DescribeClusterRequest(), 20_000)
        await asyncio.sleep(0.5)
        answer = MetadataResponse(cluster_id="x" * 1_000).encode_bytes(13)
        whole = (len(answer) + 5).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\0" + answer
        connection = peer.connections[0]
        connection._waiting.popleft()
        for start in range(0, len(whole), 100):
            connection.transport.write(whole[start : start + 100])
            await asyncio.sleep(0.6)
        with pytest.raises(TimeoutError):
            await slow
        connection.go_on()
        return await behind

    assert isinstance(node.run(play), DescribeClusterResponse)
    assert [connection.lost for connection in peer.connections] == [False]


# -- the end of a connection ------------------------------------------------------------------------------------------


def test_nobody_listens(node: Node) -> None:
    node.listening.close()
    with pytest.raises(Disconnected, match="cannot connect"):
        node.ask()


def test_a_peer_that_accepts_and_says_nothing_is_left(node: Node, peer: Peer) -> None:
    peer.is_silent = True
    with pytest.raises(Disconnected, match="not ready within 2000 ms"):
        node.ask(timeout_ms=60_000)
    assert node.now == pytest.approx(2.1, abs=0.1)
    assert peer.connections[0].lost


def test_a_short_request_does_not_end_a_connection_that_is_being_set_up(node: Node, peer: Peer) -> None:
    """Formerly a heartbeat that may wait 0.7 s ended every connection to a node that was slow to answer ApiVersions."""
    peer.held.add(int(ApiKey.API_VERSIONS))

    async def play() -> Any:
        with pytest.raises(TimeoutError):
            await node.client.send(BrokerHeartbeatRequest(), 700)
        patient = node.client.send(MetadataRequest(), 10_000)
        await asyncio.sleep(1)
        peer.release()
        return await patient

    assert isinstance(node.run(play), MetadataResponse)
    assert [connection.lost for connection in peer.connections] == [False]


def test_closed_while_it_connects(node: Node) -> None:
    """Formerly the connection was still made, and stayed open because nothing closed it."""

    async def close() -> None:
        future = node.client.send(MetadataRequest(), 1_000)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        node.client.close()
        with pytest.raises(Disconnected, match="this client is closed"):
            await future
        await asyncio.sleep(0.1)
        with pytest.raises(Disconnected, match="this client is closed"):
            await node.client.send(MetadataRequest(), 1_000)

    node.run(close)
    assert all(connection.lost for connection in node.peer.connections)


def test_requests_in_flight_fail_with_the_connection(node: Node, peer: Peer) -> None:
    peer.held.add(METADATA)

    async def play() -> None:
        sent = [node.client.send(MetadataRequest(), 10_000) for _ in range(3)]
        await asyncio.sleep(0.1)
        peer.connections[0].transport.close()
        for one in sent:
            with pytest.raises(Disconnected, match="the peer closed it"):
                await one

    node.run(play)


def test_it_waits_before_it_connects_again(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """50 ms, doubled with each failure, up to 500 ms, as in Apache Kafka's nodes. In the pause requests fail at
    once."""
    node.listening.close()
    pauses: list[int] = []

    async def play() -> None:
        failed_at = None
        while len(pauses) < 7:
            before = node.now
            with pytest.raises(Disconnected):
                await node.client.send(MetadataRequest(), 1_000)
            if node.now > before:
                # It was tried, because a refusal takes a while to come.
                if failed_at is not None:
                    pauses.append(round((before - failed_at) * 1000))
                failed_at = node.now
            await asyncio.sleep(0.001)

    with caplog.at_level(logging.INFO):
        node.run(play)
    assert pauses == [pytest.approx(expected, abs=2) for expected in (50, 100, 200, 400, 500, 500, 500)]
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_what_was_ready_begins_with_a_short_wait_again(node: Node, peer: Peer) -> None:
    for _ in range(6):
        node.ask()
        peer.connections[-1].transport.close()
        node.run(lambda: asyncio.sleep(0.06))
    assert len(peer.connections) == 6


class Alone:
    """A connection without a BrokerConnection around it, its transport and its end."""

    def __init__(self, node: Node) -> None:
        self.ends: list[End] = []
        self.connection = ClientConnection(node.runtime.loop, "peer:1", "me", lambda: None)
        self.connection.when_ended(self.ends.append)
        self.transport = FakeTransport()

    def feed(self, data: bytes) -> None:
        while data:
            space = self.connection.get_buffer(-1)
            count = min(len(space), len(data))
            space[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]


def test_the_states_of_a_connection_that_this_node_makes(node: Node) -> None:
    alone = Alone(node)
    states = [alone.connection.state]
    alone.connection.connection_made(alone.transport)
    states.append(alone.connection.state)
    _, answer = Peer().api_versions(4)
    body = answer.encode_bytes(4)
    alone.feed((len(body) + 4).to_bytes(4, "big") + bytes(4) + body)
    states.append(alone.connection.state)
    alone.connection.connection_lost(ConnectionResetError("reset"))
    states.append(alone.connection.state)
    assert states == [
        ConnectionState.CONNECTING,
        ConnectionState.NEGOTIATING,
        ConnectionState.READY,
        ConnectionState.CLOSED,
    ]
    assert alone.ends == [End("reset", by_peer=True)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ((3).to_bytes(4, "big") + b"abc", "an answer of 3 bytes"),
        ((-1).to_bytes(4, "big", signed=True), "an answer of -1 bytes"),
        ((2**30).to_bytes(4, "big"), "an answer of 1073741824 bytes"),
        ((4).to_bytes(4, "big") + (7).to_bytes(4, "big"), "correlation id 7, expected is 0"),
        ((5).to_bytes(4, "big") + bytes(5), "an answer cannot be used"),
    ],
)
def test_what_is_no_answer_ends_the_connection(node: Node, data: bytes, reason: str) -> None:
    alone = Alone(node)
    alone.connection.connection_made(alone.transport)
    alone.feed(data)
    assert [(reason in end.reason, end.by_peer) for end in alone.ends] == [(True, False)]
    assert alone.transport.aborted


def test_an_answer_that_was_not_asked_for_ends_the_connection(node: Node, peer: Peer) -> None:
    node.ask()

    async def play() -> None:
        peer.connections[0].transport.write((8).to_bytes(4, "big") + (2).to_bytes(4, "big") + bytes(4))
        await asyncio.sleep(0.1)

    node.run(play)
    assert peer.connections[0].lost


def test_records_of_an_answer_are_a_view_of_the_frame(node: Node, peer: Peer) -> None:
    """Formerly the frame was copied twice, and the records once more."""
    records = bytes(range(256)) * 1_000

    def answer(request: Any, version: int) -> Any:
        partition = PartitionData(records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[partition])])

    peer.answer = answer
    found = node.ask(FetchRequest()).responses[0].partitions[0].records
    assert isinstance(found, memoryview)
    assert found == records
    assert memoryview(found.obj).nbytes < len(records) + 200
