"""A broker's membership, with both ends of what passes between the loops of its node, on one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from pykbroker.crossing.broker_end import BrokerEnd
from pykbroker.crossing.control_end import ControlEnd
from pykbroker.crossing.feed import MetadataFeed
from pykbroker.crossing.hand_over import HandOver
from pykbroker.crossing.loop_messages import ToBroker, ToControl
from pykbroker.metadata.image import Endpoint
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.node_to_controller.broker_membership import BrokerIdentity
from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.node_to_controller.controller_channel import Channel
from pykbroker.node_to_controller.lifecycle import BrokerLifecycle


def _fails(error: BaseException) -> None:
    raise error


class Membership:
    """The lifecycle as the broker half sees it. `loader`: of this node."""

    def __init__(
        self,
        runtime: Any,
        config: Any,
        channel: Channel,
        loader: MetadataLoader,
        cluster_id: str,
        *,
        node_id: int = 1,
        incarnation_id: bytes = b"i" * 16,
        directory_ids: Iterable[bytes] = (b"d" * 16,),
        **fields: Any,
    ) -> None:
        to_broker: HandOver[ToBroker] = HandOver(None, lambda message: self.broker.take(message))
        to_control: HandOver[ToControl] = HandOver(None, lambda message: self.control.take(message))
        self.broker = BrokerEnd(runtime, node_id, to_control.put)
        self.feed = MetadataFeed(loader, to_broker.put, lambda: self.lifecycle.metadata_seen())
        self.lifecycle = BrokerLifecycle(
            runtime,
            config,
            channel,
            loader,
            BrokerIdentity(
                node_id,
                cluster_id,
                incarnation_id,
                tuple(sorted(directory_ids)),
                rack=config.optional_str("broker.rack"),
            ),
            seen_offset=lambda: self.feed.seen_offset,
            changed=lambda state, epoch: self.control.lease_changed(state, epoch),
            **fields,
        )
        quorum: Any = SimpleNamespace(when_known=lambda callback: None)
        self.control = ControlEnd(
            runtime, to_broker.put, self.feed, self.lifecycle, quorum, None, lambda path: None, _fails, 9.0
        )
        self.lease = self.broker.lease
        self.lease.follow()
        self.control.start()

    @property
    def state(self) -> BrokerState:
        assert self.lease.state is self.lifecycle.state
        return self.lease.state

    @property
    def broker_epoch(self) -> int:
        assert self.lease.broker_epoch == self.lifecycle.broker_epoch
        return self.lease.broker_epoch

    @property
    def caught_up(self) -> asyncio.Future[None]:
        return self.lease.caught_up

    @property
    def running(self) -> asyncio.Future[None]:
        return self.lease.running

    @property
    def shutdown_granted(self) -> asyncio.Future[None]:
        return self.lease.shutdown_granted

    def start(self, endpoints: list[Endpoint]) -> None:
        self.lifecycle.start(endpoints)

    def ready_to_unfence(self) -> asyncio.Future[None]:
        return self.lease.ready_to_unfence()

    def announce_running(self) -> None:
        self.lease.announce_running()

    def begin_controlled_shutdown(self, fenced: Callable[[], None] = lambda: None) -> asyncio.Future[None]:
        return self.lease.begin_controlled_shutdown(fenced)

    def stop(self) -> None:
        self.lifecycle.stop()
