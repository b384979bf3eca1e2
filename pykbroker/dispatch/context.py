"""The context of a request: its sender, its header, and the services that its handler may use.

Not responsible for dispatching (dispatcher.py) nor for any decision.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeAlias, TypeGuard, TypeVar

from pykbroker.dispatch.services import BrokerServices, ControllerServices, Services
from pykbroker.security.authorizer import SUPPORTED_OPERATIONS, Operation, Resource
from pykbroker.security.peer_session import PeerSession

S_co = TypeVar("S_co", bound=Services, covariant=True)


class Peer(Protocol):
    """The sender of a request: a connection, or the client whose request is inside an Envelope (KIP-590)."""

    session: PeerSession
    client_host: str
    client_software_name: str
    client_software_version: str
    #: True if answers to this peer may contain regions of files (log/README.md).
    takes_regions: bool
    #: Unique in this process and never used again; None for a peer without a connection of its own.
    connection_number: int | None

    @property
    def listener_name(self) -> str: ...

    @property
    def security_protocol(self) -> str: ...


class RequestContext(Generic[S_co]):
    """One request, with the services of the half that serves it.

    arrival_ms: wall-clock time. request_bytes: the size of the request's frame, or 0 if it came in memory.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "arrival_ms",
        "client_id",
        "correlation_id",
        "peer",
        "request_bytes",
        "services",
    )

    def __init__(
        self,
        peer: Peer,
        services: S_co,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        arrival_ms: int,
        request_bytes: int = 0,
    ) -> None:
        self.peer = peer
        self.services = services
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.arrival_ms = arrival_ms
        self.request_bytes = request_bytes

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

    def authorize(self, operation: Operation, resource: Resource, name: str, quiet: bool = False) -> bool:
        """Ask the authorizer for this request's principal and address. `quiet`: see Authorizer."""
        return self.services.authorizer.authorize(self, operation, resource, name, quiet)

    def would_allow(self, operation: Operation, resource: Resource, name: str) -> bool:
        """As `authorize`, for a caller that only shows the result."""
        return self.services.authorizer.would_allow(self, operation, resource, name)

    def authorize_some(self, operation: Operation, resource: Resource) -> bool:
        """Return True if the operation is allowed on at least one resource of the type."""
        return self.services.authorizer.authorize_some(self, operation, resource)

    def authorized_operations(self, resource: Resource, name: str) -> int:
        """Return the bit field of KIP-430: bit n stands for the operation with code n."""
        bits = 0
        for operation in SUPPORTED_OPERATIONS[resource]:
            if self.would_allow(operation, resource, name):
                bits |= 1 << operation
        return bits


class OwnRequestContext(RequestContext[S_co]):
    """A request of this process to itself, which came over no connection. It is always allowed; no ACL is read.

    A broker and a controller in one process trust each other. A client's request to the controller is inside an
    Envelope (api/envelope.py) and has a context of its own, with the client's principal.
    """

    __slots__ = ()

    def authorize(self, operation: Operation, resource: Resource, name: str, quiet: bool = False) -> bool:
        return True

    def would_allow(self, operation: Operation, resource: Resource, name: str) -> bool:
        return True

    def authorize_some(self, operation: Operation, resource: Resource) -> bool:
        return True


#: The context in the handler of an API that both halves serve.
AnyContext: TypeAlias = RequestContext[Services]
BrokerContext: TypeAlias = RequestContext[BrokerServices]
ControllerContext: TypeAlias = RequestContext[ControllerServices]


def is_on_controller(ctx: AnyContext) -> TypeGuard[ControllerContext]:
    """Return True if the controller half serves this request."""
    return isinstance(ctx.services, ControllerServices)


def is_on_broker(ctx: AnyContext) -> TypeGuard[BrokerContext]:
    """Return True if the broker half serves this request."""
    return isinstance(ctx.services, BrokerServices)
