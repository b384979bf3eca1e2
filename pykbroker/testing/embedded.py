"""A node inside another process: `with pykbroker.Broker() as broker: broker.bootstrap_servers`.

The node runs in a thread of its own with a loop of its own (node_thread.py). It changes no setting of its host process.
`async with` does the same without blocking the host's loop.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile
from pykbroker.config.start_up import start_config
from pykbroker.config.typed_config import Config
from pykbroker.metadata.image import MetadataImage
from pykbroker.metadata.restored import Restored
from pykbroker.node.node import Node
from pykbroker.node.start_options import StartOptions
from pykbroker.runtime import OsRuntime
from pykbroker.storage.format import StorageFormatError, directories_of
from pykbroker.testing.arrangement import CONTROLLER_SECONDS, Arranged, as_text
from pykbroker.testing.asynchronous import on_thread
from pykbroker.testing.broker_files import BrokerFiles
from pykbroker.testing.client_time import NEVER_MOVED, ClientTime
from pykbroker.testing.clock import HasClock
from pykbroker.testing.handed_out import HandedOut, newest_group_epoch
from pykbroker.testing.inspection import KnownTopic, topics_of
from pykbroker.testing.internal_topics import SMALL_INTERNAL_TOPICS
from pykbroker.testing.kept_ports import KeptPorts
from pykbroker.testing.node_thread import NodeThread
from pykbroker.testing.release_levels import NEWEST_RELEASE, format_unused, levels_of
from pykbroker.testing.saved_state import SavedState
from pykbroker.testing.share_deliveries import SharesInProcess, T
from pykbroker.testing.watched import Watched
from pykbroker.testing.with_block import WithBlock
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.volatile import VolatileDisk


class Broker(WithBlock, HasClock, Watched, SharesInProcess, Arranged):
    """A single combined node.

    `config`: Kafka's configuration keys, which override the development profile. `data_dir`: a directory that is not
    removed; without it the node uses a temporary directory, does not wait until a device has its bytes, and makes its
    internal topics with 6 partitions. `port`: the port for clients; 0 takes a free port at every start, as the
    controller's listener always does. `record`: keep the requests of clients, for `requests`. `release`: the release of
    Apache Kafka at whose levels of features a new cluster begins, `4.3` or `4.4`. Without it, a broker without
    `data_dir` begins at those of 4.4, and one with it at those of `pykbroker start`. A directory that is in use already
    keeps its levels. `state`: a log directory of a broker that was stopped; this broker begins with a copy of it, in a
    temporary directory. Raises ConfigError for an unknown release, ValueError for a `state` beside a `data_dir`.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        *,
        record: bool = False,
        release: str | None = None,
        state: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(record=record)
        if data_dir is not None and state is not None:
            raise ValueError("a broker with a data_dir begins with what is there, so it takes no state")
        self._overrides = {key: as_text(value) for key, value in (config or {}).items()}
        self._files = BrokerFiles(*(None if path is None else os.fspath(path) for path in (data_dir, state)))
        self._port = port
        # A directory that stays may be taken over by Apache Kafka 4.3.
        begins_at = release or (NEWEST_RELEASE if data_dir is None else None)
        self._levels = None if begins_at is None else levels_of(begins_at)
        self._config: Config | None = None
        self._ports = KeptPorts()
        #: one thread at a time saves a state, puts one back, or stops the broker
        self._changing = threading.RLock()
        self._handed_out = HandedOut()
        self._client_time = ClientTime()
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
        try:
            directory = self._files.open()
            config = start_config({**self._profile(directory), **self._overrides})
            self._format(config)
        except (ConfigError, StorageFormatError, OSError):
            self._files.close()
            raise
        self._config = config
        self._handed_out = HandedOut()
        self._launch(None)
        return self

    def _profile(self, directory: str) -> dict[str, str]:
        profile = development_profile(directory, self._port, controller_port=0)
        return {**profile, **SMALL_INTERNAL_TOPICS} if self._files.is_temporary([directory]) else profile

    def _format(self, config: Config, cluster_id: str | None = None) -> None:
        if self._levels is not None:
            format_unused(config, self._levels, self._kind_of_disk(config)(), cluster_id)

    def _kind_of_disk(self, config: Config) -> type[OsDisk]:
        # A key of `config` may name a directory that stays.
        return VolatileDisk if self._files.is_temporary(directories_of(config)) else OsDisk

    def _launch(self, restored: Restored | None) -> None:
        """Run a node until clients are served. Raises the exception that kept it from starting; then the broker is
        stopped."""
        config = self._config
        assert config is not None
        self._failure = None
        self._ports.begin_run()
        self._run = NodeThread(
            config,
            partial(
                OsRuntime,
                two_loops=True,
                kind_of_disk=self._kind_of_disk(config),
                bind=self._ports.bind,
                make_client_clock=self._client_time.clock_of,
            ),
            options=StartOptions(may_format=True, restored=restored),
            make_dispatcher=self._make_dispatcher,
        )
        try:
            self._run.wait_until_ready()
        except BaseException:
            self.stop()
            # The failure is raised now, so the end of the block must not raise it again.
            self._failure = None
            raise

    def stop(self) -> None:
        """Shut the node down; returns when it has ended. A second call changes nothing."""
        with self._changing:
            run, self._run = self._run, None
            if run is not None:
                run.stop()
                self._failure = run.failure
            self._ports.close()
            self._files.close()

    # -- states that come back ----------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Begin again as at the first start, with the same address: empty, or with the contents of `state`. Connections
        of clients are closed, and a client that connects in the meantime waits.

        Fault rules and recorded requests stay. Clients may live on: no leader epoch and no producer id is handed out
        twice. Raises RuntimeError if the broker is not running, or if its directories stay after its end; OSError.
        """
        with self._changing:
            config, cluster_id = self._node.config, self._node.shared.cluster_id
            paths = directories_of(config)
            if not self._files.is_temporary(paths):
                raise RuntimeError(
                    "the broker's directories stay after its end, so they are not emptied: use a snapshot"
                )
            staged = self._files.stage(None)
            self._abandon()
            self._files.replace(staged, paths)
            self._client_time.go_back(NEVER_MOVED)
            # Some clients remember the id of their cluster.
            self._format(config, cluster_id)
            self._files.keep_beginning()
            self._files.keep_reserve()
            self._launch(self._handed_out.restored(0))
            self._files.tidy()

    def snapshot(self) -> SavedState:
        """Return the state of the broker, for `restore`: topics, records, committed offsets, transactions, producers,
        members of groups. The broker stands still meanwhile, and its clients notice nothing. The snapshot ends with the
        broker. Raises RuntimeError if the broker is not running, OSError."""
        with self._changing:
            run, node = self._started, self._node
            run.pause()
            try:
                copy = self._files.copy(node.shared.directories.log_dirs, node.lifecycle.broker_epoch)
                return SavedState(self, copy, node.loader.image.offset + 1, self._client_time.moved())
            finally:
                run.resume()

    def restore(self, snapshot: SavedState) -> None:
        """Put the broker back to the state of a snapshot, with the same address. Connections of clients are closed, and
        a client that connects in the meantime waits.

        The data are exact. Epochs of leaders, groups and producers are higher than all that clients have seen, so
        clients may live on; docs/testing.md lists those that must be made anew. Fault rules and recorded requests stay.
        Raises RuntimeError if the broker is not running, ValueError for a snapshot of another broker or one that was
        deleted, OSError. If there is no room for the copy, the broker goes on.
        """
        with self._changing:
            node = self._node
            if snapshot.owner is not self or not snapshot.exists:
                raise ValueError("this snapshot was deleted, or is of another broker")
            paths = [log_dir.path for log_dir in node.shared.directories.log_dirs]
            staged = self._files.stage(snapshot.path)
            self._abandon()
            self._files.replace(staged, paths)
            self._client_time.go_back(snapshot.moved)
            self._files.keep_reserve()
            self._launch(self._handed_out.restored(snapshot.end_offset))
            self._files.tidy()

    def _abandon(self) -> None:
        """End the node, whose files are about to be replaced."""
        run, node = self._started, self._node
        self._handed_out.note(node.loader.image, newest_group_epoch(node))
        run.abandon()
        self._run = None

    start_async = on_thread(start)
    stop_async = on_thread(stop)
    reset_async = on_thread(reset)
    snapshot_async = on_thread(snapshot)
    restore_async = on_thread(restore)

    def _end_block(self) -> None:
        self.stop()
