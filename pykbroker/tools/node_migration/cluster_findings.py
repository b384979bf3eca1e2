"""Findings about the live cluster: whether it can do without this node for a moment, and what would change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pykbroker.metadata.features import KRAFT_VERSION, beyond_served
from pykbroker.tools.cluster.asked_cluster import PartitionName
from pykbroker.tools.node_migration.cluster_facts import ClusterFacts
from pykbroker.tools.node_migration.findings import FindingLevel, NodeFinding, counted, ok, some, stop, warn

_WHERE: Final = "the live cluster"
_FAR_APART_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The identity of the node by its files."""

    id: int
    is_broker: bool
    is_controller: bool
    #: None if the directories are not readable
    cluster_id: str | None = None
    #: the directory of its metadata log, as text
    directory_id: str | None = None
    #: controller.quorum.voters: node -> host and port
    voters: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    #: True if a process runs on the directories. The cluster learns of a stop only later.
    runs: bool = True


def cluster_findings(facts: ClusterFacts, node: NodeIdentity) -> list[NodeFinding]:
    """Return the findings, a single stop if the node belongs to another cluster."""
    if node.cluster_id is not None and facts.id != node.cluster_id:
        other = f"The directories belong to cluster {node.cluster_id}, and the bootstrap server to {facts.id}"
        return [stop(other, _WHERE, "Name a bootstrap server of the node's own cluster")]
    found = [
        *_features(facts),
        *_quorum(facts, node),
        *_membership(facts, node),
        *_replication(facts, node),
        *_topics(facts, node),
        *_clients(facts),
        *_unanswered(facts),
    ]
    if not any(each.level is FindingLevel.STOP for each in found):
        found.append(ok("The cluster can do without this node for a moment", _WHERE))
    return found


def _features(facts: ClusterFacts) -> Iterator[NodeFinding]:
    for text in beyond_served(facts.levels):
        yield stop(
            f"The cluster has finalised a newer feature: {text}",
            _WHERE,
            "Leave this node on Apache Kafka until a release of pykbroker serves it",
        )


# -- the quorum -------------------------------------------------------------------------------------------------------


def _quorum(facts: ClusterFacts, node: NodeIdentity) -> Iterator[NodeFinding]:
    if facts.quorum is None:
        return
    voters = {each.id: each for each in facts.quorum.voters}
    if node.voters and not facts.levels.get(KRAFT_VERSION):
        yield from _static_voters(facts, node, set(voters))
    elif node.voters:
        yield warn(
            "controller.quorum.voters is set, and the voters of this quorum are in its log (kraft.version 1)",
            "server.properties",
            "Name controller.quorum.bootstrap.servers instead",
        )
    own = voters.get(node.id)
    if own is not None and None not in (own.directory_id, node.directory_id) and own.directory_id != node.directory_id:
        yield stop(
            f"The quorum has voter {node.id} with directory.id {own.directory_id}, and here is {node.directory_id}",
            _WHERE,
            f"Bring the voter's directory back, or replace the voter: `pykbroker quorum remove {node.id}`, then add it",
        )
    lost = [each for each in voters if each != node.id and not facts.follows(each)]
    if lost:
        place = stop if own is not None else warn
        yield place(
            f"{counted(len(lost), 'other voter')} did not keep up with the quorum: {some(lost)}",
            _WHERE,
            "Bring them back first: without this node too, the quorum may have no majority",
        )


def _static_voters(facts: ClusterFacts, node: NodeIdentity, ids: set[int]) -> Iterator[NodeFinding]:
    assert facts.quorum is not None
    if set(node.voters) != ids:
        yield stop(
            f"controller.quorum.voters names {some(sorted(node.voters))}, and the quorum has {some(sorted(ids))}",
            "server.properties",
            "Write the same controller.quorum.voters on every node, and do not change it during the move",
        )
        return
    for each in facts.quorum.voters:
        host, port = node.voters[each.id]
        known = [one.rpartition("://")[2] for one in each.endpoints]
        if known and f"{host}:{port}" not in known and f"[{host}]:{port}" not in known:
            yield warn(
                f"controller.quorum.voters has voter {each.id} at {host}:{port}, and the quorum at {some(known)}",
                "server.properties",
                "Write the same controller.quorum.voters on every node",
            )


# -- this node --------------------------------------------------------------------------------------------------------


def _membership(facts: ClusterFacts, node: NodeIdentity) -> Iterator[NodeFinding]:
    if facts.brokers and node.is_broker and node.id not in {each.id for each in facts.brokers}:
        yield warn(
            f"The cluster has no broker {node.id}",
            _WHERE,
            "A new broker is no move; otherwise compare node.id with `pykbroker cluster brokers`",
        )
    if facts.clock_ahead_ms is not None and abs(facts.clock_ahead_ms) > _FAR_APART_MS:
        side = "ahead of" if facts.clock_ahead_ms > 0 else "behind"
        yield warn(
            f"The clock of this machine is {abs(facts.clock_ahead_ms) / 1000:.1f} s {side} the active controller's",
            "this machine",
            "Set both clocks, for example by NTP: time stamps and retention follow the leader's clock",
        )


def _replication(facts: ClusterFacts, node: NodeIdentity) -> Iterator[NodeFinding]:
    if facts.moving:
        yield stop(
            f"A reassignment runs: {some(_named(facts.moving))}",
            _WHERE,
            "Wait for its end, or cancel it: `pykbroker reassign cancel`",
        )
    lacks = {place: set(row.replicas) - set(row.isr) for place, row in facts.partitions.items()}
    others = [place for place, missing in lacks.items() if missing - {node.id}]
    only_us = [place for place, missing in lacks.items() if missing == {node.id}]
    if others:
        gone = sorted({each for place in others for each in lacks[place] - {node.id}})
        yield stop(
            f"{counted(len(others), 'under-replicated partition')}: {some(_named(others))}; not in sync: {some(gone)}",
            _WHERE,
            "Wait until each replica is in sync: `pykbroker topics describe --under-replicated`",
        )
    if only_us and node.runs:
        yield stop(
            f"{counted(len(only_us), 'under-replicated partition')}, for lack of this node: {some(_named(only_us))}",
            _WHERE,
            "Wait until this node is in sync",
        )
    elif only_us:
        yield ok(
            f"{counted(len(only_us), 'partition')} out of sync until this node starts: {some(_named(only_us))}",
            _WHERE,
        )


def _topics(facts: ClusterFacts, node: NodeIdentity) -> Iterator[NodeFinding]:
    if facts.tiered:
        yield stop(
            f"{counted(len(facts.tiered), 'topic')} with tiered storage: {some(facts.tiered)}",
            _WHERE,
            "Leave the cluster on Apache Kafka, or end remote.storage.enable for them first",
        )
    here = {place: row for place, row in facts.partitions.items() if node.id in row.replicas}
    single = [place for place, row in here.items() if len(row.replicas) == 1]
    if single:
        yield warn(
            f"{counted(len(single), 'partition')} only on this node: {some(_named(single))}",
            _WHERE,
            "They are away while the node moves; give them more replicas, or tell their users",
        )
    last = [place for place, row in here.items() if len(row.replicas) > 1 and tuple(row.isr) == (node.id,)]
    if last:
        yield warn(
            f"{counted(len(last), 'partition')} with no other replica in sync: {some(_named(last))}",
            _WHERE,
            "Wait for another replica: without this node they have no leader",
        )
    strict = {
        topic: facts.min_isr[topic]
        for (topic, _), row in here.items()
        if len(row.replicas) > 1 and facts.min_isr.get(topic, 1) >= len(row.replicas)
    }
    if strict:
        yield warn(
            f"min.insync.replicas leaves no replica to spare: {some(sorted(strict))}",
            _WHERE,
            "Writes with acks=all fail while a replica moves; lower it for the time of the move, or add a replica",
        )


def _clients(facts: ClusterFacts) -> Iterator[NodeFinding]:
    streams = sorted(group.id for group in facts.groups if group.type == "Streams")
    if streams:
        yield warn(
            f"{counted(len(streams), 'group')} of the streams protocol, which is not served: {some(streams)}",
            _WHERE,
            "Their members stop while a pykbroker coordinates them; let them use the classic protocol (group.protocol)",
        )
    if facts.overdue:
        yield warn(
            f"{counted(len(facts.overdue), 'transaction')} open for longer than the timeout: {some(facts.overdue)}",
            _WHERE,
            "End them first: `pykbroker transactions find-hanging`, then `abort`",
        )
    if facts.more_open:
        yield warn(
            f"{counted(facts.more_open, 'further open transaction')} not looked at",
            _WHERE,
            "List them: `pykbroker transactions list --longer-than 1m`",
        )


def _unanswered(facts: ClusterFacts) -> Iterator[NodeFinding]:
    for what, why in facts.unanswered:
        yield warn(
            f"The cluster gave no answer about {what}: {why}",
            _WHERE,
            "Let this user describe the cluster, topics, groups and transactional ids, and check again",
        )


def _named(places: Iterable[PartitionName]) -> list[str]:
    return [f"{topic}-{index}" for topic, index in sorted(places)]
