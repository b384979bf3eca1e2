"""From the measured state of a cluster to the file of a plan."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pykbroker.tools.balance.capacities import with_capacities
from pykbroker.tools.balance.load_arrays import cluster_load
from pykbroker.tools.balance.optimiser import Goals, MoveLimits, Proposal, optimise
from pykbroker.tools.balance.plan import as_json, plan_of
from pykbroker.tools.balance.seen import LoadResource, SeenBroker, SeenPartition
from pykbroker.tools.cluster.reassign_plan import wanted_moves

BROKERS = [SeenBroker(number, rack=f"r{number % 2}") for number in (1, 2, 3, 4)]


def partitions(count: int = 40, topic: str = "t") -> list[SeenPartition]:
    """Return partitions that are all on the first two brokers."""
    return [SeenPartition(topic, number, (1, 2), (1, 2), 1, 1e6, 1e3) for number in range(count)]


def test_a_plan_is_a_file_of_kafka_reassign_partitions() -> None:
    seen = partitions()
    load = cluster_load(BROKERS, seen)
    found = plan_of(load, optimise(load), BROKERS, seen)
    text = as_json(found, "id")
    wanted = wanted_moves(text)
    assert wanted.replicas == {(each.topic, each.partition): list(each.replicas) for each in found.partitions}
    assert not wanted.directories
    assert {tuple(each["now"]) for each in json.loads(text)["partitions"]} == {(1, 2)}
    assert {broker for replicas in wanted.replicas.values() for broker in replicas} == {1, 2, 3, 4}
    assert found.unmet == ()


def test_what_must_stay_stays() -> None:
    first, *_ = partitions(1, "excluded")
    below = replace(first, topic="below", isr=(1,), min_isr=2)
    moving = replace(first, topic="moving", is_moving=True)
    headless = replace(first, topic="headless", has_leader=False, isr=(1, 2))
    seen = [first, below, moving, headless, *partitions()]
    load = cluster_load(BROKERS, seen, excluded=["excluded"])
    assert list(load.may_move) == list(load.may_reorder) == [False] * 4 + [True] * 40
    found = plan_of(load, optimise(load), BROKERS, seen)
    assert {each.topic for each in found.partitions} == {"t"}


def test_a_min_isr_above_the_number_of_replicas_is_met_by_all_of_them() -> None:
    seen = [replace(each, min_isr=3) for each in partitions(2)]
    assert cluster_load(BROKERS, seen).may_move.all()
    assert not cluster_load(BROKERS, [replace(each, isr=(1,)) for each in seen]).may_move.any()


def test_brokers_that_are_gone() -> None:
    """Their partitions are held, unless the brokers are to be emptied."""
    brokers = [replace(each, is_alive=each.id != 2) for each in BROKERS]
    other = SeenPartition("other", 0, (1, 3), (1, 3), 1, 1e6, 1e3)
    seen = [replace(each, isr=(1,)) for each in partitions()] + [other]
    load = cluster_load(brokers, seen)
    assert list(load.may_move) == list(load.may_reorder) == [False] * 40 + [True]
    assert {each.topic for each in plan_of(load, optimise(load), brokers, seen).partitions} <= {"other"}
    load = cluster_load(brokers, seen, leaving=[2])
    found = plan_of(load, optimise(load), brokers, seen)
    assert found.unmet == ()
    assert len(found.partitions) >= 40
    assert not any(2 in each.replicas for each in found.partitions)


def test_what_is_not_met_is_told_by_name() -> None:
    brokers = [replace(each, capacity={LoadResource.DISK: 1e6}, most_replicas=5) for each in BROKERS]
    seen = partitions()
    load = cluster_load(brokers, seen, excluded=["t"], leaving=[1])
    told = {str((each.goal, each.subject, each.text)) for each in plan_of(load, optimise(load), brokers, seen).unmet}
    assert told == {
        "('leaves', 'broker 1', 'leaves and keeps 40 replicas')",
        "('number of replicas', 'broker 1', 'has 40 replicas, and its limit is 5')",
        "('number of replicas', 'broker 2', 'has 40 replicas, and its limit is 5')",
        "('capacity of DISK', 'broker 1', 'has 40,000,000, and its limit is 1,000,000')",
        "('capacity of DISK', 'broker 2', 'has 40,000,000, and its limit is 1,000,000')",
    }
    racks = [replace(each, rack="r" if each.id < 3 else "s") for each in BROKERS]
    load = cluster_load(racks, seen[:1])
    nothing = optimise(load, Goals(limits=MoveLimits(most_moves=0)))
    (unmet,) = plan_of(load, nothing, racks, seen[:1]).unmet
    assert (unmet.goal, unmet.subject) == ("racks", "t-0")


def test_moves_and_bytes_are_those_between_now_and_then() -> None:
    """The search may have moved a replica twice, which does not count."""
    seen = partitions(2)
    load = cluster_load(BROKERS, seen)
    proposal = Proposal(load.replicas[:, ::-1].copy(), moves=9, leader_changes=2, bytes_moved=9e9, unmet=0)
    found = plan_of(load, proposal, BROKERS, seen)
    assert (found.moves, found.bytes_moved) == (0, 0.0)
    proposal.replicas[0] = [3, 0]
    found = plan_of(load, proposal, BROKERS, seen)
    assert (found.moves, found.bytes_moved) == (1, 1e6)


def test_a_load_that_is_not_known_well_enough() -> None:
    seen = [replace(each, bytes_in=None) if each.number < 3 else each for each in partitions()]
    with pytest.raises(ValueError, match=r"the load of 92\.5% of the partitions is known, and a plan needs 95%"):
        cluster_load(BROKERS, seen)


def test_brokers_that_leave_must_be_there_and_others_stay() -> None:
    with pytest.raises(ValueError, match="broker 9 is not in the cluster"):
        cluster_load(BROKERS, partitions(), leaving=[9])
    with pytest.raises(ValueError, match="topic u is not in the cluster"):
        cluster_load(BROKERS, partitions(), excluded=["u"])
    with pytest.raises(ValueError, match="no broker is left"):
        cluster_load(BROKERS, partitions(), leaving=[1, 2, 3, 4])


def test_capacities_from_a_file() -> None:
    first, second, *_ = with_capacities(BROKERS, "[default]\ndisk = 1e9\n[2]\ndisk = 5\nreplicas = 7\n")
    assert first == replace(BROKERS[0], capacity={LoadResource.DISK: 1e9})
    assert second == replace(BROKERS[1], capacity={LoadResource.DISK: 5.0}, most_replicas=7)


def test_capacities_of_what_only_a_file_of_loads_tells() -> None:
    text = "[default]\ncpu = 0.5\n[2]\nbytes_out = 1e6\n"
    first, second, *_ = with_capacities(BROKERS, text, {LoadResource.CPU, LoadResource.BYTES_OUT})
    assert first.capacity == {LoadResource.CPU: 0.5}
    assert second.capacity == {LoadResource.CPU: 0.5, LoadResource.BYTES_OUT: 1e6}
    with pytest.raises(ValueError, match=r"\[2\] bytes_out cannot be limited: .* --loads needs bytes_out"):
        with_capacities(BROKERS, text, {LoadResource.CPU})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("disk = ", "no TOML"),
        ("disk = 1", "outside of a table"),
        ("[9]\ndisk = 1", r"\[9\], which is no broker"),
        ("[default]\ndisks = 1", "no resource; there are disk, leader_bytes_in, leaders, replicas, replication"),
        ("[default]\ndisk = -1", "no number from 0 on"),
        ("[default]\ndisk = true", "no number from 0 on"),
        ("[default]\ndisk = nan", "no number from 0 on"),
        (f"[default]\ndisk = {10**400}", "no number from 0 on"),
        ("[default]\nreplicas = 1.5", "no whole number"),
        (f"[default]\nreplicas = {2**31}", "replicas is above 2147483647"),
        ("[default]\ncpu = 1", "cpu cannot be limited: what CPU a partition costs is not seen from outside"),
        ("[1]\nbytes_out = 1", "bytes_out cannot be limited: what consumers read is not seen from outside"),
    ],
)
def test_capacities_that_are_none(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        with_capacities(BROKERS, text)
    assert "\n" not in str(refused.value)
