"""The parts of a node that handlers reach: one struct for the broker half, one for the controller half.

The two halves of a node (pykbroker/node/) fill them. Only the attributes of `Services` exist in both. The broker half
sends its requests to the controller half through `controller_channel`, as protocol messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pykbroker.client_view.cluster_view import ClusterViews
from pykbroker.dispatch.topic_creations import TopicCreations
from pykbroker.runtime.line_limit import LineLimit
from pykbroker.security.authorizer import AllowAll, Authorizer

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.controller.active import ActiveController
    from pykbroker.coordinator.group.service import GroupService
    from pykbroker.coordinator.share.service import ShareCoordinatorService
    from pykbroker.coordinator.transaction.marker_writer import MarkerWriter
    from pykbroker.coordinator.transaction.service import TransactionService
    from pykbroker.coordinator.transaction.verifier import Verifier
    from pykbroker.crossing.hand_over import HandOver
    from pykbroker.crossing.lease import Lease
    from pykbroker.dispatch.quorum_requests import QuorumLevels, QuorumRequests
    from pykbroker.dispatch.rows import Rows
    from pykbroker.dispatch.suspects import Suspects
    from pykbroker.liveness.broker_watch import BrokerWatch
    from pykbroker.metadata.view import MetadataView
    from pykbroker.metrics.registry import Metrics
    from pykbroker.node_to_controller.controller_channel import Channel
    from pykbroker.node_to_controller.producer_ids import ProducerIds
    from pykbroker.replica.batch_checks import BatchChecks
    from pykbroker.replica.fetch_sessions import FetchSessions
    from pykbroker.replica.table import ReplicaTable
    from pykbroker.runtime import Runtime
    from pykbroker.share_leaders.leader_table import ShareLeaders


@dataclass(slots=True, kw_only=True)
class Services:
    """The services of both halves."""

    config: Config
    runtime: Runtime
    node_id: int
    cluster_id: str
    quorum: QuorumLevels
    metadata: MetadataView
    metrics: Metrics
    authorizer: Authorizer = field(default_factory=AllowAll)
    cluster_views: ClusterViews = field(default_factory=ClusterViews)
    #: the APIs that this half serves
    rows: Rows
    #: messages from the other loop of the node; None if this half has no such messages
    inbox: HandOver[Any] | None = None


@dataclass(slots=True, kw_only=True)
class BrokerServices(Services):
    """The broker half."""

    replicas: ReplicaTable
    groups: GroupService
    transactions: TransactionService
    share_coordinator: ShareCoordinatorService
    share_leaders: ShareLeaders
    verifier: Verifier
    batch_checks: BatchChecks
    markers: MarkerWriter
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    controller_channel: Channel
    suspects: Suspects
    lease: Lease
    #: the topics that this broker lets the controller create
    topic_creations: TopicCreations = field(init=False)
    shutdown: Callable[[], None] = lambda: None
    #: raises ConfigError if a changed configuration names a store that cannot be used
    check_stores: Callable[[Config], None] = lambda config: None

    def __post_init__(self) -> None:
        self.topic_creations = TopicCreations(LineLimit(self.runtime.loop.time))


@dataclass(slots=True, kw_only=True)
class ControllerServices(Services):
    """The controller half."""

    quorum: QuorumRequests
    controller: ActiveController
    #: None if pykbroker.early.fencing.enable is off
    broker_watch: BrokerWatch | None = None
