"""The marks that `balance run` sets in a cluster while it moves partitions, so that any machine can find a killed run.

A topic whose partitions it moves gets the replica lists of a throttle, as every tool that moves partitions sets them
(KIP-73). The followers' list has the brokers that get copies. The leaders' list has the replicas that each partition
had before the move, in their order. Both begin with an entry for a broker that no cluster has: this entry is the mark.

The number in the mark has two bits. `_NO_RATE` means that the run has not set the rate: then the rate is the operator's
and stays. `_ENDING` asks the run to end: a living run reads it and begins no further move. A topic with lists without a
mark belongs to another tool. The rate is the cluster's default, one value for all brokers, so that it can be removed
while a broker is down.

Invariant: while a run has set the rate, some topic has a mark without `_NO_RATE`, because marks are set before the rate
and removed after it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pykbroker.tools.cluster import configs, topics
from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.configs import ConfigSource, ResourceKind
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.moving import DIRECTORY_RATE, RATES
from pykbroker_wire.errors import ErrorCode

_LEADERS: Final = "leader.replication.throttled.replicas"
_FOLLOWERS: Final = "follower.replication.throttled.replicas"
_NO_BROKER: Final = 2**31 - 1
#: A run takes less time than this between its reading of the marks and its writing of them.
_STEP_SECONDS: Final = 1.0
#: Bits of the number in a mark.
_ENDING: Final = 1
_NO_RATE: Final = 2
_MARKS: Final = {f"{number}:{_NO_BROKER}": number for number in (0, _ENDING, _NO_RATE, _NO_RATE | _ENDING)}


@dataclass(slots=True)
class RunMarks:
    """`before`: the replicas that each partition had when its move began. `added`: the brokers that get a new replica.
    `ending`: topics whose mark asks the run to end. `has_rate`: the run has set a rate."""

    topics: set[str] = field(default_factory=set)
    before: dict[PartitionName, tuple[int, ...]] = field(default_factory=dict)
    added: dict[PartitionName, tuple[int, ...]] = field(default_factory=dict)
    ending: set[str] = field(default_factory=set)
    has_rate: bool = False


def found(cluster: AskedCluster, names: Collection[str] | None = None) -> RunMarks:
    """Read the marks of these topics, or of all."""
    marks = RunMarks()
    if names is None:
        names = _configured(cluster)
    for name, (leaders, followers) in _lists(cluster, names).items():
        numbers = _numbers(leaders) or _numbers(followers)
        if not numbers:
            continue
        marks.topics.add(name)
        if any(number & _ENDING for number in numbers):
            marks.ending.add(name)
        marks.has_rate |= not all(number & _NO_RATE for number in numbers)
        marks.before.update(_parsed(name, leaders))
        marks.added.update(_parsed(name, followers))
    return marks


def foreign(cluster: AskedCluster, names: Collection[str] | None = None) -> list[str]:
    """Return the topics, among these or among all, that have a throttle of another tool."""
    lists = _lists(cluster, _configured(cluster) if names is None else names)
    return sorted(name for name, both in lists.items() if any(both) and not any(map(_numbers, both)))


def put(cluster: AskedCluster, marks: RunMarks, names: Iterable[str], *, ending: bool = False) -> None:
    """Write the marks of these topics."""
    mark = f"{(0 if marks.has_rate else _NO_RATE) | (_ENDING if ending else 0)}:{_NO_BROKER}"
    for name in sorted(set(names)):
        leaders, followers = (_text(mark, name, each) for each in (marks.before, marks.added))
        _alter(cluster, ResourceKind.TOPIC, name, {_LEADERS: leaders, _FOLLOWERS: followers})
        marks.topics.add(name)


def end(cluster: AskedCluster, marks: RunMarks) -> RunMarks:
    """Ask a living run to end, and return its last marks. This repeats, because a step that the run has begun may write
    its own marks once more."""
    while True:
        put(cluster, marks, marks.topics - marks.ending, ending=True)
        time.sleep(_STEP_SECONDS)
        marks = found(cluster)
        if marks.topics == marks.ending:
            return marks


def clear(cluster: AskedCluster, marks: RunMarks) -> None:
    """Remove the rates of a run, then its marks. A topic that was deleted is left out."""
    if marks.has_rate:
        _alter(cluster, ResourceKind.BROKER, "", dict.fromkeys((*RATES, DIRECTORY_RATE)))
    for name in sorted(marks.topics):
        try:
            _alter(cluster, ResourceKind.TOPIC, name, dict.fromkeys((_LEADERS, _FOLLOWERS)))
        except AskFailed as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise


def set_rates(cluster: AskedCluster, rate: int | None, directory_rate: int | None) -> None:
    """Set rates in bytes per second for every broker; None leaves a rate as it is."""
    values = dict.fromkeys(RATES, rate) | {DIRECTORY_RATE: directory_rate}
    wanted = {key: str(value) for key, value in values.items() if value is not None}
    if wanted:
        _alter(cluster, ResourceKind.BROKER, "", wanted)


def rates(cluster: AskedCluster) -> dict[str, str]:
    """Return the rates that are set for all brokers."""
    told = configs.described(cluster, [(ResourceKind.BROKER, "")])
    keys = {*RATES, DIRECTORY_RATE}
    return {
        one.name: one.value
        for each in told.values()
        for one in each
        if one.name in keys and one.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG and one.value is not None
    }


def _configured(cluster: AskedCluster) -> list[str]:
    try:
        return configs.resource_names(cluster, ResourceKind.TOPIC)
    except AskFailed as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
    # Versions before Apache Kafka 4.1 cannot list topics by their configurations.
    return [topic.name for topic in topics.listed(cluster)]


def _lists(cluster: AskedCluster, names: Collection[str]) -> dict[str, tuple[str, str]]:
    if not names:
        return {}
    existing = {topic.name for topic in topics.listed(cluster)}
    told = configs.described(cluster, [(ResourceKind.TOPIC, name) for name in sorted(set(names) & existing)])
    values = {
        name: {one.name: one.value or "" for one in each if one.source is ConfigSource.DYNAMIC_TOPIC_CONFIG}
        for (_, name), each in told.items()
    }
    return {name: (each.get(_LEADERS, ""), each.get(_FOLLOWERS, "")) for name, each in values.items()}


def _numbers(text: str) -> list[int]:
    """Return the numbers of the marks in a list of throttled replicas; empty if the list has no mark."""
    return [_MARKS[entry] for entry in text.split(",") if entry in _MARKS]


def _parsed(name: str, text: str) -> dict[PartitionName, tuple[int, ...]]:
    brokers: dict[PartitionName, tuple[int, ...]] = {}
    for entry in text.split(","):
        number, colon, broker = entry.strip().partition(":")
        if colon and number.isdigit() and broker.isdigit() and int(broker) != _NO_BROKER:
            place = (name, int(number))
            brokers[place] = (*brokers.get(place, ()), int(broker))
    return brokers


def _text(mark: str, name: str, replicas: Mapping[PartitionName, Iterable[int]]) -> str:
    entries = [f"{number}:{each}" for (topic, number), some in replicas.items() if topic == name for each in some]
    return ",".join([mark, *entries])


def _alter(cluster: AskedCluster, kind: ResourceKind, name: str, values: Mapping[str, str | None]) -> None:
    configs.alter(cluster, (kind, name), configs.changes_of(values))
