"""In a quorum of several, a voter that lost records does not vote, and an observer fetches them again."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pykbroker_log.disk import read_file
from pykbroker_raft.intact import LostMetadata
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from tests.in_memory_peers import InMemoryPeers
from tests.quorum.test_observers import observer, serve
from tests.quorum.world import InlineRuntime, Listener, driver, format_one, run, until

THREE = VoterSet.of(VoterNode(ReplicaKey(id), (Endpoint("CONTROLLER", f"c{id}", 9093),)) for id in (1, 2, 3))


def damage(runtime: InlineRuntime, folder: str) -> bytes:
    """Flip a bit in the middle of the log. Return its bytes before that."""
    path = f"{folder}/__cluster_metadata-0/{0:020}.log"
    data = read_file(runtime.disk, path)
    at = len(data) // 2
    runtime.disk.open(path).pwritev([bytes([data[at] ^ 8])], at)
    return data


def test_an_observer_fetches_damaged_records_again(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        runtime = InlineRuntime()
        format_one(runtime.disk, "meta")
        peers = InMemoryPeers(runtime)
        leader = driver(runtime)
        await leader.start()
        peers.nodes["controller", 9093] = serve(runtime, leader)
        for number in range(10):
            leader.append([b"%d" % number])
        follower, listener = observer(runtime, peers, "other"), Listener()
        follower.register(listener)
        await follower.start()
        await until(lambda: len(listener.values) == 10)
        await follower.stop()
        data = damage(runtime, "other")
        peers = InMemoryPeers(runtime)
        peers.nodes["controller", 9093] = serve(runtime, leader)
        follower, listener = observer(runtime, peers, "other"), Listener()
        follower.register(listener)
        with caplog.at_level(logging.WARNING):
            await follower.start()
        assert any("are fetched from the leader again" in record.getMessage() for record in caplog.records)
        await until(lambda: listener.values == [b"%d" % number for number in range(10)])
        assert read_file(runtime.disk, f"other/__cluster_metadata-0/{0:020}.log")[: len(data)] == data
        await follower.stop()
        await leader.stop()

    run(test)


@pytest.mark.parametrize("what", ["a bit", "the vote"])
def test_a_voter_that_lost_records_or_its_vote_refuses(what: str) -> None:
    async def test() -> None:
        runtime = InlineRuntime()
        runtime.disk.make_dirs("meta")
        fields: dict[str, Any] = {"static_voters": VoterSet.of([next(iter(THREE))]), "endpoints": ()}
        voter = driver(runtime, **fields)
        await voter.start()
        for number in range(10):
            voter.append([b"%d" % number])
        await until(lambda: voter.high_watermark == voter.log_end_offset)
        await voter.stop()
        # It was one of three voters.
        fields["static_voters"] = THREE
        if what == "a bit":
            damage(runtime, "meta")
        else:
            runtime.disk.unlink("meta/__cluster_metadata-0/quorum-state")
        with pytest.raises(LostMetadata) as refused:
            await driver(runtime, **fields).start()
        assert "fetches everything from their leader" in str(refused.value)

    run(test)
