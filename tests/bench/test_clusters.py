"""Both sides get the same three nodes: their properties, their voters, and who leads what."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bench.clusters import NUMBERS, first_voters, properties_of, spread
from pykbroker_wire.primitives import uuid_from_str

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
