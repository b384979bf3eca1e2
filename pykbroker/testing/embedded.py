"""A node inside another process: `with pykbroker.Broker() as broker: broker.bootstrap_servers`.

The node runs in a thread of its own with a loop of its own (node_thread.py). It changes no setting of its host process.
`async with` does the same without blocking the host's loop.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile
from pykbroker.config.start_up import start_config
from pykbroker.config.typed_config import Config
from pykbroker.metadata.image import MetadataImage
from pykbroker.node.node import Node
from pykbroker.runtime import OsRuntime
from pykbroker.storage.format import StorageFormatError, directories_of
from pykbroker.testing.arrangement import CONTROLLER_SECONDS, Arranged, as_text
from pykbroker.testing.asynchronous import on_thread
from pykbroker.testing.inspection import KnownTopic, topics_of
from pykbroker.testing.node_thread import NodeThread
from pykbroker.testing.release_levels import NEWEST_RELEASE, format_unused, levels_of
from pykbroker.testing.share_deliveries import SharesInProcess, T
from pykbroker.testing.watched import Watched
from pykbroker.testing.with_block import WithBlock
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.volatile import VolatileDisk


class Broker(WithBlock, Watched, SharesInProcess, Arranged):
    """A single combined node.

    `config`: Kafka's configuration keys, which override the development profile. `data_dir`: a directory that is not
    removed; without it the node uses a temporary directory, and does not wait until a device has its bytes. `port`: the
    port for clients; 0 takes a free port at every start, as the controller's listener always does. `record`: keep the
    requests of clients, for `requests`. `release`: the release of Apache Kafka at whose levels of features a new
    cluster begins, `4.3` or `4.4`. Without it, a broker without `data_dir` begins at those of 4.4, and one with it at
    those of `pykbroker start`. A directory that is in use already keeps its levels. Raises ConfigError for an unknown
    release.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        *,
        record: bool = False,
        release: str | None = None,
    ) -> None:
        super().__init__(record=record)
        self._overrides = {key: as_text(value) for key, value in (config or {}).items()}
        self._data_dir = None if data_dir is None else os.fspath(data_dir)
        self._port = port
        # A directory that stays may be taken over by Apache Kafka 4.3.
        begins_at = release or (NEWEST_RELEASE if data_dir is None else None)
        self._levels = None if begins_at is None else levels_of(begins_at)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._run: NodeThread[OsRuntime] | None = None

    @property
    def _started(self) -> NodeThread[OsRuntime]:
        if self._run is None:
            raise RuntimeError("the broker is not running")
        return self._run

    @property
    def _node(self) -> Node:
        node = None if self._run is None else self._run.node
        if node is None:
            raise RuntimeError("the broker is not running")
        return node

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients. Raises RuntimeError if the broker is not running."""
        return self._node.bootstrap_servers

    @property
    def port(self) -> int:
        """The port of the client listener."""
        return int(self.bootstrap_servers.rpartition(":")[2])

    def _configs(self) -> tuple[Config, ...]:
        return (self._node.config,)

    def _ask(self, node: int, request: Any) -> Any:
        return self._started.ask(request)

    def _of_each_node(self, read: Callable[[Node], T]) -> list[T]:
        return [self._started.read(read)]

    def _ask_controller(self, request: Any) -> Any:
        return self._started.ask_controller(request, CONTROLLER_SECONDS)

    def _known_topics(self, name: str | None = None) -> Mapping[str, KnownTopic]:
        return topics_of(self._image(), name)

    def _asked_nodes(self) -> tuple[int, ...]:
        return (self._node.config.node_id,)

    def _image(self) -> MetadataImage:
        return self._node.loader.image

    def metrics(self) -> dict[str, float]:
        """Return the metrics by Kafka's names, with their current values."""
        return {sample.name: sample.value for sample in self._started.metrics()}

    def start(self) -> Self:
        """Start and wait until clients can connect. Raises the exception that kept the node from starting."""
        if self._run is not None:
            raise RuntimeError("the broker is running already")
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="pykbroker-")
        directory = self._data_dir or (self._temporary.name if self._temporary else "")
        try:
            properties = {**development_profile(directory, self._port, controller_port=0), **self._overrides}
            config = start_config(properties)
            # A key of `config` may name a directory that stays.
            is_kept = self._temporary is None or any(path != directory for path in directories_of(config))
            kind_of_disk = OsDisk if is_kept else VolatileDisk
            if self._levels is not None:
                format_unused(config, self._levels, kind_of_disk())
        except (ConfigError, StorageFormatError, OSError):
            self._remove_temporary()
            raise
        self._failure = None
        self._run = NodeThread(
            config,
            partial(OsRuntime, two_loops=True, kind_of_disk=kind_of_disk),
            may_format=True,
            make_dispatcher=self._make_dispatcher,
        )
        try:
            self._run.wait_until_ready()
        except BaseException:
            self.stop()
            # The failure is raised now, so the end of the block must not raise it again.
            self._failure = None
            raise
        return self

    def stop(self) -> None:
        """Shut the node down; returns when it has ended. A second call changes nothing."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()
            self._failure = run.failure
            self._remove_temporary()

    start_async = on_thread(start)
    stop_async = on_thread(stop)

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _end_block(self) -> None:
        self.stop()
