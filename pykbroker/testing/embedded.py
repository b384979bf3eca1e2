"""A node inside another process: `with pykbroker.Broker() as broker: broker.bootstrap_servers`.

Runs in a thread of its own with a loop of its own. It changes nothing of its host: no signals, no garbage collector
settings, no
loop policy, no root logging, no limits. `async with` does the same without blocking the host's loop.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile, load
from pykbroker.config.protection import refuse
from pykbroker.node.node import Node
from pykbroker.runtime import OsRuntime


class Broker:
    """A single combined node.

    config: Kafka's configuration keys, over the development profile. data_dir: kept at the end when given; otherwise a
    temporary directory that is removed. port: 0 takes a free one, anew with every start.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
    ) -> None:
        self._overrides = {key: _text(value) for key, value in (config or {}).items()}
        self._data_dir = None if data_dir is None else os.fspath(data_dir)
        self._port = port
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: Node | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients. Raises RuntimeError when the broker is not running."""
        if self._node is None:
            raise RuntimeError("the broker is not running")
        return self._node.bootstrap_servers

    @property
    def port(self) -> int:
        """The port of the client listener."""
        return int(self.bootstrap_servers.rpartition(":")[2])

    def metrics(self) -> dict[str, float]:
        """Kafka's metric names with their present numbers."""
        if self._node is None:
            raise RuntimeError("the broker is not running")
        return self._node.metrics.snapshot()

    def start(self) -> Self:
        """Start and wait until clients can connect. Raises what kept the node from starting."""
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="pykbroker-")
        directory = self._data_dir or (self._temporary.name if self._temporary else "")
        try:
            properties = {**development_profile(directory, self._port), **self._overrides}
            refuse(properties)
            config = load(properties)
        except ConfigError:
            self._remove_temporary()
            raise
        ready = threading.Event()
        self._failure = None

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            self._loop, self._stop = loop, asyncio.Event()
            runtime = OsRuntime(loop)
            node = Node(config, runtime, may_format=True)
            try:
                try:
                    await node.start()
                except BaseException as error:  # noqa: BLE001  # raised again in the thread that starts us
                    self._failure = error
                    return
                self._node = node
                node.on_fatal(self._stop.set)
                ready.set()
                await self._stop.wait()
                self._failure = node.fatal
            finally:
                await node.stop()
                runtime.close()
                ready.set()

        def run() -> None:
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(serve())

        self._thread = threading.Thread(target=run, name="pykbroker", daemon=True)
        self._thread.start()
        ready.wait()
        if self._failure is not None:
            failure = self._failure
            self.stop()
            raise failure
        return self

    def stop(self) -> None:
        """A controlled shutdown; returns when the node is gone. Stopping twice is fine."""
        if self._thread is None:
            return
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                pass  # the loop closed between the two lines: the thread is at its end
        self._thread.join()
        self._thread = self._loop = self._stop = self._node = None
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._raise_failure(kind)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)
        self._raise_failure(kind)

    def _raise_failure(self, kind: type[BaseException] | None) -> None:
        """A node that gave up while the block ran is the block's failure, unless it has one of its own."""
        failure, self._failure = self._failure, None
        if failure is not None and kind is None:
            raise RuntimeError(f"the broker stopped by itself: {failure}") from failure


def _text(value: object) -> str:
    """As a properties file says it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
