"""The world of the handlers of records: a replica table on a memory disk; everything else is a stand-in."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

from pykbroker.api import rows
from pykbroker.dispatch.context import BrokerContext, RequestContext
from pykbroker.dispatch.rows import On
from pykbroker.dispatch.services import BrokerServices
from pykbroker.metadata.image import BrokerImage, Endpoint
from pykbroker.net.promise import Promise
from pykbroker.replica.batch_checks import BatchChecks
from pykbroker.replica.fetch_sessions import FetchSessions
from pykbroker.security.authorizer import AllowAll, Asker, Operation, Resource
from pykbroker.security.peer_session import ANONYMOUS
from tests.replica.world import World


class Denied(AllowAll):
    """Allows everything except these (operation, resource, name)."""

    def __init__(self, *denied: tuple[Operation, Resource, str]) -> None:
        self.denied = denied

    def authorize(self, asker: Asker, operation: Operation, resource: Resource, name: str, quiet: bool = False) -> bool:
        return (operation, resource, name) not in self.denied


class Half:
    """`ask` returns the response, encoded and decoded again, or the future of one."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world if world is not None else World()
        self.loop = self.world.loop
        self.replicas = self.world.replicas
        #: the connection of the requests that follow
        self.connection_number = 1
        nothing: Any = None
        self.services = BrokerServices(
            config=self.world.config,
            runtime=self.world.runtime,
            node_id=1,
            cluster_id="c",
            quorum=nothing,
            metadata=cast(Any, self.world),
            metrics=self.world.metrics,
            rows=rows(On.BROKER, self.world.metrics),
            replicas=self.replicas,
            groups=nothing,
            transactions=nothing,
            share_coordinator=nothing,
            share_leaders=nothing,
            verifier=nothing,
            batch_checks=BatchChecks(self.world.runtime),
            markers=nothing,
            fetch_sessions=FetchSessions(1_000, random.Random(1), self.world.metrics),
            producer_ids=nothing,
            controller_channel=nothing,
            suspects=nothing,
            lease=nothing,
            authorizer=AllowAll(),
        )

    def with_broker(self, broker_id: int) -> None:
        """Add another broker that clients can be sent to."""
        endpoint = Endpoint("PLAINTEXT", f"host{broker_id}", 9092, 0)
        broker = BrokerImage(broker_id, 0, bytes(16), {"PLAINTEXT": endpoint}, None, False, False, (), {})
        object.__setattr__(self.world.image, "brokers", {**self.world.image.brokers, broker_id: broker})

    def context(self, request: Any, version: int | None = None) -> BrokerContext:
        peer = SimpleNamespace(
            session=ANONYMOUS,
            client_host="127.0.0.1",
            listener_name="PLAINTEXT",
            security_protocol="PLAINTEXT",
            takes_regions=False,
            connection_number=self.connection_number,
        )
        chosen = request.MAX_VERSION if version is None else version
        now_ms = self.services.runtime.now_ms()
        return RequestContext(cast(Any, peer), self.services, request.API_KEY, chosen, 0, "me", now_ms)

    def ask(self, handler: Any, request: Any, version: int | None = None) -> Any:
        ctx = self.context(request, version)
        answer = handler.handle(ctx, request)
        if isinstance(answer, asyncio.Future | Promise):
            return answer
        return None if answer is None else through_bytes(answer, ctx.api_version)


def through_bytes(answer: Any, version: int) -> Any:
    return type(answer).decode(memoryview(answer.encode_bytes(version)), 0, version)[0]
