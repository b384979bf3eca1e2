"""The rate of throttled replicas, and the set of them."""

from __future__ import annotations

import pytest

from pykbroker.metrics.registry import Metrics
from pykbroker.replica.quota import FOLLOWER_RATE, LEADER_RATE, ReplicationQuotas, WindowedRate
from testkit.acting import acts
from tests.replica.world import NODE, World


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Quotas:
    """The quotas of node 1."""

    def __init__(self, **config: str) -> None:
        self.clock = Clock()
        self.metrics = Metrics()
        self.rates = {LEADER_RATE: 100, FOLLOWER_RATE: 200}
        settings = World.config_with({key.replace("_", "."): value for key, value in config.items()})
        self.both = ReplicationQuotas(settings, NODE, self.clock, self.metrics, self.rates.__getitem__)


def test_the_first_window_counts_as_a_whole_one() -> None:
    clock = Clock()
    rate = WindowedRate(clock, 11, 1)
    assert rate.per_second() == 0
    rate.record(500)
    assert rate.per_second() == 500
    clock.now += 0.5
    assert rate.per_second() == 500
    clock.now += 4.5
    assert rate.per_second() == 100


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    clock = Clock()
    rate = WindowedRate(clock, 3, 2)
    rate.record(600)
    clock.now += 2
    rate.record(60)
    clock.now += 3.9
    assert rate.per_second() == pytest.approx(660 / 5.9)
    clock.now += 0.1
    assert rate.per_second() == pytest.approx(60 / 4)
    clock.now += 2
    assert rate.per_second() == 0


@acts(broker=("replication.quota.window.num", "replication.quota.window.size.seconds"))
def test_a_quota_looks_back_as_far_as_its_windows_reach() -> None:
    for config, seconds in (({}, 11), ({"num": "3", "size.seconds": "2"}, 6)):
        quotas = Quotas(**{f"replication.quota.window.{key}": value for key, value in config.items()})
        quotas.both.leader.record(100_000)
        quotas.clock.now += seconds - 0.1
        assert quotas.both.leader.is_exceeded()
        quotas.clock.now += 0.2
        assert not quotas.both.leader.is_exceeded()


def test_each_side_has_its_own_limit_and_metric() -> None:
    quotas = Quotas()
    for side in (quotas.both.leader, quotas.both.follower):
        side.record(150)
    assert (quotas.both.leader.is_exceeded(), quotas.both.follower.is_exceeded()) == (True, False)
    quotas.rates[LEADER_RATE] = 150
    assert not quotas.both.leader.is_exceeded()
    quotas.both.follower.record(100)
    found = quotas.metrics.snapshot()
    assert found["kafka.server:type=LeaderReplication,name=byte-rate"] == 150
    assert found["kafka.server:type=FollowerReplication,name=byte-rate"] == 250


@acts(topic=("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"))
def test_the_metadata_says_which_replicas_are_throttled() -> None:
    world = World()
    leader, follower = world.replicas.quotas.leader, world.replicas.quotas.follower
    assert not leader.is_used
    world.create(
        "some",
        3,
        leader_replication_throttled_replicas="0:1,1:2,2:1",
        follower_replication_throttled_replicas="1:1",
    )
    world.create("all", leader_replication_throttled_replicas="*")
    world.create("none", leader_replication_throttled_replicas="")
    assert [leader.is_throttled("some", index) for index in range(3)] == [True, False, True]
    assert [follower.is_throttled("some", index) for index in range(3)] == [False, True, False]
    assert (leader.is_throttled("all", 0), follower.is_throttled("all", 0)) == (True, False)
    assert not leader.is_throttled("none", 0)
    world.delete("all")
    assert not leader.is_throttled("all", 0)
    world.delete("some")
    assert (leader.is_used, follower.is_used) == (False, False)
