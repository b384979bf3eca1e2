"""The steps of moving partitions, other than the reassignment request: checking brokers and racks, reading the current
assignment, setting throttles, and moving replicas between directories.

Responsible for the steps that `kafka-reassign-partitions` and `pykbroker reassign` share. Not responsible for their
output.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from pykbroker.tools.cluster import configs, replicas_on_disk, topics
from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.configs import ConfigSource, ResourceKind, ResourceName
from pykbroker.tools.cluster.reassign_plan import as_json
from pykbroker.tools.cluster.reassign_throttles import Throttled
from pykbroker.tools.cluster.replicas_on_disk import ReplicaName
from pykbroker_wire.errors import ErrorCode

_ASK_AGAIN_SECONDS: Final = 0.1
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_TOPIC_THROTTLES: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
#: The keys of throttles by the kind of their resource, and the source of a value that only the resource itself has.
_OWN_THROTTLES: Final = {
    ResourceKind.TOPIC: (frozenset(_TOPIC_THROTTLES), ConfigSource.DYNAMIC_TOPIC_CONFIG),
    ResourceKind.BROKER: (frozenset((*RATES, DIRECTORY_RATE)), ConfigSource.DYNAMIC_BROKER_CONFIG),
}
#: resource -> each key of a throttle, and its value or None
ThrottlesBefore: TypeAlias = dict[ResourceName, dict[str, str | None]]


def check_brokers(wanted: Iterable[int], known: Container[int]) -> None:
    """Raise ValueError for a broker that does not exist."""
    unknown = next((broker for broker in wanted if broker not in known), None)
    if unknown is not None:
        raise ValueError(f"Unknown broker id {unknown}")


def racks_of(cluster: AskedCluster, brokers: Sequence[int], *, disregarded: bool) -> dict[int, str | None]:
    """Return broker -> its rack, or None for each if racks are disregarded. Raises ValueError if only some brokers have
    a rack, or if a broker does not exist."""
    nodes = {node.id: node.rack for node in cluster.nodes()}
    check_brokers(brokers, nodes)
    racks = {broker: None if disregarded else nodes[broker] for broker in brokers}
    known = [rack is not None for rack in racks.values()]
    if any(known) and not all(known):
        raise ValueError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    return racks


def assignment_of(cluster: AskedCluster, names: Iterable[str]) -> dict[PartitionName, tuple[int, ...]]:
    """Return the replicas of each partition of these topics. Raises AskFailed for a topic that does not exist."""
    return {
        (topic.name, row.number): row.replicas for topic in topics.described(cluster, names) for row in topic.partitions
    }


def current(
    cluster: AskedCluster, places: Mapping[PartitionName, object], *, missing_is_error: bool = True
) -> dict[PartitionName, tuple[int, ...]]:
    """Return the replicas of these partitions. If a partition does not exist, it is left out, or, with
    `missing_is_error`, ValueError is raised."""
    existing = {topic.name for topic in topics.listed(cluster)}
    found = assignment_of(cluster, {name for name, _ in places if missing_is_error or name in existing})
    missing = [f"{topic}-{number}" for topic, number in sorted(places) if (topic, number) not in found]
    if missing and missing_is_error:
        raise ValueError(f"Unable to find partition: {', '.join(missing)}")
    return {place: found[place] for place in places if place in found}


def current_json(cluster: AskedCluster, assignment: Mapping[PartitionName, Sequence[int]]) -> str:
    """Return the current assignment as a plan, with the directories of brokers that are alive."""
    alive = {node.id for node in cluster.nodes()}
    held = [ReplicaName(*place, broker) for place, replicas in assignment.items() for broker in replicas]
    places = replicas_on_disk.places(cluster, [replica for replica in held if replica.broker in alive])
    return as_json(assignment, {replica: place.current for replica, place in places.items()})


def throttle(cluster: AskedCluster, limits: Throttled, rate: int) -> None:
    """Limit moves between brokers to a rate in bytes per second."""
    for name in sorted(limits.leaders):
        replicas = (limits.leaders[name], limits.followers[name])
        _set(cluster, ResourceKind.TOPIC, name, dict(zip(_TOPIC_THROTTLES, replicas, strict=True)))
    for broker in limits.brokers:
        _set(cluster, ResourceKind.BROKER, str(broker), dict.fromkeys(RATES, str(rate)))


def throttle_directories(cluster: AskedCluster, brokers: Iterable[int], rate: int) -> None:
    """Limit moves between the directories of brokers to a rate in bytes per second."""
    for broker in sorted(set(brokers)):
        _set(cluster, ResourceKind.BROKER, str(broker), {DIRECTORY_RATE: str(rate)})


def throttles_before(cluster: AskedCluster, names: Iterable[str], brokers: Iterable[int]) -> ThrottlesBefore:
    """Return the throttles of these topics and brokers, so that `put_back` can undo a change of them."""
    resources = [(ResourceKind.TOPIC, name) for name in sorted(set(names))]
    resources += [(ResourceKind.BROKER, str(broker)) for broker in sorted(set(brokers))]
    before: ThrottlesBefore = {}
    for resource, found in configs.described(cluster, resources).items():
        keys, source = _OWN_THROTTLES[resource[0]]
        own = {one.name: one.value for one in found if one.source is source}
        before[resource] = {key: own.get(key) for key in sorted(keys)}
    return before


def put_back(cluster: AskedCluster, before: ThrottlesBefore) -> None:
    for (kind, name), values in before.items():
        _set(cluster, kind, name, values)


def throttled_brokers(cluster: AskedCluster, wanted: Mapping[PartitionName, Sequence[int]]) -> list[int]:
    """Return the brokers that may have a throttle of these moves: the brokers of the cluster and of the plan."""
    alive = {node.id for node in cluster.nodes()}
    return sorted(alive | {broker for replicas in wanted.values() for broker in replicas})


def clear_broker_throttles(cluster: AskedCluster, brokers: Iterable[int]) -> None:
    for broker in brokers:
        _set(cluster, ResourceKind.BROKER, str(broker), dict.fromkeys((*RATES, DIRECTORY_RATE)))


def clear_topic_throttles(cluster: AskedCluster, names: Iterable[str]) -> None:
    for name in names:
        _set(cluster, ResourceKind.TOPIC, name, dict.fromkeys(_TOPIC_THROTTLES))


def directory_moves(
    cluster: AskedCluster, wanted: Mapping[ReplicaName, str], timeout_ms: int
) -> Iterator[tuple[ReplicaName, str]]:
    """Begin these moves, and yield each move that has begun. If a broker does not have a replica yet, its move is tried
    again until the timeout. Raises ValueError."""
    until = time.monotonic() + timeout_ms / 1000
    left = dict(wanted)
    while left:
        failures = replicas_on_disk.move(cluster, left)
        for replica in sorted(failures):
            if failures[replica].code != ErrorCode.REPLICA_NOT_AVAILABLE:
                raise ValueError(f"Failed to alter dir for {replica}")
        for replica in sorted(left.keys() - failures.keys()):
            yield replica, left.pop(replica)
        if left and time.monotonic() >= until:
            named = ",".join(map(str, sorted(left)))
            s = "" if len(left) == 1 else "s"
            raise ValueError(f"Timed out before log directory move{s} could be started for: {named}")
        if left:
            time.sleep(_ASK_AGAIN_SECONDS)


def _set(cluster: AskedCluster, kind: ResourceKind, name: str, values: Mapping[str, str | None]) -> None:
    """Set the configurations of a resource; None deletes a value."""
    configs.alter(cluster, (kind, name), configs.changes_of(values))
