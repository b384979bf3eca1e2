"""A new node takes the place of another one: its replicas, and its vote where the quorum is dynamic."""

from __future__ import annotations

from collections.abc import Sequence

from compat_tests.mixed_cluster.members import CLUSTER_ID, PATIENCE_S, Cluster, Kind, Member
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from pykbroker_wire.messages.unregister_broker import UnregisterBrokerRequest
from pykbroker_wire.primitives import uuid_from_str
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire
from testkit.ports import steady_port


def exchange(cluster: Cluster, old: int, new: int, kind: Kind, *, secured: bool) -> None:
    """Add a node of this kind, move everything to it, and remove the old one. `secured`: it has a listener more."""
    member = Member(kind, cluster.members[old].roles)
    listener = f"BROKERS://localhost:{steady_port()}" if secured and member.is_broker else None
    cluster.add(new, member, listener)
    cluster.format_one(new, own_tools=True, later=True)
    cluster.start(new)
    if member.is_broker:
        cluster.serving(*cluster.numbers)
        _take_over_replicas(cluster, old, new)
    directory = cluster.voters().get(old) if member.is_controller else None
    if directory is not None:
        _add_voter(cluster, new)
    cluster.stop(old)
    cluster.forget(old)
    if directory is not None:
        # Not before it has stopped, because then it would only know controllers that may have gone.
        left = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=old, voter_directory_id=uuid_from_str(directory))
        _ask(cluster, f"{old} is no voter", left, done=ErrorCode.VOTER_NOT_FOUND)
    if member.is_broker:
        _ask(cluster, f"broker {old} is unregistered", UnregisterBrokerRequest(broker_id=old))


def all_topics(cluster: Cluster) -> list[str]:
    with Wire(cluster.address(cluster.living()[0])) as wire:
        return [topic.name for topic in wire.metadata().topics]


def _take_over_replicas(cluster: Cluster, old: int, new: int) -> None:
    topics = all_topics(cluster)
    placed = {topic: _replicas(cluster, topic) for topic in topics}
    wanted = [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(
                    partition_index=index, replicas=[new if number == old else number for number in replicas]
                )
                for index, replicas in partitions.items()
                if old in replicas
            ],
        )
        for topic, partitions in placed.items()
    ]
    with Wire(cluster.address(cluster.living()[0]), timeout=PATIENCE_S) as wire:
        answer = wire.call(AlterPartitionReassignmentsRequest(topics=wanted, timeout_ms=60_000))
    assert not answer.error_code, answer
    assert not any(part.error_code for topic in answer.responses for part in topic.partitions), answer
    eventually(
        f"no replica is on node {old}",
        lambda: not any(old in replicas for topic in topics for replicas in _replicas(cluster, topic).values()),
        seconds=PATIENCE_S,
    )
    cluster.in_sync(*topics)


def _replicas(cluster: Cluster, topic: str) -> dict[int, Sequence[int]]:
    return {index: part.replica_nodes for index, part in cluster.partitions(topic).items()}


def _add_voter(cluster: Cluster, new: int) -> None:
    """A voter may be added when it has nearly the whole log."""
    voter = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=30_000,
        voter_id=new,
        voter_directory_id=_directory_id(cluster, new),
        listeners=[Listener(name="CONTROLLER", host="localhost", port=_port(cluster.controller_address(new)))],
    )
    _ask(cluster, f"{new} is a voter", voter, done=ErrorCode.DUPLICATE_VOTER)


def _ask(
    cluster: Cluster,
    what: str,
    request: AddRaftVoterRequest | RemoveRaftVoterRequest | UnregisterBrokerRequest,
    done: ErrorCode = ErrorCode.BROKER_ID_NOT_REGISTERED,
) -> None:
    """Send a request until it succeeds. An answer may be lost with its controller; `done` says that it had
    succeeded."""

    def look() -> bool:
        with Wire(cluster.address(cluster.living()[0]), timeout=PATIENCE_S) as wire:
            return wire.call(request).error_code in (ErrorCode.NONE, done)

    eventually(what, look, seconds=PATIENCE_S)


def _directory_id(cluster: Cluster, number: int) -> bytes:
    lines = (cluster.data(number) / "meta.properties").read_text().splitlines()
    return uuid_from_str(next(line.partition("=")[2] for line in lines if line.startswith("directory.id=")))


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
