"""The base of both halves of a node (Apache Kafka's SharedServer), on the loop of the controller half.

Responsible for the order of a start: the log directories (node_directories.py), then this node's replica of the quorum,
then the metadata. It uses neither half.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pykbroker.config.kinds import ConfigError
from pykbroker.config.typed_config import Config
from pykbroker.liveness import EARLY_FENCING
from pykbroker.liveness.lost_peers import LostPeers
from pykbroker.metadata.config_watch import ConfigWatch
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.node.advertised import Advertised, NoNameError, advertise
from pykbroker.node.loop_side import LoopSide
from pykbroker.node.node_directories import KeptStop, NodeDirectories
from pykbroker.node.parts import StartedParts
from pykbroker.node.ports import connections_of
from pykbroker.node.quorum_settings import quorum_config
from pykbroker.node.start_options import StartOptions
from pykbroker.node.ways_to_nodes import refuse_scram_of_voters
from pykbroker.plugins.topic_policies import Policies
from pykbroker.quorum.channel import SocketPeers
from pykbroker.quorum.driver import QuorumDriver
from pykbroker.runtime import Runtime
from pykbroker.storage.bare_directories import check_metadata
from pykbroker.storage.format import StorageFormatError
from pykbroker.storage.space import DiskSpace
from pykbroker.storage.stored_levels import check_levels
from pykbroker_log.disk import Disk
from pykbroker_raft.metadata_storage import UNUSABLE
from pykbroker_wire.primitives import random_uuid

logger = logging.getLogger(__name__)

StartError = StorageFormatError


class SharedServer:
    """Call `open`, `start` and `load` once each, in this order. `open` and `start` put the parts that must be closed on
    the stack."""

    def __init__(
        self,
        config: Config,
        runtime: Runtime,
        disk: Disk,
        *,
        options: StartOptions,
        on_failure: Callable[[BaseException], None],
        ending: Callable[[], KeptStop],
    ) -> None:
        """`disk`: the disk of the logs, which the broker half reads and writes. `on_failure` is called if the metadata
        log is lost; the node must then end. `ending` is called when the directories are closed. Raises ConfigError, as
        `LoopSide` does."""
        self.config = config
        self.runtime = runtime
        self.directories = NodeDirectories(config, runtime, disk)
        self.loader = MetadataLoader()
        self.side = LoopSide(
            config,
            runtime,
            self.loader,
            config.listeners.controller,
            connections_of(runtime.most_connections, config.listeners)[1],
            lambda: self.cluster_id,
        )
        #: identifies this start of the node in its registrations
        self.incarnation_id = random_uuid(runtime.random)
        self.policies = Policies.of(config) if config.is_controller else Policies()
        self.options = options
        self._on_failure = on_failure
        self._ending = ending
        self._advertised: Advertised | None = None
        self._quorum: QuorumDriver | None = None
        self._leader_left: Callable[[int], object] | None = None
        self._is_loaded = False
        self._when_loaded: list[Callable[[], None]] = []

    @property
    def quorum(self) -> QuorumDriver:
        assert self._quorum is not None, "the shared part is not started"
        return self._quorum

    @property
    def started_quorum(self) -> QuorumDriver | None:
        """The quorum's driver, or None before it is made."""
        return self._quorum

    @property
    def cluster_id(self) -> str:
        return self.directories.formatted.cluster_id

    @property
    def advertised(self) -> Advertised:
        assert self._advertised is not None, "the shared part is not open"
        return self._advertised

    async def open(self, parts: StartedParts) -> None:
        """Open and lock the directories, and bind the controller's ports. Raises StartError or OSError."""
        advertised = self._advertised = await self._advertise()
        parts.add("log directories", self._close_directories)
        self.directories.open(may_format=self.options.may_format)
        check_metadata(self.runtime.disk, self.config, self.directories.log_dirs, advertised.controller)
        check_levels(self.runtime.disk, self.config.metadata_log_dir)
        await self.side.start(parts)

    async def start(self, parts: StartedParts) -> None:
        """Start this node's replica of the quorum. Raises StartError or OSError."""
        config = self.config
        lost = None
        if config.bool(EARLY_FENCING):
            lost = LostPeers(
                self.runtime,
                self.side.prober,
                lambda address: self.quorum.peer_refused(*address),
                left=lambda address: self._left(*address),
            )
            parts.add("lost peers", lost.close)
        peers = SocketPeers(self.runtime, f"raft-client-{config.node_id}", self.side.ways.to_controllers.setup, lost)
        quorum = self._quorum = QuorumDriver(
            self.runtime,
            quorum_config(config, self.directories.formatted, self.side.ports.advertised(self.advertised.controller)),
            peers,
            on_failure=self._on_failure,
            on_snapshot_due=self.loader.write_snapshot,
        )
        if not config.is_broker:
            self._keep_reserve(quorum, parts)
        parts.add("quorum", quorum.stop)
        try:
            await quorum.start(stands=self.options.stands)
        except UNUSABLE as error:
            raise StartError(f"The metadata log in {config.metadata_log_dir} cannot be used: {error}") from error
        try:
            refuse_scram_of_voters(config, self._coming_voters())
        except ConfigError as error:
            raise StartError(str(error)) from None

    def _keep_reserve(self, quorum: QuorumDriver, parts: StartedParts) -> None:
        """Restore the reserve of the metadata log, on a node without a broker half. On other nodes the broker half does
        that, because its appends must leave room for the reserve."""
        space = DiskSpace(self.runtime)
        parts.add("disk space", space.close)
        space.keep_reserve(quorum, (), self.config.int("pykbroker.metadata.reserve.bytes"))
        quorum.when_known(lambda known: space.reserve_given_up() if known.is_short_of_room else None)

    async def _advertise(self) -> Advertised:
        """Return the advertised listeners. This comes before anything is opened, so if a controller's machine has no
        name, the failed start has changed nothing."""
        try:
            advertised = await advertise(self.config.listeners, self.runtime.own_name)
        except NoNameError as error:
            raise StartError(str(error)) from None
        for note in advertised.notes:
            logger.info("%s", note)
        if advertised.warning is not None:
            logger.warning("%s", advertised.warning)
        return advertised

    def when_leader_left(self, callback: Callable[[int], object]) -> None:
        """Set the callback for a quorum leader that has ended its connection and is not back; it gets the leader's id.
        Call this once."""
        assert self._leader_left is None, "one part asks"
        self._leader_left = callback

    def _left(self, host: str, port: int) -> None:
        leader = self.quorum.leader
        if self._leader_left is not None and leader is not None and (leader.host, leader.port) == (host, port):
            self._leader_left(leader.id)

    def _coming_voters(self) -> int:
        """Return the number of voters, including this controller if it is going to join them."""
        known = {voter.key.id for voter in self.quorum.voters}
        joins = self.config.bool("controller.quorum.auto.join.enable") and self.config.node_id not in known
        return max(1, len(known)) + joins

    def when_loaded(self, callback: Callable[[], None]) -> None:
        """Call `callback` when all metadata that was committed at this node's start is published. Call it at once if
        that has happened."""
        if self._is_loaded:
            callback()
        else:
            self._when_loaded.append(callback)

    def load(self) -> None:
        """Follow the quorum. From now on publishers get the metadata."""
        self.loader.add_publisher(ConfigWatch(self.config, lambda line: self._on_failure(StartError(line))))
        self.side.follow()
        self.quorum.register(self.loader, self._up_to_date)

    def _up_to_date(self) -> None:
        self._is_loaded = True
        self.side.complete_initial_load()
        for tell in self._when_loaded:
            tell()

    async def _close_directories(self) -> None:
        jobs = self.side.live.current.int("num.recovery.threads.per.data.dir")
        await self.directories.close(self._ending(), jobs)
