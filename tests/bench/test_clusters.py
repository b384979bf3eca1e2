"""Both sides get the same three nodes: their properties, their voters, the leaders of topics; nodes come and go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.clusters import NUMBERS, Cluster, first_voters, properties_of, spread
from bench.servers import Pykbroker
from pykbroker_wire.primitives import uuid_from_str
from testkit.nodes.nodes import eventually

PORTS = {1: 20_000, 2: 20_010, 3: 20_020}


def test_the_nodes_differ_in_what_is_their_own() -> None:
    one, two = (properties_of(number, PORTS, Path(f"home{number}")) for number in (1, 2))
    assert {name for name in one if one[name] != two[name]} == {"node.id", "listeners", "log.dirs"}
    assert one["listeners"] == "PLAINTEXT://127.0.0.1:20000,CONTROLLER://127.0.0.1:20001"
    assert one["controller.quorum.bootstrap.servers"] == "127.0.0.1:20001,127.0.0.1:20011,127.0.0.1:20021"
    assert (one["default.replication.factor"], one["min.insync.replicas"]) == ("3", "2")


def test_each_voter_is_named_with_a_directory_of_its_own() -> None:
    voters = [voter.split(":") for voter in first_voters(PORTS).split(",")]
    assert [":".join(voter[:2]) for voter in voters] == ["1@127.0.0.1:20001", "2@127.0.0.1:20011", "3@127.0.0.1:20021"]
    assert len({uuid_from_str(voter[2]) for voter in voters}) == 3


def test_the_nodes_lead_in_turn_and_follow_equally() -> None:
    replicas = spread(6)
    assert all(sorted(each) == list(NUMBERS) for each in replicas)
    for place in range(len(NUMBERS)):
        assert set(Counter(each[place] for each in replicas).values()) == {2}
    assert len(spread(1)) == 1


@pytest.mark.slow
def test_a_node_that_was_killed_leads_again_what_it_led() -> None:
    cluster = Cluster(Pykbroker)
    try:
        cluster.start()
        topic = cluster.spread_topic(3)
        assert list(topic.leaders.values()) == [node.address for node in cluster.nodes.values()]
        cluster.kill(2)
        assert cluster.living() == [1, 3]
        eventually("another node leads", lambda: cluster.leaders(topic.name)[1] != 2)
        cluster.launch(2)
        cluster.nodes[2].await_ready()
        cluster.in_sync(topic.name)
        cluster.prefer(topic.name)
        assert cluster.leaders(topic.name) == {0: 1, 1: 2, 2: 3}
        anonymous, resident = cluster.memory()
        assert 0 < anonymous < resident
        assert cluster.cpu_seconds() > 0
        cluster.delete_topics()
        assert cluster.topics == []
        eventually(
            "no node knows the topic",
            lambda: all(wire.metadata(topic.name).topics[0].error_code for _, wire in cluster.wires()),
        )
    finally:
        cluster.stop()
    assert not cluster.directory.exists()
