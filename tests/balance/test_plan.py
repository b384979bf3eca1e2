"""From what was seen of a cluster to the file of a plan."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pykbroker.admin.reassign_plan import wanted_moves
from pykbroker.balance.capacities import with_capacities
from pykbroker.balance.load_arrays import cluster_load
from pykbroker.balance.optimiser import optimise
from pykbroker.balance.plan import as_json, plan_of
from pykbroker.balance.seen import Resource, SeenBroker, SeenPartition

BROKERS = [SeenBroker(number, rack=f"r{number % 2}") for number in (1, 2, 3, 4)]


def partitions(count: int = 40, topic: str = "t") -> list[SeenPartition]:
    """All on the first two brokers."""
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
    seen = [first, below, moving, *partitions()]
    load = cluster_load(BROKERS, seen, excluded=["excluded"])
    assert list(load.may_move) == [False] * 3 + [True] * 40
    found = plan_of(load, optimise(load), BROKERS, seen)
    assert {each.topic for each in found.partitions} == {"t"}


def test_a_load_that_is_not_known_well_enough() -> None:
    seen = [replace(each, bytes_in=None) if each.number < 3 else each for each in partitions()]
    with pytest.raises(ValueError, match=r"the load of 92\.5% of the partitions is known, and a plan needs 95%"):
        cluster_load(BROKERS, seen)


def test_brokers_that_leave_must_be_there_and_others_stay() -> None:
    with pytest.raises(ValueError, match="broker 9 is not in the cluster"):
        cluster_load(BROKERS, partitions(), leaving=[9])
    with pytest.raises(ValueError, match="no broker is left"):
        cluster_load(BROKERS, partitions(), leaving=[1, 2, 3, 4])


def test_capacities_from_a_file() -> None:
    first, second, *_ = with_capacities(BROKERS, "[default]\ndisk = 1e9\n[2]\ndisk = 5\nreplicas = 7\n")
    assert first == replace(BROKERS[0], capacity={Resource.DISK: 1e9})
    assert second == replace(BROKERS[1], capacity={Resource.DISK: 5.0}, most_replicas=7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("disk = ", "no TOML"),
        ("disk = 1", "outside of a table"),
        ("[9]\ndisk = 1", r"\[9\], which is no broker"),
        ("[default]\ndisks = 1", "no resource; there are bytes_out, cpu, disk"),
        ("[default]\ndisk = -1", "no number from 0 on"),
        ("[default]\ndisk = true", "no number from 0 on"),
        ("[default]\ndisk = nan", "no number from 0 on"),
        ("[default]\nreplicas = 1.5", "no whole number"),
    ],
)
def test_capacities_that_are_none(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        with_capacities(BROKERS, text)
    assert "\n" not in str(refused.value)
