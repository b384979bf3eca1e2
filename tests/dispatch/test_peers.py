"""A node that asks itself asks no authorizer; what it passes on for a client does."""

from __future__ import annotations

from pykbroker.dispatch.context import OwnRequestContext, RequestContext
from pykbroker.dispatch.peers import ForwardedPeer, LocalPeer
from pykbroker.security.authorizer import CLUSTER_NAME, Asker, Operation, Resource
from pykbroker.security.peer_session import ANONYMOUS, PeerSession
from pykbroker_wire.apis import ApiKey
from tests.api.broker_half import Half
from tests.deny_all import DenyAll

BROKER = "User:broker"


class OnlyBrokers(DenyAll):
    def authorize(self, asker: Asker, operation: Operation, resource: Resource, name: str, quiet: bool = False) -> bool:
        return asker.principal == BROKER and operation is Operation.CLUSTER_ACTION


def test_a_combined_node_with_acls_does_not_refuse_itself() -> None:
    """Its broker asks its controller in memory, as a principal that no ACL need know."""
    half = Half()
    half.services.authorizer = DenyAll()
    peer = LocalPeer(ANONYMOUS, "CONTROLLER", "SASL_PLAINTEXT")
    own = OwnRequestContext(peer, half.services, ApiKey.BROKER_HEARTBEAT, 0, 0, None, 0)
    assert own.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
    assert own.authorize_some(Operation.WRITE, Resource.TOPIC)
    passed_on = ForwardedPeer(ANONYMOUS, "127.0.0.1", "CONTROLLER", "SASL_PLAINTEXT")
    ctx = RequestContext(passed_on, half.services, ApiKey.CREATE_TOPICS, 0, 0, None, 0)
    assert not ctx.authorize(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
    assert not ctx.authorize_some(Operation.WRITE, Resource.TOPIC)


def test_a_peer_without_a_connection_is_authorized_as_the_principal_that_it_was_given() -> None:
    half = Half()
    half.services.authorizer = OnlyBrokers()
    for session, allowed in ((PeerSession(BROKER), True), (ANONYMOUS, False)):
        peer = LocalPeer(session, "CONTROLLER", "SASL_PLAINTEXT")
        ctx = RequestContext(peer, half.services, ApiKey.BROKER_HEARTBEAT, 0, 0, None, 0)
        assert ctx.principal == session.principal
        assert (ctx.listener_name, ctx.security_protocol) == ("CONTROLLER", "SASL_PLAINTEXT")
        assert ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME) is allowed
