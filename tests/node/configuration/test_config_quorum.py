# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""Keys of the quorum and of waiting: the requests that scripted peers get from a node, and when."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, TypeVar
from unittest import mock

import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile, load
from pykbroker.net.client import BrokerConnection
from pykbroker.node.shared import StartError
from pykbroker.quorum.channel import call_in_memory
from pykbroker.storage.format import format_directories
from pykbroker_raft import batches, rpc
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.ready import Destination
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import end_quorum_epoch, vote
from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest
from pykbroker_wire.messages.fetch import FetchRequest
from pykbroker_wire.messages.fetch_snapshot import FetchSnapshotRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_worlds.simulated.world import SimRuntime
from testkit.acting import acts
from testkit.nodes.sim import Play, Sim

T = TypeVar("T")
OBSERVER = {
    "process.roles": "broker",
    "listeners": "PLAINTEXT://localhost:9092",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.quorum.bootstrap.servers": "localhost:19999",
}
VOTER = {"controller.quorum.voters": "1@localhost:9093,2@localhost:19999", "controller.quorum.bootstrap.servers": ""}


class Scripted:
    """Replaces SocketPeers: records the requests, and lets `answer` answer them."""

    answer: Callable[[Any], Any] = staticmethod(lambda request: None)
    heard: list[tuple[float, Any]]

    def __init__(self, runtime: Any, client_id: str, setup: Any = None, watch: Any = None) -> None:
        self._loop = runtime.loop

    def send(self, destination: Destination, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        self.heard.append((self._loop.time(), request))
        future: asyncio.Future[Any] = self._loop.create_future()
        answer = type(self).answer(request)
        if isinstance(answer, asyncio.Future):
            return answer
        if isinstance(answer, Exception):
            self._loop.call_soon(future.set_exception, answer)
        elif answer is not None:
            self._loop.call_soon(future.set_result, answer)
        return future

    def close(self) -> None:
        pass


Heard = Callable[..., list[tuple[float, Any]]]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """Return the requests that the peers get, with the time, from a node with these keys that gives up after some
    seconds."""

    def listen(
        config: dict[str, str],
        answer: Callable[[Any], Any] = lambda request: None,
        seconds: int = 30,
        meanwhile: Callable[[Sim], Awaitable[None]] | None = None,
        knows_voters: bool = True,
    ) -> list[tuple[float, Any]]:
        found: list[tuple[float, Any]] = []
        peers = type("Peers", (Scripted,), {"heard": found, "answer": staticmethod(answer)})
        monkeypatch.setattr("pykbroker.node.shared.SocketPeers", peers)
        sim = Sim({**config, "server.max.startup.time.ms": str(seconds * 1000)})

        if not knows_voters:
            names = load({**development_profile("/data", 9092), **config})
            format_directories(sim.disk, names, "c", random.Random(1), now_ms=0, standalone=False)

        async def started(sim: Sim) -> None:
            raise AssertionError("started")

        other = None if meanwhile is None else sim.world.loop.create_task(_awaited(meanwhile(sim)))
        with pytest.raises(StartError, match="not up within"):
            sim.run(started)
        assert other is None or other.result() is None
        sim.close()
        return found

    return listen


async def _awaited(what: Awaitable[None]) -> None:
    await what


def gaps(heard: list[tuple[float, Any]]) -> list[int]:
    """Return the milliseconds between one and the next."""
    return [round((b - a) * 1000) for (a, _), (b, _) in pairwise(heard)]


@acts(broker=("controller.quorum.request.timeout.ms",))
def test_an_observer_that_hears_nothing_asks_again(heard: Heard) -> None:
    for key, expected in (({}, 2_000), ({"controller.quorum.request.timeout.ms": "5000"}, 5_000)):
        found = gaps(heard({**OBSERVER, **key}))
        assert len(found) > 3
        assert all(abs(gap - expected) < 50 for gap in found), found


@acts(broker=("controller.quorum.retry.backoff.ms",))
def test_an_observer_that_is_refused_waits_a_moment(heard: Heard) -> None:
    for key, expected in (({}, 20), ({"controller.quorum.retry.backoff.ms": "700"}, 700)):
        found = gaps(heard({**OBSERVER, **key}, lambda request: ConnectionRefusedError("nobody"), 5))
        assert len(found) > 3
        assert all(abs(gap - expected) < 10 for gap in found), found


def votes(heard: list[tuple[float, Any]]) -> list[float]:
    return [at for at, request in heard if isinstance(request, vote.VoteRequest)]


@acts(broker=("controller.quorum.election.timeout.ms",))
def test_a_voter_without_a_leader_asks_for_an_election(heard: Heard) -> None:
    for key, expected in (({}, 1), ({"controller.quorum.election.timeout.ms": "10000"}, 10)):
        assert expected <= votes(heard({**VOTER, **key}))[0] < 2 * expected + 0.1


def the_other_leads(request: Any) -> Any:
    """Node 2 reports that it leads when asked for a vote; it never answers a fetch."""
    if not isinstance(request, vote.VoteRequest):
        return None
    partition = vote.ResponsePartitionData(leader_id=2, leader_epoch=7, vote_granted=False)
    topic = vote.ResponseTopicData(topic_name="__cluster_metadata", partitions=[partition])
    endpoint = vote.NodeEndpoint(node_id=2, host="localhost", port=19999)
    return vote.VoteResponse(topics=[topic], node_endpoints=[endpoint])


@acts(broker=("controller.quorum.election.backoff.max.ms",))
def test_a_voter_that_the_last_leader_did_not_prefer_waits(heard: Heard) -> None:
    resigned_at: list[float] = []

    async def resign(sim: Sim) -> None:
        await asyncio.sleep(5)
        partition = end_quorum_epoch.RequestPartitionData(
            leader_id=2, leader_epoch=7, preferred_candidates=[end_quorum_epoch.ReplicaInfo(candidate_id=9)]
        )
        topic = end_quorum_epoch.RequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
        peer = BrokerConnection(sim.world.runtime("peer", sim.disk), "localhost", 9093, "peer")
        resigned_at.append(sim.world.loop.time())
        await peer.send(end_quorum_epoch.EndQuorumEpochRequest(topics=[topic]), 3_000)

    config = {**VOTER, "controller.quorum.fetch.timeout.ms": "25000"}
    for key, expected in (({}, 1), ({"controller.quorum.election.backoff.max.ms": "8000"}, 8)):
        asked = votes(heard({**config, **key}, the_other_leads, meanwhile=resign))
        assert expected <= min(at for at in asked if at > resigned_at[-1]) - resigned_at[-1] < expected + 0.2


@acts(broker=("controller.quorum.fetch.timeout.ms",))
def test_a_follower_whose_fetches_are_not_answered_gives_its_leader_up(heard: Heard) -> None:
    for key, expected in (({}, 2), ({"controller.quorum.fetch.timeout.ms": "8000"}, 8)):
        first, second = votes(heard({**VOTER, **key}, the_other_leads))[:2]
        assert expected <= second - first < expected + 0.1


def the_leader_offers(records: bytes = b"", snapshot: OffsetAndEpoch | None = None) -> Callable[[Any], Any]:
    """Node 2 leads in epoch 7 and answers an empty log with these records, or names a snapshot; it answers nothing
    else."""

    def answer(request: Any) -> Any:
        if not isinstance(request, FetchRequest):
            return None
        offset = request.topics[0].partitions[0].fetch_offset
        endpoint = Endpoint("CONTROLLER", "localhost", 19999)
        response = rpc.fetch_response(17, ErrorCode.NONE, 2, 7, endpoint, 0, 0, snapshot=snapshot)
        if records and offset == 0:
            response.responses[0].partitions[0].records = records
            return response
        if snapshot is not None:
            return response
        later: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.5, later.set_result, response)
        return later

    return answer


@acts(broker=("controller.quorum.fetch.max.bytes",))
def test_how_much_of_the_log_a_fetch_asks_for(heard: Heard) -> None:
    for key, expected in (({}, 1048576), ({"controller.quorum.fetch.max.bytes": "7777"}, 7777)):
        asked = [request for _, request in heard({**OBSERVER, **key}) if isinstance(request, FetchRequest)]
        assert {request.max_bytes for request in asked} == {expected}


@acts(broker=("controller.quorum.fetch.snapshot.max.bytes",))
def test_how_much_of_a_snapshot_a_request_asks_for(heard: Heard) -> None:
    leader = the_leader_offers(snapshot=OffsetAndEpoch(10, 6))
    for key, expected in (({}, 1048576), ({"controller.quorum.fetch.snapshot.max.bytes": "7777"}, 7777)):
        found = heard({**OBSERVER, **key}, leader, 10)
        asked = [request for _, request in found if isinstance(request, FetchSnapshotRequest)]
        assert {request.max_bytes for request in asked} == {expected}


@acts(broker=("controller.quorum.auto.join.enable",))
def test_a_controller_that_is_no_voter_joins(heard: Heard) -> None:
    voter = VoterNode(ReplicaKey(2, b"2" * 16), (Endpoint("CONTROLLER", "localhost", 19999),))
    control = [batches.leader_change(2, [2], [2]), batches.kraft_version(1), batches.voters(VoterSet.of([voter]))]
    leader = the_leader_offers(records=batches.control_batch(control, 0, 7, 0))
    outside = {"controller.quorum.bootstrap.servers": "localhost:19999"}
    for key, expected in (({}, False), ({"controller.quorum.auto.join.enable": "true"}, True)):
        found = heard({**outside, **key}, leader, 10, knows_voters=False)
        asked = [request for _, request in found if isinstance(request, AddRaftVoterRequest)]
        assert bool(asked) is expected
        assert {request.voter_id for request in asked} <= {1}


@pytest.mark.slow
@acts(broker=("metadata.max.retention.bytes", "metadata.max.retention.ms"))
def test_how_much_of_the_metadata_log_stays(play: Play) -> None:
    async def first_offset(sim: Sim) -> int:
        for number in range(10):
            await sim.create(f"t{number}", partitions=10)
            await asyncio.sleep(1)
        names = sim.disk.list("/data/__cluster_metadata-0")
        return min(int(name[:20]) for name in names if name.endswith(".checkpoint"))

    often = {"metadata.log.max.record.bytes.between.snapshots": "2000", "metadata.log.segment.ms": "1000"}
    assert play(first_offset, often) == 0
    assert play(first_offset, {**often, "metadata.max.retention.bytes": "4000"}) > 0
    assert play(first_offset, {**often, "metadata.max.retention.ms": "3000"}) > 0


@acts(broker=("request.timeout.ms",))
def test_how_long_the_controller_may_take_to_create_a_topic(play: Play) -> None:
    async def second_try_after(sim: Sim) -> float:
        """Clients that ask for the topic do not wait for it; the broker asks the controller again after the timeout."""
        never: asyncio.Future[Any] = sim.world.loop.create_future()
        tries: list[float] = []

        def silent(request: Any) -> asyncio.Future[Any]:
            tries.append(sim.world.loop.time())
            return never

        class Silent:
            def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
                return call_in_memory(sim.node.runtime, silent, request, timeout_ms)

        sim.node.services.controller_channel = Silent()
        while len(tries) < 2:
            await sim.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True))
            await asyncio.sleep(0.2)
        return tries[1] - tries[0]

    assert 30 <= play(second_try_after, {}) < 30.5
    assert 4 <= play(second_try_after, {"request.timeout.ms": "4000"}) < 4.5


@acts(broker=("controller.quorum.append.linger.ms",))
def test_how_long_a_leader_of_the_quorum_gathers(play: Play) -> None:
    """Topics that are created at once: the first is flushed at once, the others wait for it and then for more."""

    async def create(sim: Sim, name: str) -> float:
        started = sim.world.loop.time()
        await sim.create(name)
        return sim.world.loop.time() - started

    async def scenario(sim: Sim) -> list[float]:
        """Return how much longer each topic waits than one that comes when no flush is running."""
        took = await asyncio.gather(*(create(sim, f"t{number}") for number in range(3)))
        alone = await create(sim, "alone")
        return [round(seconds - alone, 1) for seconds in took]

    def waits(fsync_s: float, **config: str) -> list[float]:
        def run_blocking(runtime: SimRuntime, *call: Any) -> asyncio.Future[Any]:
            return runtime._run_later((fsync_s / 2, fsync_s / 2), *call)

        with mock.patch.object(SimRuntime, "run_blocking", run_blocking):
            found: list[float] = play(scenario, {key.replace("_", "."): value for key, value in config.items()})
        return found

    assert waits(1) == [0, 0.5, 0.5]
    assert waits(1, controller_quorum_append_linger_ms="700") == [0, 1.2, 1.2]
    # A leader gathers only four times as long as the fsync took.
    assert waits(0.01, controller_quorum_append_linger_ms="700") == [0, 0, 0]


@acts(broker=("group.coordinator.append.linger.ms",))
def test_how_long_commits_are_gathered(play: Play) -> None:
    async def commit(sim: Sim, group: str) -> float:
        """Return the seconds until it is answered."""
        started = sim.world.loop.time()
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        topic = OffsetCommitRequestTopic(topic_id=await sim.topic_id("t"), partitions=[partition])
        answer = await sim.call(OffsetCommitRequest(group_id=group, topics=[topic]))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        return sim.world.loop.time() - started

    async def scenario(sim: Sim) -> tuple[int, int]:
        """Return the longest wait of ten at once in tenths of seconds, and the number of batches that they were written
        in."""
        await sim.create("t")
        while (
            (await sim.call(FindCoordinatorRequest(key="", key_type=0, coordinator_keys=["g0"])))
            .coordinators[0]
            .error_code
        ):
            await asyncio.sleep(0.1)
        await commit(sim, "first")
        before = len(await sim.stored("__consumer_offsets"))
        took = await asyncio.gather(*(commit(sim, f"g{number}") for number in range(10)))
        return int(max(took) * 10), len(await sim.stored("__consumer_offsets")) - before

    one = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}
    waited, batches = play(scenario, one)
    assert waited == 0
    waited, batches = play(scenario, {**one, "group.coordinator.append.linger.ms": "500"})
    assert (waited, batches) == (5, 1)
    waited, batches = play(scenario, {**one, "group.coordinator.append.linger.ms": "0"})
    assert (waited, batches) == (0, 10)


@acts(broker=("broker.id",))
def test_the_old_name_of_node_id() -> None:
    profile = {key: value for key, value in development_profile("/data", 9092).items() if key != "node.id"}
    voters = {"controller.quorum.voters": "7@localhost:9093", "controller.quorum.bootstrap.servers": ""}
    assert load({**profile, **voters, "broker.id": "7"}).node_id == 7
    with pytest.raises(ConfigError, match=r"broker\.id"):
        load({**profile, **voters, "node.id": "7", "broker.id": "8"})


def test_the_listener_between_brokers_may_be_named_by_its_protocol() -> None:
    profile = development_profile("/data", 9092)
    del profile["inter.broker.listener.name"]
    listeners = "PLAINTEXT://localhost:9092,SSL://localhost:9094"
    both = {**profile, "advertised.listeners": listeners, "listeners": f"{listeners},CONTROLLER://localhost:9093"}
    both["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
    assert load(both).listeners.inter_broker_name == "PLAINTEXT"
    assert load({**both, "security.inter.broker.protocol": "SSL"}).listeners.inter_broker_name == "SSL"
    with pytest.raises(ConfigError, match=r"[Oo]nly one of"):
        load({**both, "security.inter.broker.protocol": "SSL", "inter.broker.listener.name": "SSL"})


def test_classic_groups_are_always_served() -> None:
    profile = development_profile("/data", 9092)
    load({**profile, "group.coordinator.rebalance.protocols": "classic"})
    with pytest.raises(ConfigError, match="'classic' protocol"):
        load({**profile, "group.coordinator.rebalance.protocols": "consumer,streams"})
