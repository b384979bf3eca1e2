"""Voters of different releases: a request that one cannot send to the other gets an answer, as in Apache Kafka."""

from __future__ import annotations

import asyncio
from typing import Any

from pykbroker.net.versions import UnsupportedVersion
from pykbroker_raft import rpc
from pykbroker_raft.ready import Destination
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.vote import VoteRequest
from tests.quorum.world import DIRECTORY_ID, InlineRuntime, driver, run, until

VOTERS = VoterSet.of(
    VoterNode(
        ReplicaKey(number, DIRECTORY_ID if number == 1 else bytes(16)), (Endpoint("CONTROLLER", f"h{number}", 1),)
    )
    for number in (1, 2)
)


class OlderVoter:
    """A voter that knows no pre-vote, and gives its vote."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.asked: list[bool] = []

    def send(self, destination: Destination, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self.loop.create_future()
        if not isinstance(request, VoteRequest):
            return answer
        partition = request.topics[0].partitions[0]
        self.asked.append(partition.pre_vote)
        if partition.pre_vote:
            answer.set_exception(UnsupportedVersion("h2:1: pre_vote is set, but version 1 does not have it"))
        else:
            answer.set_result(rpc.vote_response(1, ErrorCode.NONE, -1, partition.replica_epoch, None, True))
        return answer

    def close(self) -> None:
        pass


def test_a_voter_that_knows_no_pre_vote_still_elects() -> None:
    async def play() -> None:
        peers = OlderVoter()
        quorum = driver(
            InlineRuntime(), peers=peers, static_voters=VOTERS, election_timeout_ms=20, election_backoff_max_ms=10
        )
        await quorum.start()
        await until(lambda: quorum.is_leader)
        await quorum.stop(timeout_ms=0)
        assert peers.asked[:2] == [True, False]

    run(play)
