"""A cluster as its clients see it: its nodes, and the node that each request goes to.

Responsible for the first contact, for the node, the coordinator and the leader that a request goes to, for time limits
and for repeated requests. Not responsible for the content of requests (the other modules of this package, one per
noun).

Invariant: a request is repeated only if its answer means that nothing was done, or if it changes nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from pykbroker.tools.cluster.asked_node import Asked, AskedNode
from pykbroker.tools.cluster.client_security import ClientSecurity
from pykbroker.tools.cluster.failure import AskFailed, NoAnswer, Unreachable, check, failed, timed_out
from pykbroker.tools.cluster.node_connection import R
from pykbroker.tools.cluster.patience import ClientPatience
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import TopLevel

T = TypeVar("T")
#: a topic's name and a partition's number
PartitionName: TypeAlias = tuple[str, int]

_PAUSE_SECONDS = 0.1
#: Requests may wait for so long after `give_up`, and a little even after that time, see patience.py.
_GIVING_UP_SECONDS = 5.0
_GROUP = 0
_TRANSACTION = 1


@dataclass(slots=True, frozen=True)
class ClusterNode:
    """One node of the cluster, as the cluster describes it."""

    id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True, frozen=True)
class ClusterSettings:
    """The addresses of the cluster, how to connect, and how long to wait."""

    #: `host:port` of each
    bootstrap: tuple[str, ...]
    security: ClientSecurity = field(default_factory=ClientSecurity)
    client_id: str = "pykbroker-admin"
    #: `bootstrap` names controllers
    of_controllers: bool = False
    #: default.api.timeout.ms and request.timeout.ms
    timeout_ms: int = 60_000
    request_timeout_ms: int = 30_000
    #: If true and no address takes a connection, try again until `timeout_ms` is over, and print a WARN per address on
    #: standard error as Apache Kafka's tools do. If false, try each address once.
    patient: bool = True


class AskedCluster:
    """`with AskedCluster(settings) as cluster: topics.listed(cluster)`."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        #: by address
        self._connections: dict[str, AskedNode] = {}
        self._first: AskedNode | None = None
        self._nodes: dict[int, ClusterNode] = {}
        self._cluster_id = ""
        self._controller_id = -1
        #: by kind and key, as FindCoordinator has them; forgotten before a request is repeated
        self._coordinators: dict[tuple[int, str], int] = {}
        self._warned: set[str] = set()
        self._patience = ClientPatience()

    def __enter__(self) -> AskedCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    @property
    def of_controllers(self) -> bool:
        return self._settings.of_controllers

    # -- nodes --------------------------------------------------------------------------------------------------------

    def nodes(self) -> list[ClusterNode]:
        """Return the nodes that serve, ordered by id: controllers if `bootstrap` names controllers, else brokers."""
        if not self._nodes:
            self.refresh()
        return [self._nodes[number] for number in sorted(self._nodes)]

    @property
    def id(self) -> str:
        if not self._nodes:
            self.refresh()
        return self._cluster_id

    def refresh(self) -> None:
        """Ask the cluster again for its nodes."""
        if self._settings.of_controllers:
            self._refresh_controllers()
            return
        from pykbroker_wire.messages.metadata import MetadataRequest, MetadataResponse

        answer = self.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse, least=1)
        self._cluster_id = answer.cluster_id or ""
        self._controller_id = answer.controller_id
        self._nodes = {
            node.node_id: ClusterNode(node.node_id, node.host, node.port, node.rack) for node in answer.brokers
        }

    def _refresh_controllers(self) -> None:
        from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

        answer = self.ask(DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse, least=1)
        check(answer.error_code, answer.error_message)
        self._cluster_id = answer.cluster_id
        self._controller_id = answer.controller_id
        self._nodes = {
            node.broker_id: ClusterNode(node.broker_id, node.host, node.port, node.rack) for node in answer.brokers
        }

    def endpoints(self, *, with_fenced: bool = False) -> list[ClusterNode]:
        """Return the nodes as DescribeCluster describes them, with fenced brokers if `with_fenced`."""
        from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

        request = DescribeClusterRequest(
            endpoint_type=2 if self.of_controllers else 1, include_fenced_brokers=with_fenced
        )
        least = 2 if with_fenced else 1 if self.of_controllers else 0
        answer = self.ask(request, DescribeClusterResponse, least=least)
        check(answer.error_code, answer.error_message)
        found = [ClusterNode(row.broker_id, row.host, row.port, row.rack, row.is_fenced) for row in answer.brokers]
        return sorted(found, key=lambda node: node.id)

    def unregister(self, broker: int) -> None:
        """Unregister a broker. Raises AskFailed."""
        from pykbroker_wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

        answer = self.ask_controller(UnregisterBrokerRequest(broker_id=broker), UnregisterBrokerResponse)
        check(answer.error_code, answer.error_message)

    def unregister_controller(self, controller: int) -> None:
        """Unregister a controller (KIP-1312). Raises AskFailed."""
        from pykbroker_wire.messages.unregister_controller import (
            UnregisterControllerRequest,
            UnregisterControllerResponse,
        )

        message = UnregisterControllerRequest(controller_id=controller)
        answer = self.ask_controller(message, UnregisterControllerResponse)
        check(answer.error_code, answer.error_message)

    # -- questions ----------------------------------------------------------------------------------------------------

    def ask(
        self,
        message: TopLevel,
        answer: type[R],
        *,
        node: int | None = None,
        least: int = 0,
        most: int | None = None,
        timeout_ms: int | None = None,
    ) -> R:
        """Send a request to a node, or to any node. Raises AskFailed; the caller checks error codes in the answer."""
        connection = self._any() if node is None else self._of(node)
        return connection.ask(Asked(message, answer, least, most), timeout_ms or self._settings.request_timeout_ms)

    def ask_controller(self, message: TopLevel, answer: type[R], *, least: int = 0) -> R:
        """Send a request to the node that the cluster names as the controller, or to any node if that node cannot be
        reached. With KRaft every broker forwards the request, and the named broker may have died a moment ago."""
        self.nodes()
        known = self._nodes.get(self._controller_id)
        is_there = known is not None and self._unreachable(self._connection(known.address)) is None
        return self.ask(message, answer, node=self._controller_id if is_there else None, least=least)

    def versions(self, node: int | None = None) -> Mapping[int, tuple[int, int]]:
        """Return API key -> the least and the greatest version that a node serves."""
        connection = self._any() if node is None else self._of(node)
        return connection.versions(self._settings.request_timeout_ms)

    def coordinators(self, keys: Iterable[str], *, of_transactions: bool = False) -> dict[str, int]:
        """Return the node that coordinates each group, or each transactional id. In a function for `settled` this asks
        again for each repeated attempt, because another node may coordinate the key by then."""
        from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

        kind = _TRANSACTION if of_transactions else _GROUP
        wanted = list(dict.fromkeys(keys))

        def attempt() -> None:
            unknown = [key for key in wanted if (kind, key) not in self._coordinators]
            if not unknown:
                return
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=unknown)
            answer = self.ask(request, FindCoordinatorResponse, least=4)
            for row in answer.coordinators:
                check(row.error_code, row.error_message)
            self.refresh()
            self._coordinators |= {(kind, row.key): row.node_id for row in answer.coordinators}

        self.settled(attempt)
        return {key: self._coordinators[kind, key] for key in wanted}

    def settled(self, attempt: Callable[[], T]) -> T:
        """Call `attempt` until it returns. Raises its AskFailed if the error is not retriable, if the time is over, or
        after `give_up`. A coordinator that has left the cluster is looked for again."""
        deadline = time.monotonic() + self._settings.timeout_ms / 1000
        while True:
            try:
                return attempt()
            except AskFailed as error:
                names_gone = bool(self._coordinators) and error.code == ErrorCode.BROKER_NOT_AVAILABLE
                # A caller that asks again itself needs the new coordinator, too.
                self._coordinators.clear()
                if not (error.retriable or names_gone) or self._patience.has_given_up or time.monotonic() >= deadline:
                    raise
                if error.code == ErrorCode.NETWORK_EXCEPTION:
                    self._forget_connections()
                    # A node that has died leaves the list when the controller fences it.
                    self._nodes = {}
            time.sleep(_PAUSE_SECONDS)

    def give_up(self, seconds: float = _GIVING_UP_SECONDS) -> None:
        """From now on send each request once, and only to nodes that answer, because the user wants to end. Requests
        should have ended after so many seconds, also those that are in flight. A signal handler may call this. A second
        call gives no more time."""
        self._patience.give_up(seconds)

    def wait_until(self, at: float) -> None:
        """End every wait for a node at this time of `time.monotonic()`. A later call may name a later time."""
        self._patience.wait_until(at)

    # -- connections --------------------------------------------------------------------------------------------------

    def _connection(self, address: str) -> AskedNode:
        known = self._connections.get(address)
        if known is None:
            settings = self._settings
            known = AskedNode(
                address, settings.client_id, settings.security, settings.request_timeout_ms, self._patience
            )
            self._connections[address] = known
        return known

    def _of(self, node: int) -> AskedNode:
        if node not in self._nodes:
            self.refresh()
        if node not in self._nodes:
            raise failed(ErrorCode.BROKER_NOT_AVAILABLE, f"There is no node {node} in the cluster.")
        return self._connection(self._nodes[node].address)

    def _any(self) -> AskedNode:
        """Return the first address of the bootstrap list that can be reached. Raises AskFailed, Unreachable."""
        if self._first is not None and self._unreachable(self._first) is None:
            return self._first
        addresses = self._settings.bootstrap
        deadline = time.monotonic() + self._settings.timeout_ms / 1000
        while True:
            reasons = []
            silent: list[tuple[str, NoAnswer]] = []
            for address in addresses:
                connection = self._connection(address)
                try:
                    reason = self._unreachable(connection)
                except NoAnswer as error:
                    silent.append((address, error))
                    continue
                except AskFailed as error:
                    # The node refused the user.
                    self._explain(address, str(error))
                    raise
                if reason is None:
                    self._check_serves_clients(address, connection)
                    self._first = connection
                    return connection
                reasons.append(reason)
                if self._settings.patient:
                    self._warn(address)
            if silent:
                address, failure = silent[0]
                self._explain(address, str(failure))
                raise failure
            if not self._settings.patient:
                self._explain(addresses[0], "; ".join(reasons))
                raise Unreachable(reasons)
            if self._patience.has_given_up or time.monotonic() >= deadline:
                raise timed_out("Timed out waiting for a node assignment.")
            time.sleep(_PAUSE_SECONDS)

    def _explain(self, address: str, reason: str) -> None:
        """Raise Unreachable with what to do, if the program at the address is known. A patient cluster, which Apache
        Kafka's tools by their names use, does not look."""
        if self._settings.patient:
            return
        from pykbroker.tools.cluster.what_listens import what_to_do

        settings = self._settings
        said = what_to_do(
            address, settings.security, lambda at: AskedNode(at, settings.client_id, ClientSecurity(), 1000)
        )
        if said is not None:
            raise Unreachable([reason], said)

    def _check_serves_clients(self, address: str, connection: AskedNode) -> None:
        """Raise Unreachable for a controller that was named as a broker."""
        if self._settings.patient or self.of_controllers or ApiKey.METADATA in connection.versions():
            return
        from pykbroker.tools.cluster.what_listens import of_controller

        raise Unreachable([f"{address} answers no request of a client"], of_controller())

    def _warn(self, address: str) -> None:
        if address not in self._warned:
            self._warned.add(address)
            said = f"Connection to {address} could not be established. Node may not be available."
            print(f"WARN {said}", file=sys.stderr)

    def _forget_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._first = None

    def _unreachable(self, connection: AskedNode) -> str | None:
        """Return the reason why no connection can be made, or None if there is a connection. This asks the node for
        nothing but its API versions, so the caller can still send its own request to another node. Raises AskFailed for
        an error that every other node would return as well."""
        try:
            connection.versions(self._settings.request_timeout_ms)
        except AskFailed as error:
            if error.code != ErrorCode.NETWORK_EXCEPTION:
                raise
            return str(error)
        return None
