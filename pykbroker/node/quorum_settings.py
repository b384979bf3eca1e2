"""Makes the settings of a replica of the quorum from the configuration, the formatted directories and the bound
ports."""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.config.typed_config import Config
from pykbroker.metadata.image import Endpoint as ListenerEndpoint
from pykbroker.node.ways_to_nodes import why_one_voter
from pykbroker.quorum.replica_opening import QuorumConfig
from pykbroker.storage.format import Formatted
from pykbroker_raft.metadata_storage import StorageConfig
from pykbroker_raft.raft_node import RaftConfig
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet


def quorum_config(config: Config, formatted: Formatted, controllers: Sequence[ListenerEndpoint]) -> QuorumConfig:
    """Return the settings of this node's QuorumDriver. `controllers`: the advertised endpoints of its controller
    half."""
    return QuorumConfig(
        _raft_config(config, formatted, controllers),
        config.metadata_log_dir,
        StorageConfig(
            segment_bytes=config.optional_int("internal.metadata.log.segment.bytes")
            or config.int("metadata.log.segment.bytes"),
            segment_ms=config.int("metadata.log.segment.ms"),
            max_retention_bytes=config.int("metadata.max.retention.bytes"),
            max_retention_ms=config.int("metadata.max.retention.ms"),
            reserve_bytes=config.int("pykbroker.metadata.reserve.bytes"),
            cut_at=config.optional_int("pykbroker.metadata.log.cut.at"),
        ),
        snapshot_bytes=config.int("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms=config.int("metadata.log.max.snapshot.interval.ms"),
        append_linger_ms=config.int("controller.quorum.append.linger.ms"),
    )


def _raft_config(config: Config, formatted: Formatted, controllers: Sequence[ListenerEndpoint]) -> RaftConfig:
    name = config.listeners.controller_names[0]
    # The two zeros are the range of kraft.version. Each configured voter reports its own range itself
    # (UpdateRaftVoter).
    static = VoterSet.of(
        VoterNode(ReplicaKey(node_id), (Endpoint(name, host, port),), 0, 0)
        for node_id, (host, port) in config.voters.items()
    )
    return RaftConfig(
        node_id=config.node_id,
        directory_id=formatted.directory_ids[config.metadata_log_dir],
        cluster_id=formatted.cluster_id,
        listener=name,
        endpoints=tuple(Endpoint(point.name, point.host, point.port) for point in controllers),
        bootstrap=tuple(_host_and_port(address) for address in config.list("controller.quorum.bootstrap.servers")),
        static_voters=static,
        is_controller=config.is_controller,
        election_timeout_ms=config.int("controller.quorum.election.timeout.ms"),
        election_backoff_max_ms=config.int("controller.quorum.election.backoff.max.ms"),
        fetch_timeout_ms=config.int("controller.quorum.fetch.timeout.ms"),
        request_timeout_ms=config.int("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.int("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=config.int("controller.quorum.fetch.max.bytes"),
        snapshot_max_bytes=config.int("controller.quorum.fetch.snapshot.max.bytes"),
        auto_join=config.bool("controller.quorum.auto.join.enable"),
        alone_because=why_one_voter(config),
    )


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
