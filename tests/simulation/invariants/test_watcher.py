"""The watcher sees every replica of every node, from the event in which the node has it."""

from __future__ import annotations

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_worlds.simulated.sim_cluster import Quorum
from tests.simulation.invariants.watcher import watching
from tests.simulation.stage import Stage, play

pytestmark = pytest.mark.slow

PARTITIONS = 3


def test_the_replicas_of_a_node_that_starts_are_watched_at_once() -> None:
    """The node has the metadata before its table of replicas gets it, and more metadata may come late."""
    began_with: list[int] = []

    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        await cluster.become_whole()
        topic = CreatableTopic(name="watched", num_partitions=PARTITIONS, replication_factor=3)
        answer = await stage.peer("client").anybody(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        await cluster.become_whole()
        restarted = cluster.brokers[2]
        await restarted.stop()
        is_watched = False

        def look() -> None:
            nonlocal is_watched
            for watched in watcher._nodes:
                if watched.table is not None:
                    there = {id(partition) for partition in watched.table}
                    assert {id(replica.partition) for replica in watched.replicas} == there, watched.number
                    if watched.broker is restarted and there and not is_watched:
                        is_watched = True
                        began_with.append(len(there))

        stage.world.after_event.append(look)
        await restarted.start()
        await cluster.become_whole()

    stage = Stage(1, 3, quorum=Quorum.STATIC)
    with watching(stage.cluster) as watcher:
        play(scenario, stage)
    assert began_with == [PARTITIONS]
