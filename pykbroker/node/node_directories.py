"""The log directories of a node from its start to its end: formatted, locked, open, failed, closed.

Responsible for deciding whether a directory that cannot be opened stops the start, and for the list of failed
directories. The broker half uses the open directories and reports their failures. Not responsible for what a directory
holds (storage/), nor for the replica of the metadata log (quorum/).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from pykbroker.config.typed_config import Config
from pykbroker.runtime import Runtime
from pykbroker.storage.directories import close
from pykbroker.storage.format import (
    Formatted,
    StorageFormatError,
    directories_of,
    format_directories,
    is_unused,
    read_format,
)
from pykbroker_log.disk import Disk
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_wire.primitives import random_uuid, uuid_to_str

logger = logging.getLogger(__name__)


class KeptStop(NamedTuple):
    """The facts about a stop that are written to the directories: if it was clean, and the broker's epoch (-1 for
    none)."""

    clean: bool
    broker_epoch: int


class NodeDirectories:
    """Call `open` once. After it, call `close` also if it has raised."""

    def __init__(self, config: Config, runtime: Runtime, disk: Disk) -> None:
        """`disk`: the disk of the logs, which the broker half reads and writes."""
        self._config = config
        self._runtime = runtime
        self._disk = disk
        #: all directories in the order of the configuration; only the broker half uses them while it runs, if the node
        #: has one
        self.log_dirs: list[LogDir] = []
        self._offline: set[str] = set()
        self._formatted: Formatted | None = None

    @property
    def formatted(self) -> Formatted:
        assert self._formatted is not None, "the directories are not open"
        return self._formatted

    @property
    def offline(self) -> tuple[str, ...]:
        """The paths of the directories that have failed, in the order of `log_dirs`."""
        return tuple(log_dir.path for log_dir in self.log_dirs if log_dir.path in self._offline)

    def failed(self, path: str) -> None:
        """Record a failed directory."""
        self._offline.add(path)

    def open(self, *, may_format: bool) -> None:
        """Open and lock the directories. `may_format`: first format them for a new cluster if all are unused. Raises
        StorageFormatError."""
        disk, config, runtime = self._disk, self._config, self._runtime
        paths = directories_of(config)
        if may_format and all(is_unused(disk, path) for path in paths):
            cluster_id = uuid_to_str(random_uuid(runtime.random))
            format_directories(disk, config, cluster_id, runtime.random, now_ms=runtime.now_ms())
            logger.info("Formatted %s for the new cluster %s", ", ".join(paths), cluster_id)
        formatted = read_format(disk, config, runtime.random, now_ms=runtime.now_ms())
        for path in paths:
            log_dir = self._open_directory(path, formatted)
            self.log_dirs.append(log_dir)
            if log_dir.offline:
                self._offline.add(path)
        self._formatted = formatted

    def _open_directory(self, path: str, formatted: Formatted) -> LogDir:
        """Open a directory. If that fails, return it as offline, as Apache Kafka does. Raises StorageFormatError for
        the directory of the metadata log, and for a directory that another process uses."""
        disk = self._disk
        reason = formatted.broken.get(path)
        if reason is None:
            try:
                return LogDir.open(disk, path, formatted.directory_ids[path], self._runtime.now_ms())
            except BlockingIOError as error:
                raise StorageFormatError(
                    f"log directory {path} cannot be used: {error}. Stop the process that uses it and wait for its end"
                ) from error
            except (StorageError, OSError) as error:
                if path == self._config.metadata_log_dir:
                    raise StorageFormatError(f"log directory {path} cannot be used: {error}") from error
                reason = str(error)
        logger.error("Log directory %s: offline from the start: %s", path, reason)
        return LogDir.out_of_order(disk, path)

    async def close(self, ending: KeptStop, jobs: int) -> None:
        """Close each directory. `jobs`: the number of threads for the logs of one directory."""
        for log_dir in self.log_dirs:
            try:
                await close(self._runtime, log_dir, clean=ending.clean, broker_epoch=ending.broker_epoch, jobs=jobs)
            except StorageError as error:
                logger.error("Log directory %s: cannot be closed cleanly: %s", log_dir.path, error)
