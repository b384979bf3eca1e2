"""A replica without a leader asks its bootstrap servers and the voters of its log."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from pykbroker_raft import rpc
from pykbroker_raft.log_view import LogView
from pykbroker_raft.raft_node import RaftConfig, RaftNode
from pykbroker_raft.ready import Destination, Now
from pykbroker_raft.states import Follower
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterHistory, VoterNode, VoterSet
from pykbroker_wire.errors import ErrorCode

EPOCH = 3
BACKOFF_MS = 100


def key(id: int) -> ReplicaKey:
    return ReplicaKey(id, bytes([id]) * 16)


def endpoint(id: int, host: str | None = None) -> Endpoint:
    return Endpoint("CONTROLLER", f"c{id}" if host is None else host, 9093)


VOTERS = VoterSet.of(VoterNode(key(id), (endpoint(id),)) for id in (1, 2, 3))


class Asking:
    """An observer, node 9, and the servers that it asks. No server answers at an address that is not in `answers`."""

    def __init__(self, bootstrap: tuple[str, ...], voters: VoterSet = VOTERS) -> None:
        history = VoterHistory()
        history.reset(-1, voters, 1)
        config = RaftConfig(
            9,
            key(9).directory_id,
            "c",
            endpoints=(endpoint(9),),
            bootstrap=tuple((host, 9093) for host in bootstrap),
            is_controller=False,
            retry_backoff_ms=BACKOFF_MS,
        )
        self.node = RaftNode(config, random.Random(1), LogView(), history, None)
        self.answers: dict[str, Any] = {}
        self.asked: list[Destination] = []
        self.now_ms = 0
        self.node.start(self.now)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            for outgoing in self.node.ready().requests:
                self.asked.append(outgoing.destination)
                response = self.answers.get(outgoing.destination.host)
                self.node.response(outgoing.correlation_id, outgoing.destination, response, self.now)
            self.now_ms += 10
            self.node.tick(self.now)

    @property
    def asked_hosts(self) -> set[str]:
        return {destination.host for destination in self.asked}


def says(leader_id: int) -> Any:
    """The response of a server that does not lead; the leader -1 is unknown to it."""
    leader = endpoint(leader_id) if leader_id >= 0 else None
    return rpc.fetch_response(17, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id, EPOCH, leader, 0, 0)


def test_a_voter_is_asked_when_every_bootstrap_server_has_gone() -> None:
    asking = Asking(("gone1", "gone2"))
    asking.answers = {"c2": says(leader_id=3)}
    asking.run(2_000)
    assert asking.asked_hosts >= {"gone1", "gone2", "c2"}
    state = asking.node.state
    assert isinstance(state, Follower)
    assert (state.leader_id, state.epoch) == (3, EPOCH)


def test_a_voter_that_knows_no_leader_is_asked_again_after_a_pause() -> None:
    asking = Asking(())
    asking.answers = {f"c{id}": says(leader_id=-1) for id in (1, 2, 3)}
    asking.run(3_000)
    times = Counter(destination.host for destination in asking.asked)
    assert set(times) == {"c1", "c2", "c3"}
    # The first response tells the epoch, and that is news.
    assert all(5 < count <= 3_000 // BACKOFF_MS + 1 for count in times.values()), times


def test_a_voter_is_asked_once_if_it_is_a_bootstrap_server_too() -> None:
    asking = Asking(("c1", "c2", "c3"))
    asking.run(1_000)
    assert {destination.id for destination in asking.asked} == {-2, -3, -4}


def test_a_voter_may_vote_while_it_does_not_tell_the_leader() -> None:
    asking = Asking(("c1",))
    asking.run(1_000)
    assert {destination.host: destination.id for destination in asking.asked} == {"c1": -2, "c2": -5, "c3": -6}


@pytest.mark.parametrize(
    "unreachable",
    [VoterNode(key(9), (endpoint(9),)), VoterNode(key(4), (endpoint(4, host=""),)), VoterNode(key(4))],
    ids=["itself", "no host", "no endpoint"],
)
def test_a_voter_that_cannot_be_asked_is_left_out(unreachable: VoterNode) -> None:
    asking = Asking((), VoterSet.of([*VOTERS, unreachable]))
    asking.run(1_000)
    assert asking.asked_hosts == {"c1", "c2", "c3"}


def test_who_knows_no_server_asks_nobody() -> None:
    asking = Asking((), VoterSet())
    asking.run(1_000)
    assert asking.asked == []
    assert asking.node.deadline_ms is None
