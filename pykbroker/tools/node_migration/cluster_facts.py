"""Asks the live cluster for what the check and the plan need: requests of any client, none of which changes anything.

Responsible for the requests and for a bounded number of them: topics are described in pages, configurations in groups,
transactions up to a limit. Not responsible for what the facts mean (cluster_findings.py, migration_plan.py).

Invariant: a request that the cluster does not answer, or refuses this user, is a fact too, and ends no other request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from pykbroker.tools.cluster import configs, finalized, groups, quorum_replicas, reassignments, topics, transactions
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterNode, PartitionName
from pykbroker.tools.cluster.configs import ResourceKind
from pykbroker.tools.cluster.failure import AskFailed, NotServed, Unreachable
from pykbroker.tools.cluster.groups import GroupListing
from pykbroker.tools.cluster.quorum_replicas import DescribedQuorum, QuorumReplica
from pykbroker.tools.cluster.topics import DescribedPartition

_TOPICS_PER_REQUEST: Final = 500
_KEYS: Final = ("min.insync.replicas", "remote.storage.enable")
#: Transactions that have been open for less time are not looked at.
_YOUNG_MS: Final = 10_000
_MOST_TRANSACTIONS: Final = 50
#: A controller fetches a few times a second while it lives.
_SILENT_MS: Final = 10_000


@dataclass(slots=True)
class ClusterFacts:
    """The cluster at one moment. A part that could not be asked is empty, and `unanswered` names it."""

    id: str = ""
    #: registered brokers, with fenced ones
    brokers: tuple[ClusterNode, ...] = ()
    #: finalized features and their levels
    levels: dict[str, int] = field(default_factory=dict)
    quorum: DescribedQuorum | None = None
    #: by how much the clock of this machine is ahead of the active controller's, if that is known
    clock_ahead_ms: int | None = None
    partitions: dict[PartitionName, DescribedPartition] = field(default_factory=dict)
    moving: tuple[PartitionName, ...] = ()
    min_isr: dict[str, int] = field(default_factory=dict)
    tiered: tuple[str, ...] = ()
    groups: tuple[GroupListing, ...] = ()
    #: transactional ids that are open for longer than their timeout
    overdue: tuple[str, ...] = ()
    #: open transactions that were not looked at because there are too many
    more_open: int = 0
    #: what was asked for, and why there is no answer
    unanswered: list[tuple[str, str]] = field(default_factory=list)

    def is_alive(self, node: int) -> bool:
        """Return True if the node takes part in the cluster now, as a broker or as a controller."""
        return any(broker.id == node and not broker.fenced for broker in self.brokers) or self.follows(node)

    def follows(self, node: int) -> bool:
        """Return True if the node leads the quorum, or has caught up with its leader a moment ago."""
        if self.quorum is None:
            return False
        now = self.leader_clock_ms()
        return any(
            each.id == node and (node == self.quorum.leader or now - each.last_caught_up_ms < _SILENT_MS)
            for each in self.replicas()
        )

    def replicas(self) -> tuple[QuorumReplica, ...]:
        return () if self.quorum is None else (*self.quorum.voters, *self.quorum.observers)

    def leader_clock_ms(self) -> int:
        """Return the newest time in the active controller's answer, which is its clock if it has named it."""
        return max((max(each.last_caught_up_ms, each.last_fetch_ms) for each in self.replicas()), default=-1)


def read_cluster(cluster: AskedCluster) -> ClusterFacts:
    """Ask for everything. Raises Unreachable if no address of the cluster takes a connection."""
    facts = ClusterFacts(cluster.id)
    names: list[str] = []
    parts: tuple[tuple[str, Callable[[], None]], ...] = (
        ("the brokers", lambda: _brokers(cluster, facts)),
        ("the finalized features", lambda: _levels(cluster, facts)),
        ("the quorum", lambda: _quorum(cluster, facts)),
        ("the topics", lambda: names.extend(topic.name for topic in topics.listed(cluster))),
        ("the partitions", lambda: _partitions(cluster, facts, names)),
        ("the reassignments", lambda: _moving(cluster, facts)),
        ("the configurations of topics", lambda: _configs(cluster, facts, names)),
        ("the groups", lambda: _groups(cluster, facts)),
        ("the transactions", lambda: _transactions(cluster, facts)),
    )
    for what, ask in parts:
        try:
            ask()
        except Unreachable:
            raise
        except (AskFailed, NotServed) as error:
            facts.unanswered.append((what, str(error)))
    return facts


def _brokers(cluster: AskedCluster, facts: ClusterFacts) -> None:
    facts.brokers = tuple(cluster.endpoints(with_fenced=True))


def _levels(cluster: AskedCluster, facts: ClusterFacts) -> None:
    facts.levels = {one.name: one.level for one in finalized.described(cluster)[0] if one.level}


def _quorum(cluster: AskedCluster, facts: ClusterFacts) -> None:
    facts.quorum = quorum_replicas.described(cluster)
    now = time.time_ns() // 1_000_000
    leader = next((one for one in facts.quorum.voters if one.id == facts.quorum.leader), None)
    if leader is not None and leader.last_caught_up_ms > 0:
        facts.clock_ahead_ms = now - leader.last_caught_up_ms


def _partitions(cluster: AskedCluster, facts: ClusterFacts, names: Iterable[str]) -> None:
    facts.partitions = {
        (topic.name, row.number): row for topic in topics.described(cluster, names) for row in topic.partitions
    }


def _moving(cluster: AskedCluster, facts: ClusterFacts) -> None:
    facts.moving = tuple(sorted(reassignments.ongoing(cluster)))


def _configs(cluster: AskedCluster, facts: ClusterFacts, names: list[str]) -> None:
    tiered = []
    for first in range(0, len(names), _TOPICS_PER_REQUEST):
        wanted = [(ResourceKind.TOPIC, name) for name in names[first : first + _TOPICS_PER_REQUEST]]
        for (_, name), rows in configs.described(cluster, wanted, keys=_KEYS).items():
            values = {row.name: row.value for row in rows}
            facts.min_isr[name] = int(values.get("min.insync.replicas") or 1)
            if values.get("remote.storage.enable") == "true":
                tiered.append(name)
    facts.tiered = tuple(sorted(tiered))


def _groups(cluster: AskedCluster, facts: ClusterFacts) -> None:
    facts.groups = tuple(groups.of_all_types(cluster))


def _transactions(cluster: AskedCluster, facts: ClusterFacts) -> None:
    found = [one for one in transactions.listed(cluster, longer_than_ms=_YOUNG_MS) if one.state == "Ongoing"]
    facts.more_open = max(0, len(found) - _MOST_TRANSACTIONS)
    now, overdue = time.time_ns() // 1_000_000, []
    for one in found[:_MOST_TRANSACTIONS]:
        described = transactions.described(cluster, one.id)
        if described.started_ms is not None and now - described.started_ms > described.timeout_ms + _YOUNG_MS:
            overdue.append(one.id)
    facts.overdue = tuple(overdue)
