"""A reading of the metrics of coordinators: the answer that comes when the groups are counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pykbroker.coordinator.coordinator_metrics import CoordinatorMetrics
from pykbroker.coordinator.group.classic.classic_group import ClassicGroup
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.shard import GroupShard
from pykbroker.coordinator.measures import CoordinatorMeasures
from pykbroker.metrics.recent import RecentTimes
from pykbroker.metrics.registry import Metrics, Sample
from tests.coordinator.fakes import Loop, as_loop

NUMBER = "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups"


class Reading:
    """The metrics of a broker that coordinates two partitions with 500 classic groups each. It counts in many turns."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.loop.cost_per_look = 0.003
        self.shards = [GroupShard(index, GroupSettings()) for index in range(2)]
        for shard in self.shards:
            shard.groups.update({name: ClassicGroup(name, 0) for name in map(str, range(500))})
        self.metrics = Metrics()
        groups, transactions, states = (self._coordinator() for _ in range(3))
        groups.hosts = lambda: [SimpleNamespace(shard=shard, ready=True) for shard in self.shards]
        shares = SimpleNamespace(coordinator=states, write_times=RecentTimes(self.loop.time), pruned_before={})
        self.read = CoordinatorMetrics(self.metrics, as_loop(self.loop), groups, transactions, cast(Any, shares))

    def _coordinator(self) -> Any:
        return SimpleNamespace(measures=CoordinatorMeasures(self.loop.time), hosts=list)

    def later(self) -> Any:
        """Read, and return the future when it is done."""
        answer: Any = self.read.samples()
        self.loop.turn()
        assert not answer.done()
        self.loop.settle()
        assert answer.done()
        return answer

    def number(self) -> float:
        samples: list[Sample] = self.later().result()
        return {sample.name: sample.value for sample in samples}[NUMBER]


def test_a_bug_in_a_later_turn_of_the_count_ends_the_reading() -> None:
    reading = Reading()
    broken = cast(GroupShard, SimpleNamespace(groups={"g": None}))
    whole, reading.shards[1] = reading.shards[1], broken
    first, second = reading.read.samples(), reading.later()
    for answer in (first, second):
        assert isinstance(cast(Any, answer).exception(), AttributeError)
    reading.shards[1] = whole
    assert reading.number() == 1_000


def test_ten_thousand_partitions_are_read_in_many_turns() -> None:
    reading = Reading()
    places = range(10_000)
    reading.metrics.family(lambda: ((f"k:type=P,name={place * 7919 % 10_000:05d}", place) for place in places))
    answer: Any = reading.read.samples()
    turns = 0
    while not answer.done():
        reading.loop.turn()
        turns += 1
    # A turn here has 64 steps: one for each group that is counted, each number that is read, and each sample.
    assert turns > 2 * len(places) / 64
    names = [sample.name for sample in answer.result()]
    assert names == sorted(names)
    assert sum(name.startswith("k:type=P") for name in names) == len(places)


def test_a_bug_in_a_number_ends_the_reading() -> None:
    reading = Reading()
    divisor = 0
    reading.metrics.gauge("one", lambda: 1 / divisor)
    assert isinstance(reading.later().exception(), ZeroDivisionError)
    divisor = 1
    assert reading.number() == 1_000
