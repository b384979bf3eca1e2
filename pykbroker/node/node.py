"""A node: the shared part, and a controller half, a broker half, or both (process.roles).

The halves share this node's replica of the metadata log. They exchange protocol messages over channels to the active
controller, which may be on this node or another. Responsible for starting the parts in order, and for closing the
started parts in reverse. Not responsible for the parts of a half.

Start: directories locked and formatted -> ports bound -> quorum -> controller half -> broker half registered ->
unfenced -> ready. While the node serves, logs are opened on first use or recovered.
Stop: controlled shutdown, then the stack of started parts in reverse. The log directories are closed last, with their
logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pykbroker.config import checks, protection, silent
from pykbroker.config.authorization import AUTHORIZER
from pykbroker.config.listeners import EndPoint, local_host
from pykbroker.config.typed_config import Config
from pykbroker.dispatch.dispatcher import Dispatcher, MakeDispatcher
from pykbroker.dispatch.services import BrokerServices
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.metrics.registry import Sample, merged
from pykbroker.net.listener import Listener
from pykbroker.node.broker_half import BrokerHalf
from pykbroker.node.broker_loop import BrokerLoop
from pykbroker.node.controller_half import ControllerHalf
from pykbroker.node.node_directories import KeptStop
from pykbroker.node.node_health import HEALTH_SOCKET, HealthSocket, NodeHealth
from pykbroker.node.parts import StartedParts
from pykbroker.node.shared import SharedServer, StartError
from pykbroker.node.start_options import AS_USUAL, StartOptions
from pykbroker.node.turn_report import SlowTurnReport
from pykbroker.node_to_controller.controller_channel import ControllerChannel
from pykbroker.node_to_controller.lifecycle import BrokerLifecycle
from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

#: A longer limit counts as no limit, because the default is 292 million years.
_LONGEST_START_MS = 10**12
#: The longest wait for the metrics of the broker half.
_SAMPLE_SECONDS = 1.0


class Node:
    """One process of a cluster."""

    def __init__(
        self,
        config: Config,
        runtime: Runtime,
        *,
        options: StartOptions = AS_USUAL,
        make_dispatcher: MakeDispatcher = Dispatcher,
        usual_health_socket: str | None = None,
    ) -> None:
        """`make_dispatcher` makes the dispatcher of the broker half's listeners. `usual_health_socket`: the path of the
        health socket, in a log directory, if pykbroker.health.socket is not set. Raises ConfigError for a configuration
        that promises protection which pykbroker does not have, or that names a class which it does not have."""
        protection.refuse(config.overrides())
        checks.require_replica_selector(config)
        checks.require_share_persister(config)
        self.config = config
        self.runtime = runtime
        self._usual_health_socket = usual_health_socket
        #: the path of the health socket, once it is open
        self.health_socket: str | None = None
        #: the URL of the metrics for Prometheus, once they are served
        self.metrics_url: str | None = None
        self.fatal: BaseException | None = None
        beside = runtime.beside() if config.is_broker else None
        self.shared = SharedServer(
            config,
            runtime,
            (runtime if beside is None else beside.runtime).disk,
            options=options,
            on_failure=self._fail,
            ending=self._ending,
        )
        self._broker_loop = None if beside is None else BrokerLoop(self.shared, beside, self._fail, make_dispatcher)
        self._parts = StartedParts()
        self._controller: ControllerHalf | None = None
        self._on_fatal: Callable[[], None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._is_abandoned = False

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first broker listener, or of all controller listeners if there is no broker half, for
        programs on this machine."""
        listeners = self.config.listeners
        if self._broker_loop is not None:
            return self._broker_loop.side.ports.local_addresses(listeners.broker[:1])
        return self.shared.side.ports.local_addresses(listeners.controller)

    async def samples(self) -> list[Sample]:
        """Return the metrics of both halves, sorted by name. If the broker half does not return its metrics within a
        second, its previous metrics are used."""
        own = self.shared.side.metrics.samples()
        if self._broker_loop is None:
            return list(own)
        return merged(own, await self._broker_loop.samples(_SAMPLE_SECONDS))

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """All listeners whose port is bound, those of the broker half first."""
        own = self.shared.side.ports.bound
        return own if self._broker_loop is None else (*self._broker_loop.side.ports.bound, *own)

    def port_of(self, point: EndPoint) -> int:
        """Return the port of a listener: the bound port if it is bound, else the configured port."""
        return next((found.port for found in self.listeners if found.name == point.listener_name), point.port)

    @property
    def local_end_points(self) -> tuple[EndPoint, ...]:
        """All listeners, those of the broker half first, each with its bound port and with the host under which
        programs on this machine reach it."""
        points = (*self.config.listeners.broker, *self.config.listeners.controller)
        return tuple(replace(point, host=local_host(point.host), port=self.port_of(point)) for point in points)

    @property
    def loader(self) -> MetadataLoader:
        """The content of the metadata log."""
        return self.shared.loader

    @property
    def broker(self) -> BrokerHalf:
        half = self._half
        assert half is not None, "this node has no broker half, or is not started"
        return half

    @property
    def _half(self) -> BrokerHalf | None:
        return None if self._broker_loop is None else self._broker_loop.half

    @property
    def controller(self) -> ControllerHalf:
        assert self._controller is not None, "this node has no controller half, or is not started"
        return self._controller

    @property
    def broker_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the broker half."""
        assert self._broker_loop is not None, "this node has no broker half"
        return self._broker_loop.side.runtime.loop

    @property
    def lifecycle(self) -> BrokerLifecycle:
        """The membership of this broker."""
        found = None if self._broker_loop is None else self._broker_loop.lifecycle
        assert found is not None, "this node has no broker half, or is not started"
        return found

    @property
    def services(self) -> BrokerServices:
        """The parts of the broker half."""
        return self.broker.services

    def call(self, request: Any) -> Any:
        """Handle a request of this process in the broker half. Return a response, or a future or promise of one."""
        return self.broker.call(request)

    def recovery_progress(self) -> tuple[int, int, int] | None:
        """Return (bytes checked, bytes to check, logs left) while logs of an unclean stop are recovered."""
        return None if self._broker_loop is None else self._broker_loop.recovery_progress()

    def health(self) -> NodeHealth:
        """Return the health of the node. It can be called at any time, also before the start."""
        config, broker, quorum = self.config, self._broker_loop, self.shared.started_quorum
        return NodeHealth(
            node_id=config.node_id,
            broker=None if broker is None else broker.state,
            active=self.loader.image.broker_is_active(config.node_id),
            leader_id=None if quorum is None else quorum.leader_id,
            is_controller=config.is_controller,
            offline_directories=self.shared.directories.offline,
            broker_silent_seconds=0.0 if broker is None else broker.silent_seconds,
        )

    def on_fatal(self, callback: Callable[[], None]) -> None:
        """Set the callback for the case that the node cannot continue; `fatal` then has the reason. Call this once."""
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
        """Start every part. When this returns, clients are served. Raises StartError or OSError.

        If the start fails, it stops the parts that it has started. If the start is cancelled, it does not stop them:
        the caller must call `stop`, and decides how long to wait for that.
        """
        limit_ms = self.config.int("server.max.startup.time.ms")
        starting = self._starting = asyncio.current_task()
        try:
            async with asyncio.timeout(limit_ms / 1000 if limit_ms < _LONGEST_START_MS else None):
                await self._start()
        except asyncio.CancelledError:
            if self.fatal is None:
                raise
            # A part cannot continue. `_fail` has logged the reason and cancelled this task, because the event that it
            # awaited will not come.
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
        path = config.optional_str(HEALTH_SOCKET)
        if path:
            await self._open_health_socket(path)
        await self._open_metrics_listener()
        await shared.open(parts)
        if self._usual_health_socket is not None and config.is_default(HEALTH_SOCKET):
            await self._try_health_socket(self._usual_health_socket)
        if self._broker_loop is not None:
            await self._broker_loop.bind(parts)
        await shared.start(parts)
        controller = self._controller = ControllerHalf(shared) if config.is_controller else None
        if controller is not None:
            controller.start(parts)
        # The loader starts after the controller, so that the controller is active before the loader notifies any part
        # that this node is the leader.
        shared.load()
        if controller is not None:
            await controller.serve(parts)
            controller.register(self._channel_to_controller("registration"), parts)
        if self._broker_loop is not None:
            await self._broker_loop.start(parts, None if controller is None else controller.call)
            # Some tools wait for this log line, which Apache Kafka's brokers already wrote before KRaft.
            logger.info("[KafkaServer id=%d] started", config.node_id)
        if self._broker_loop is None or self._broker_loop.has_own_loop:
            parts.add(
                "watch over slow turns",
                self.runtime.watch_turns(SlowTurnReport(shared.side.metrics, "The control loop")),
            )
        logger.info("[KafkaRaftServer nodeId=%d] Kafka Server started", config.node_id)

    async def _open_health_socket(self, path: str) -> None:
        socket = HealthSocket(self.runtime, path, self.health)
        self._parts.add("health socket", socket.close)
        await socket.open()
        self.health_socket = path

    async def _try_health_socket(self, path: str) -> None:
        """Open the health socket in a directory that this node has locked, so no other node opens it too. A node whose
        configuration names no socket starts even if the socket cannot be opened."""
        try:
            await self._open_health_socket(path)
        except OSError as error:
            logger.info("There is no health socket, so `pykbroker health` does not find this node: %s", error)

    async def _open_metrics_listener(self) -> None:
        address = self.config.optional_str("pykbroker.metrics.listener")
        if address:
            # The module needs h11, which a node without this listener never imports.
            from pykbroker.node.metrics_listener import open_metrics_listener

            protocols = {point.security_protocol for point in self.config.listeners.all}
            is_secured = protocols != {"PLAINTEXT"} or bool(self.config.optional_str(AUTHORIZER))
            opened = await open_metrics_listener(self.runtime, address, self.samples, is_secured=is_secured)
            self._parts.add("metrics listener", opened.close)
            self.metrics_url = opened.url

    def _channel_to_controller(self, purpose: str) -> ControllerChannel:
        """Return a channel for one purpose, named as in Apache Kafka. Each purpose has its own connection."""
        channel = ControllerChannel(
            self.runtime,
            self.shared.quorum,
            self.loader,
            f"broker-{self.config.node_id}",
            self.shared.side.ways.to_controllers.setup,
            local=None if self._controller is None else self._controller.call,
        )
        self._parts.add(f"{purpose} channel to the controller", channel.close)
        return channel

    # -- stop ---------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Do a controlled shutdown, as far as the node has started. A second call waits for the end of the first."""
        if self._stopping is None:
            self._stopping = self.runtime.loop.create_task(self._stop(), name=f"stop of node {self.config.node_id}")
        # If the caller is cancelled, the stop continues, because an unfinished stop would leave directories locked.
        await asyncio.shield(self._stopping)

    async def abandon(self) -> None:
        """Stop without a controlled shutdown, and write nothing for the next start: the files are about to be
        replaced."""
        self._is_abandoned = True
        await self.stop()

    async def _stop(self) -> None:
        broker = self._broker_loop
        is_controlled = self.fatal is None and not self._is_abandoned
        if broker is not None and is_controlled and self.config.bool("controlled.shutdown.enable"):
            await broker.shut_down()
        await self._parts.close()
        logger.info("[KafkaRaftServer nodeId=%d] shut down completed", self.config.node_id)

    def _ending(self) -> KeptStop:
        """Return the record of this stop. `SharedServer` calls this when it closes the log directories, after the
        broker half was closed."""
        broker = self._broker_loop
        if broker is None or broker.half is None:
            return KeptStop(clean=False, broker_epoch=-1)
        return KeptStop(clean=self.fatal is None and not self._is_abandoned, broker_epoch=broker.broker_epoch)
