"""A node: the shared part, a controller half, a broker half, or both (process.roles).

The halves share the quorum's replica of the metadata log and exchange protocol messages over channels to the active
controller, which may be this node's or another's. Responsible for starting them in order and for closing in reverse
what was started; not responsible for what they are made of.

Start: directories locked and formatted -> ports bound -> quorum -> controller half -> broker half registered ->
unfenced -> ready; logs are opened on first use, or recovered, while it serves.
Stop: controlled shutdown, then the stack of started parts in reverse; the directories come last, and with them their
logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from pykbroker.config import checks, protection, silent
from pykbroker.config.authorization import AUTHORIZER
from pykbroker.config.load import Config
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.metrics.registry import Metrics
from pykbroker.node.broker_half import BrokerHalf
from pykbroker.node.controller_half import ControllerHalf
from pykbroker.node.node_health import HealthSocket, NodeHealth
from pykbroker.node.parts import StartedParts
from pykbroker.node.shared import Ending, SharedServer, StartError
from pykbroker.node.turn_report import SlowTurns
from pykbroker.node_to_controller.controller_channel import ControllerChannel
from pykbroker.node_to_controller.lifecycle import BrokerState
from pykbroker.runtime import Runtime
from pykbroker.serving.dispatch import Dispatcher, MakeDispatcher
from pykbroker.serving.services import BrokerServices

logger = logging.getLogger(__name__)

#: A bound beyond this is none: the default is 292 million years.
_LONGEST_START_MS = 10**12


class Node:
    """One process of a cluster."""

    def __init__(
        self,
        config: Config,
        runtime: Runtime,
        *,
        may_format: bool = False,
        make_dispatcher: MakeDispatcher = Dispatcher,
    ) -> None:
        """ConfigError for a configuration that promises protection which is not given, or names a class that is not
        there. `make_dispatcher`: of the broker half's listeners."""
        protection.refuse(config.overrides())
        checks.require_replica_selector(config)
        self.config = config
        self.runtime = runtime
        self.fatal: BaseException | None = None
        self.shared = SharedServer(config, runtime, may_format=may_format, on_failure=self._fail, ending=self._ending)
        self._make_dispatcher = make_dispatcher
        self._parts = StartedParts()
        self._controller: ControllerHalf | None = None
        self._broker: BrokerHalf | None = None
        self._on_fatal: Callable[[], None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first client listener."""
        return self.shared.ports.bootstrap_servers()

    @property
    def metrics(self) -> Metrics:
        return self.shared.metrics

    @property
    def loader(self) -> MetadataLoader:
        """What the metadata log says."""
        return self.shared.loader

    @property
    def broker(self) -> BrokerHalf:
        assert self._broker is not None, "this node has no broker half, or is not started"
        return self._broker

    @property
    def controller(self) -> ControllerHalf:
        assert self._controller is not None, "this node has no controller half, or is not started"
        return self._controller

    @property
    def services(self) -> BrokerServices:
        """The parts of the broker half."""
        return self.broker.services

    def call(self, request: Any) -> Any:
        """Handle a request of this process to the broker half: a response, or a future or promise of one."""
        return self.broker.call(request)

    def recovery_progress(self) -> tuple[int, int, int] | None:
        """(bytes checked, bytes to check, logs left) while logs of an unclean stop are recovered."""
        return None if self._broker is None else self._broker.services.replicas.logs.recovery.progress()

    def health(self) -> NodeHealth:
        """At any time, also before the node has started."""
        config, broker, quorum = self.config, self._broker, self.shared.started_quorum
        state = BrokerState.NOT_RUNNING if broker is None else broker.lifecycle.state
        return NodeHealth(
            node_id=config.node_id,
            broker=state if config.is_broker else None,
            active=self.loader.image.broker_is_active(config.node_id),
            leader_id=None if quorum is None else quorum.leader_id,
            is_controller=config.is_controller,
            offline_directories=tuple(log_dir.path for log_dir in self.shared.log_dirs if log_dir.offline),
        )

    def on_fatal(self, callback: Callable[[], None]) -> None:
        """`callback` when the node cannot go on; `fatal` says why. Once."""
        if self._on_fatal is not None:
            raise RuntimeError("on_fatal was called before")
        self._on_fatal = callback

    def _fail(self, error: BaseException) -> None:
        if self.fatal is None and self._stopping is None:
            self.fatal = error
            logger.error("[KafkaRaftServer nodeId=%d] Stopping: %s", self.config.node_id, error)
            if self._on_fatal is not None:
                self._on_fatal()
            if self._starting is not None:
                self._starting.cancel()

    # -- start --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every part; when it returns, clients are served. Raises StartError or OSError.

        A start that fails has stopped what it started. One that is cancelled has not: the caller that cancels it calls
        `stop`, and decides how long to wait for that.
        """
        limit_ms = self.config.int("server.max.startup.time.ms")
        starting = self._starting = asyncio.current_task()
        try:
            async with asyncio.timeout(limit_ms / 1000 if limit_ms < _LONGEST_START_MS else None):
                await self._start()
        except asyncio.CancelledError:
            if self.fatal is None:
                raise
            # What start waited for will not come: a part has given up and said why. It cancelled this task.
            if starting is not None:
                starting.uncancel()
            failure: Exception = StartError(str(self.fatal))
        except TimeoutError:
            failure = StartError(f"the node was not up within {limit_ms} ms (server.max.startup.time.ms)")
        except Exception as error:  # noqa: BLE001  # raised again when everything is closed
            failure = error
        else:
            return
        finally:
            self._starting = None
        await self.stop()
        raise failure

    async def _start(self) -> None:
        config, shared, parts = self.config, self.shared, self._parts
        for warning in (*config.warnings, *silent.warnings(config)):
            logger.warning("%s", warning)
        await self._open_health_socket()
        await self._open_metrics_listener()
        await shared.start(parts)
        controller = self._controller = ControllerHalf(shared) if config.is_controller else None
        if controller is not None:
            controller.start(parts)
        # After the controller: a part that hears of a leader from the loader finds it active.
        shared.load()
        if controller is not None:
            await controller.serve(parts)
            controller.register(self._channel_to_controller("registration"), parts)
        if config.is_broker:
            self._broker = BrokerHalf(shared, self._channel_to_controller, self._fail, self._make_dispatcher)
            await self._broker.start(parts)
            # The line that tools wait for since before KRaft.
            logger.info("[KafkaServer id=%d] started", config.node_id)
        parts.add("watch over slow turns", self.runtime.watch_turns(SlowTurns(shared.metrics)))
        logger.info("[KafkaRaftServer nodeId=%d] Kafka Server started", config.node_id)

    async def _open_health_socket(self) -> None:
        path = self.config.optional_str("pykbroker.health.socket")
        if path:
            socket = HealthSocket(self.runtime, path, self.health)
            self._parts.add("health socket", socket.close)
            await socket.open()

    async def _open_metrics_listener(self) -> None:
        address = self.config.optional_str("pykbroker.metrics.listener")
        if address:
            # It needs h11, which a node without it never loads.
            from pykbroker.node.metrics_listener import open_metrics_listener

            protocols = {point.security_protocol for point in self.config.listeners.all}
            is_secured = protocols != {"PLAINTEXT"} or bool(self.config.optional_str(AUTHORIZER))
            close = await open_metrics_listener(self.runtime, address, self.metrics, is_secured=is_secured)
            self._parts.add("metrics listener", close)

    def _channel_to_controller(self, purpose: str) -> ControllerChannel:
        """One for each purpose, under Apache Kafka's names: they share no connection."""
        channel = ControllerChannel(
            self.runtime,
            self.shared.quorum,
            self.loader,
            f"broker-{self.config.node_id}",
            self.shared.setup_to_controllers,
            local=None if self._controller is None else self._controller.call,
        )
        self._parts.add(f"{purpose} channel to the controller", channel.close)
        return channel

    # -- stop ---------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """A controlled shutdown, as far as the node came up. A second call waits for the first one's end."""
        if self._stopping is None:
            self._stopping = self.runtime.loop.create_task(self._stop(), name=f"stop of node {self.config.node_id}")
        # A caller that is cancelled leaves it running: half a stop would leave directories locked.
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self._broker is not None and self.fatal is None and self.config.bool("controlled.shutdown.enable"):
            await self._broker.shut_down()
        await self._parts.close()
        logger.info("[KafkaRaftServer nodeId=%d] shut down completed", self.config.node_id)

    def _ending(self) -> Ending:
        """Asked last of all, when the broker half is closed."""
        broker = self._broker
        if broker is None:
            return Ending(clean=False, broker_epoch=-1)
        return Ending(clean=self.fatal is None, broker_epoch=broker.lifecycle.broker_epoch)
