"""The quorum of the controllers: its replicas, and changes of its voters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pykbroker.tools.cluster.asked_cluster import AskedCluster
from pykbroker.tools.cluster.failure import check
from pykbroker_wire.primitives import ZERO_UUID as _NO_DIRECTORY
from pykbroker_wire.primitives import uuid_from_str, uuid_to_str

_TIMEOUT_MS: Final = 30_000


@dataclass(slots=True, frozen=True)
class QuorumReplica:
    id: int
    #: None if the replica has not sent its directory id
    directory_id: str | None
    end_offset: int
    #: milliseconds; -1 if never
    last_fetch_ms: int
    last_caught_up_ms: int
    #: `CONTROLLER://host:port`
    endpoints: tuple[str, ...] = ()


@dataclass(slots=True, frozen=True)
class DescribedQuorum:
    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


def described(cluster: AskedCluster) -> DescribedQuorum:
    from pykbroker_wire.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        ReplicaState,
        RequestPartitionData,
        RequestTopicData,
    )

    request = DescribeQuorumRequest(
        topics=[RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData()])]
    )
    answer = cluster.ask_controller(request, DescribeQuorumResponse)
    check(answer.error_code, answer.error_message)
    ((found,),) = [topic.partitions for topic in answer.topics]
    check(found.error_code, found.error_message)
    endpoints = {
        node.node_id: tuple(f"{one.name}://{one.host}:{one.port}" for one in node.listeners) for node in answer.nodes
    }

    def replica(row: ReplicaState) -> QuorumReplica:
        directory = row.replica_directory_id
        return QuorumReplica(
            row.replica_id,
            None if directory == _NO_DIRECTORY else uuid_to_str(directory),
            row.log_end_offset,
            row.last_fetch_timestamp,
            row.last_caught_up_timestamp,
            endpoints.get(row.replica_id, ()),
        )

    return DescribedQuorum(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        tuple(map(replica, found.current_voters)),
        tuple(map(replica, found.observers)),
    )


def add(cluster: AskedCluster, controller: int, directory_id: str, endpoints: Iterable[tuple[str, str, int]]) -> None:
    """Make a controller a voter (KIP-853). `endpoints`: the name, the host and the port of each listener. Raises
    AskFailed, and ValueError for a malformed id."""
    from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener

    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=_TIMEOUT_MS,
        voter_id=controller,
        voter_directory_id=uuid_from_str(directory_id),
        listeners=[Listener(name=name, host=host, port=port) for name, host, port in endpoints],
    )
    answer = cluster.ask_controller(request, AddRaftVoterResponse)
    check(answer.error_code, answer.error_message)


def remove(cluster: AskedCluster, controller: int, directory_id: str) -> None:
    """Remove a controller from the voters. Raises AskFailed, and ValueError for a malformed id."""
    from pykbroker_wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

    request = RemoveRaftVoterRequest(voter_id=controller, voter_directory_id=uuid_from_str(directory_id))
    request.cluster_id = None
    answer = cluster.ask_controller(request, RemoveRaftVoterResponse)
    check(answer.error_code, answer.error_message)
