"""The identity of a replica, and the timeouts of its quorum under the names of Kafka's keys. An immutable value."""

from __future__ import annotations

from dataclasses import dataclass

from pykbroker_raft.voters import NO_VOTERS, Endpoints, ReplicaKey, VoterNode, VoterSet, address


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """The configuration of a replica."""

    node_id: int
    directory_id: bytes
    cluster_id: str
    # The listener over which the nodes of the quorum communicate.
    listener: str = "CONTROLLER"
    endpoints: Endpoints = ()
    bootstrap: tuple[tuple[str, int], ...] = ()
    static_voters: VoterSet = NO_VOTERS
    # True if it can become a voter: then it fsyncs what it fetches, and takes part in elections.
    is_controller: bool = True
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1024 * 1024
    snapshot_max_bytes: int = 1024 * 1024
    # True if a controller outside the voter set of a dynamic quorum asks to be added (KIP-1186).
    auto_join: bool = False
    #: The reason for which a second voter is refused; None if it is allowed.
    alone_because: str | None = None

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def as_voter(self) -> VoterNode:
        return VoterNode(self.key, self.endpoints)

    @property
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """Addresses (host and port) for a replica that knows no leader, without its own."""
        found = [address(voter.endpoints, self.listener) for voter in self.static_voters]
        known = self.bootstrap or tuple((endpoint.host, endpoint.port) for endpoint in found if endpoint is not None)
        own = {(endpoint.host, endpoint.port) for endpoint in self.endpoints}
        return tuple(place for place in known if place not in own)
