"""Fault rules, the clock and sessions over HTTP, for tests in any language: `pykbroker start --faults 127.0.0.1:9405`,
or `faults_over_http` of a Broker or Cluster.

Responsible for the address, which is loopback unless names are given under which other machines reach it, and for the
thread that serves it. The numbers of connections and rules (faults/rule_set.py) and the bytes and the time of a request
are limited. Requests and answers are in faults_api.py. A broker with an authorizer does not get this server.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable

from pykbroker.config.authorization import AUTHORIZER
from pykbroker.config.kinds import ConfigError, is_loopback
from pykbroker.config.listeners import host_and_port, local_host
from pykbroker.config.typed_config import Config
from pykbroker.dispatch.dispatcher import Forward
from pykbroker.dispatch.services import BrokerServices
from pykbroker.net.http_server import HttpBounds, HttpServer
from pykbroker.runtime import OsRuntime
from pykbroker.testing.client_time import ClientTime, MovedClock
from pykbroker.testing.clock import Clock
from pykbroker.testing.faults.rule_set import Faults
from pykbroker.testing.faults_api import MOST_BODY_BYTES, FaultsApi, json_refusal
from pykbroker.testing.groups import end_session as end_session_of
from pykbroker.testing.traffic import Traffic
from pykbroker.testing.watched_dispatcher import WatchedDispatcher

logger = logging.getLogger(__name__)

MOST_CONNECTIONS = 32
#: The longest time in which a request must arrive.
REQUEST_SECONDS = 10.0


def require_servable(config: Config) -> None:
    """Raise ConfigError if a node with this configuration cannot have a server of fault rules."""
    if not config.is_broker:
        raise ConfigError("fault rules go with a broker: requests to a controller pass no rule")
    if config.optional_str(AUTHORIZER):
        raise ConfigError(
            f"fault rules over HTTP go without an authorizer ({AUTHORIZER}): what reaches their address would "
            "be asked for no permission"
        )


class FaultsServer:
    """Make it before the nodes, and pass `make_dispatcher` and `make_client_clock` to each of them. `start` takes the
    address, `close` releases it.

    `address`: `host:port`, where port 0 takes a free one. `hosts`: names under which other machines reach it; without
    them the address must be loopback. `faults`: the rules; without them it makes its own. `clock` and
    `end_session`: those of nodes that run already.
    """

    def __init__(
        self,
        address: str,
        hosts: Iterable[str] = (),
        *,
        faults: Faults | None = None,
        clock: Clock | None = None,
        end_session: Callable[[str, str], bool] | None = None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """Raises ConfigError for an address that cannot be served."""
        host, colon, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(f"--faults wants HOST:PORT, as in 127.0.0.1:9405, not {address}")
        names = tuple(hosts)
        self._client_time = ClientTime()
        own = Clock(self._client_time, lambda: (), lambda node: True)
        #: those of the node that `make_dispatcher` was called for
        self._services: BrokerServices | None = None
        api = FaultsApi(
            Faults() if faults is None else faults,
            own if clock is None else clock,
            self._end_session if end_session is None else end_session,
            names,
        )
        if not api.has_own_names and not is_loopback(host):
            raise ConfigError(
                f"--faults {address} can be reached from other machines, and asks for no password: give the name under "
                "which they reach it with --faults-host, or a loopback address"
            )
        self._host, self._port = host, int(port)
        self.faults = api.faults
        self._api = api
        self._bounds = HttpBounds(MOST_CONNECTIONS, MOST_BODY_BYTES, request_seconds)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        #: set when the address is taken, or cannot be
        self._is_there = threading.Event()
        self._failure: Exception | None = None

    def make_dispatcher(self, services: BrokerServices, forward: Forward[BrokerServices]) -> WatchedDispatcher:
        """Return the dispatcher of a node, whose groups are those of `/groups/expire`."""
        self._services = services
        return WatchedDispatcher(services, forward, self.faults, Traffic())

    def _end_session(self, group_id: str, member_id: str) -> bool:
        services = self._services
        if services is None:
            return False

        async def end() -> bool:
            return end_session_of(services, group_id, member_id)

        return asyncio.run_coroutine_threadsafe(end(), services.runtime.loop).result()

    def make_client_clock(self, loop: asyncio.AbstractEventLoop) -> MovedClock:
        """Return the clock that clients of a node feel, on this loop."""
        return self._client_time.clock_of(loop)

    @property
    def address(self) -> str:
        """`host:port`, after the start."""
        assert self._thread is not None, "the server of fault rules is not started"
        return host_and_port(self._host, self._port)

    @property
    def url(self) -> str:
        """Where programs on this machine add rules, after the start."""
        assert self._thread is not None, "the server of fault rules is not started"
        return f"http://{host_and_port(local_host(self._host), self._port)}/faults"

    def start(self) -> None:
        """Take the address and serve it on a thread. Raises OSError, or another exception that kept it from
        serving."""
        self._is_there.clear()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        self._thread.start()
        self._is_there.wait()
        if self._failure is not None:
            error, self._failure = self._failure, None
            self._thread.join()
            self._thread = None
            if not isinstance(error, OSError):
                raise error
            reason = error.strerror or str(error)
            wanted = host_and_port(self._host, self._port)
            raise OSError(error.errno, f"Fault rules cannot be taken at {wanted}: {reason}") from error
        logger.warning("Fault rules are taken at http://%s/faults: what reaches it may break any request", self.address)

    def close(self) -> None:
        """Stop serving. The rules stay active. A second call changes nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            if self._is_there.is_set():
                raise
            self._failure = error  # `start` raises it
        finally:
            self._is_there.set()

    async def _serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        runtime = OsRuntime(loop)
        server = HttpServer(
            runtime, self._host, self._port, self._api.answer, bounds=self._bounds, refusal=json_refusal
        )
        try:
            await server.open()
            self._port = server.port
            self._is_there.set()
            await self._stop.wait()
        finally:
            server.close()
            runtime.close()
