"""A follower's requests about itself to its leader, and when it sends them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykbroker_raft import rpc
from pykbroker_raft.log_view import LogView
from pykbroker_raft.raft_node import Inbound, RaftConfig, RaftNode
from pykbroker_raft.ready import Destination, Now, Outgoing
from pykbroker_raft.states import Follower
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterHistory, VoterNode, VoterSet
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import FetchRequest
from pykbroker_wire.messages.update_raft_voter import UpdateRaftVoterRequest
from pykbroker_wire.messages.vote import VoteRequest

TIMEOUT_MS = 2000


def key(id: int) -> ReplicaKey:
    return ReplicaKey(id, bytes([id]) * 16)


def endpoints(id: int) -> tuple[Endpoint, ...]:
    return (Endpoint("CONTROLLER", f"c{id}", 9093),)


DYNAMIC = VoterSet.of(VoterNode(key(id), endpoints(id)) for id in (1, 2, 3))
STATIC = VoterSet.of(VoterNode(ReplicaKey(id), endpoints(id), 0, 0) for id in (1, 2, 3))


class Driven:
    """A follower of node 2 in epoch 1, with the requests that it has sent."""

    def __init__(
        self,
        kraft_version: int,
        listens: tuple[Endpoint, ...] = endpoints(1),
        *,
        voters: VoterSet = DYNAMIC,
        leader_at: tuple[Endpoint, ...] = endpoints(2),
        **settings: Any,
    ) -> None:
        """`leader_at` is the endpoints in the leader's BeginQuorumEpoch."""
        history = VoterHistory(VoterSet() if kraft_version else STATIC)
        history.reset(-1, voters if kraft_version else None, kraft_version)
        self.now_ms = 0
        self.node = RaftNode(
            RaftConfig(1, key(1).directory_id, "c", endpoints=listens, static_voters=history.static_voters, **settings),
            random.Random(1),
            LogView(),
            history,
            None,
        )
        self.node.start(self.now)
        # It asks other servers for a leader.
        self.node.ready()
        begin = rpc.begin_request("c", 2, 1, key(1), leader_at)
        self.node.receive(Inbound(1, begin, 1, "CONTROLLER"), self.now)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def sent(self) -> Outgoing:
        (outgoing,) = self.node.ready().requests
        return outgoing

    def answer(self, outgoing: Outgoing, response: Any | None) -> None:
        self.node.response(outgoing.correlation_id, outgoing.destination, response, self.now)

    def answer_fetches_until_another_request(self, until_ms: int) -> Outgoing | None:
        """Answer each fetch after half a second without news, as the leader."""
        while self.now_ms < until_ms:
            outgoing = self.sent()
            if not isinstance(outgoing.request, FetchRequest):
                return outgoing
            self.now_ms += 500
            leader = Endpoint("CONTROLLER", "c2", 9093)
            self.answer(outgoing, rpc.fetch_response(17, ErrorCode.NONE, 2, 1, leader, 0, 0))
        return None


def test_configured_voter_tells_each_new_leader_once() -> None:
    follower = Driven(kraft_version=0)
    outgoing = follower.answer_fetches_until_another_request(10_000)
    assert outgoing is not None
    assert follower.now_ms == TIMEOUT_MS
    request = outgoing.request
    assert isinstance(request, UpdateRaftVoterRequest)
    assert outgoing.destination == Destination(2, "c2", 9093)
    assert (request.voter_id, bytes(request.voter_directory_id)) == (1, key(1).directory_id)
    assert (
        request.kraft_version_feature.min_supported_version,
        request.kraft_version_feature.max_supported_version,
    ) == (
        0,
        1,
    )
    follower.answer(outgoing, rpc.update_voter_response(ErrorCode.NONE, 2, 1, None))
    assert follower.answer_fetches_until_another_request(20_000) is None
    # A new leader does not know it yet.
    begin = rpc.begin_request("c", 3, 2, key(1), endpoints(3))
    follower.node.receive(Inbound(1, begin, 1, "CONTROLLER"), follower.now)
    assert isinstance(follower.node.state, Follower)
    assert not follower.node.state.has_updated_leader


@pytest.mark.parametrize("error", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.VOTER_NOT_FOUND])
def test_leader_that_cannot_now_is_told_again(error: ErrorCode) -> None:
    follower = Driven(kraft_version=0)
    first = follower.answer_fetches_until_another_request(10_000)
    assert first is not None
    follower.answer(first, rpc.update_voter_response(error, 2, 1, None))
    follower.now_ms += 20
    follower.node.tick(follower.now)
    again = follower.answer_fetches_until_another_request(10_000)
    assert again is not None
    assert isinstance(again.request, UpdateRaftVoterRequest)


def test_leader_of_an_older_release_is_told_no_more() -> None:
    follower = Driven(kraft_version=0)
    first = follower.answer_fetches_until_another_request(10_000)
    assert first is not None
    follower.answer(first, rpc.update_voter_response(ErrorCode.UNSUPPORTED_VERSION, -1, -1, None))
    assert follower.answer_fetches_until_another_request(20_000) is None


def test_voter_whose_entry_is_true_says_nothing() -> None:
    assert Driven(kraft_version=1).answer_fetches_until_another_request(20_000) is None


def test_voter_whose_entry_has_its_endpoints_in_another_order_says_nothing() -> None:
    """A leader of Apache Kafka writes them in the order of a hash map."""
    listens = (*endpoints(1), Endpoint("OTHER", "c1", 9094))
    voters = DYNAMIC.updated(VoterNode(key(1), listens[::-1]))
    assert voters is not None
    assert Driven(1, listens, voters=voters).answer_fetches_until_another_request(20_000) is None


@pytest.mark.parametrize("host", ["", " "])
def test_leader_that_names_no_host_is_followed_at_the_endpoint_of_the_voter_set(host: str) -> None:
    follower = Driven(1, leader_at=(Endpoint("CONTROLLER", host, 9093),))
    assert isinstance(follower.node.state, Follower)
    assert follower.sent().destination == Destination(2, "c2", 9093)


def test_voter_without_a_host_is_asked_for_no_vote() -> None:
    """For a connection an empty host means the own machine: the request would go to this replica itself."""
    nowhere = VoterSet.of([*DYNAMIC.voters[:2], VoterNode(key(3), (Endpoint("CONTROLLER", "", 9093),))])
    follower = Driven(1, voters=nowhere)
    asked: set[Destination] = set()
    while not asked or follower.now_ms < 4 * TIMEOUT_MS:
        for outgoing in follower.node.ready().requests:
            if isinstance(outgoing.request, VoteRequest):
                asked.add(outgoing.destination)
            follower.answer(outgoing, None)
        follower.now_ms += 20
        follower.node.tick(follower.now)
    assert asked == {Destination(2, "c2", 9093)}


def test_voter_that_moved_says_so_until_the_log_does() -> None:
    away = (Endpoint("CONTROLLER", "away", 1),)
    follower = Driven(kraft_version=1, listens=away)
    for _ in range(2):
        outgoing = follower.answer_fetches_until_another_request(20_000)
        assert outgoing is not None
        assert [listener.host for listener in outgoing.request.listeners] == ["away"]
        follower.answer(outgoing, rpc.update_voter_response(ErrorCode.NONE, 2, 1, None))


def test_voter_asks_the_others_while_its_leader_does_not_answer() -> None:
    """As in Apache Kafka: another server may be the leader by now. The leader is asked again in between."""
    follower = Driven(kraft_version=0)
    asked: list[Destination] = []
    while isinstance(follower.node.state, Follower):
        for outgoing in follower.node.ready().requests:
            assert isinstance(outgoing.request, FetchRequest)
            asked.append(outgoing.destination)
            follower.answer(outgoing, None)
        follower.now_ms += 5
        follower.node.tick(follower.now)
    assert follower.now_ms == TIMEOUT_MS
    assert {destination.host for destination in asked} == {"c2", "c3"}
    assert sum(destination.id == 2 for destination in asked) > 5
    # No server is asked in a tight loop.
    assert len(asked) < 5 * TIMEOUT_MS / 20


def test_voter_follows_the_leader_that_another_voter_names() -> None:
    follower = Driven(kraft_version=0)
    follower.answer(follower.sent(), None)
    other = follower.sent()
    assert other.destination.id < -1
    leader = Endpoint("CONTROLLER", "c3", 9093)
    follower.answer(other, rpc.fetch_response(17, ErrorCode.FENCED_LEADER_EPOCH, 3, 2, leader, 0, -1))
    assert isinstance(follower.node.state, Follower)
    assert (follower.node.state.leader_id, follower.node.epoch) == (3, 2)
    assert follower.sent().destination == Destination(3, "c3", 9093)
