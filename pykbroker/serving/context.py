"""What a handler knows about its request, and what it may reach.

Not responsible for dispatching (dispatch.py) nor for any decision.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

from pykbroker.security.authorizer import SUPPORTED_OPERATIONS, Operation, Resource
from pykbroker.security.session import Session
from pykbroker.serving.services import BrokerServices, ControllerServices


class Peer(Protocol):
    """Who sent a request: a connection, or the client behind an Envelope (KIP-590)."""

    session: Session
    client_host: str
    client_software_name: str
    client_software_version: str
    #: A transport that takes memory maps as they are (log/README.md).
    zero_copy: bool

    @property
    def listener_name(self) -> str: ...

    @property
    def security_protocol(self) -> str: ...


class RequestContext:
    """One request. `arrival_ms` is wall-clock time."""

    __slots__ = ("api_key", "api_version", "arrival_ms", "client_id", "correlation_id", "peer", "services")

    def __init__(
        self,
        peer: Peer,
        services: Any,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        arrival_ms: int,
    ) -> None:
        self.peer = peer
        #: BrokerServices or ControllerServices, as the listener; `broker` and `controller` say which a handler expects
        self.services: Any = services
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.arrival_ms = arrival_ms

    @property
    def broker(self) -> BrokerServices:
        return cast(BrokerServices, self.services)

    @property
    def controller(self) -> ControllerServices:
        return cast(ControllerServices, self.services)

    @property
    def principal(self) -> str:
        return self.peer.session.principal

    @property
    def client_host(self) -> str:
        return self.peer.client_host

    @property
    def listener_name(self) -> str:
        return self.peer.listener_name

    @property
    def security_protocol(self) -> str:
        return self.peer.security_protocol

    def authorize(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Ask the authorizer for this request's principal and address."""
        peer = self.peer
        allowed: bool = self.services.authorizer.authorize(
            peer.session.principal, peer.client_host, operation, resource, name
        )
        return allowed

    def authorized_operations(self, resource: Resource, name: str) -> int:
        """The bit field of KIP-430: bit n stands for the operation with code n."""
        bits = 0
        for operation in SUPPORTED_OPERATIONS[resource]:
            if self.authorize(operation, resource, name):
                bits |= 1 << operation
        return bits
