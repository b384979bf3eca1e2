"""A new node takes the place of another one: its replicas, and its vote where the quorum is dynamic."""

from __future__ import annotations

from collections.abc import Sequence

from compat_tests.mixed_cluster.members import CLUSTER_ID, PATIENCE_S, Cluster, Kind, Member, reassign
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
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


def _take_over_replicas(cluster: Cluster, old: int, new: int) -> None:
    topics = cluster.all_topics()
    with Wire(cluster.address(cluster.living()[0]), timeout=PATIENCE_S) as wire:
        for topic in topics:
            held = {index: placed for index, placed in _replicas(cluster, topic).items() if old in placed}
            if held:
                taken = {index: [new if each == old else each for each in placed] for index, placed in held.items()}
                reassign(wire, topic, taken)
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
        voter_directory_id=cluster.directory_id(new),
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


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
