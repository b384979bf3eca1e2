"""A node that asks itself is authorized like any other client: as the principal that the composition gave it."""

from __future__ import annotations

from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.security.peer_session import ANONYMOUS, PeerSession
from pykbroker.serving.context import RequestContext
from pykbroker.serving.peers import LocalPeer
from pykbroker_wire.apis import ApiKey
from tests.api.broker_half import Half

BROKER = "User:broker"


class OnlyBrokers:
    def authorize(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        return principal == BROKER and operation is Operation.CLUSTER_ACTION


def test_d6_a_combined_node_is_authorized_as_the_principal_that_it_was_given() -> None:
    """It was always User:ANONYMOUS, so that a combined node with ACLs would have refused itself."""
    half = Half()
    half.services.authorizer = OnlyBrokers()
    for session, allowed in ((PeerSession(BROKER), True), (ANONYMOUS, False)):
        peer = LocalPeer(session, "CONTROLLER", "SASL_PLAINTEXT")
        ctx = RequestContext(peer, half.services, ApiKey.BROKER_HEARTBEAT, 0, 0, None, 0)
        assert ctx.principal == session.principal
        assert (ctx.listener_name, ctx.security_protocol) == ("CONTROLLER", "SASL_PLAINTEXT")
        assert ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME) is allowed
