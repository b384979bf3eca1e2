"""`pykbroker in-container`: the commands that scripts of the container image run (docker/scripts/).

configure   write the properties file that the environment asks for
format      format the data directories for CLUSTER_ID, and check those that are formatted
launch      do both, then run the node in this process

Responsible for reading the environment and the disk; the rules are pure (pykbroker/tools/container/). `launch` does all
steps in one process, because the start of another interpreter takes as long as a node needs to become ready.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import re
import socket
import stat
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import with_overrides
from pykbroker.config.properties import parse_bytes
from pykbroker.config.start_up import start_config, start_texts
from pykbroker.config.typed_config import Config
from pykbroker.entry.health import USUAL_SOCKETS
from pykbroker.entry.node_log import log_to
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.container.data_directories import (
    DirectorySeen,
    FirstVoters,
    another_cluster,
    complaint,
    first_voters,
)
from pykbroker.tools.container.debezium import with_prefixes
from pykbroker.tools.container.environment import read_environment
from pykbroker.tools.container.mounts import data_directories, lost_data_line, read_mounts
from pykbroker.tools.container.server_properties import ServerProperties, server_properties

if TYPE_CHECKING:
    from pykbroker.testing.faults_server import FaultsServer

logger = logging.getLogger("pykbroker")

_HEALTH = "pykbroker.health.socket"
#: For tests: the options --faults and --faults-host of `pykbroker start`. They are no properties, so no properties file
#: of a node in production has them.
_FAULTS, _FAULTS_HOST = "PYKBROKER_FAULTS", "PYKBROKER_FAULTS_HOST"
_LEVELS = {"TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "CRITICAL", "OFF": "CRITICAL"}
#: the most entries of a directory that are checked: enough for its files and its first partitions
_MOST_ENTRIES = 1000
#: keys whose values other users may not read
_SECRET = re.compile(r"password|jaas|keystore\.key")


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """The options of the command line."""

    defaults: str
    mounted: tuple[str, ...]
    file: str
    keep: bool


def _options(function: Callable[..., int]) -> Callable[..., int]:
    for option in (
        click.option(
            "--keep", is_flag=True, help="Take FILE as it is when it is there; its directories may be formatted."
        ),
        click.option("--file", required=True, metavar="FILE", help="The properties file of the node."),
        click.option(
            "--mounted",
            metavar="FILE",
            multiple=True,
            help="The user may have mounted this one; the first that is there counts.",
        ),
        click.option("--defaults", required=True, metavar="FILE", help="What holds when nothing is given."),
    ):
        function = option(function)
    return function


@click.group("in-container", cls=CommandGroup)
def command() -> None:
    """Do what the scripts of the container image ask for."""


_EXAMPLE = "pykbroker in-container {} --defaults defaults.properties --file server.properties"


@command.command("configure", example=_EXAMPLE.format("configure"))
@_options
def configure(**words: Any) -> int:
    """Write the properties file that the environment asks for."""
    return _run(_configure, ContainerOptions(**words))


@command.command("format", example=_EXAMPLE.format("format"))
@_options
def format_(**words: Any) -> int:
    """Format the data directories for CLUSTER_ID, and check those that are formatted."""
    return _run(_format, ContainerOptions(**words))


@command.command("launch", example=_EXAMPLE.format("launch"))
@_options
def launch(**words: Any) -> int:
    """Configure, format and run the node in this process."""
    return _run(_launch, ContainerOptions(**words))


def _variables() -> Mapping[str, str]:
    """Return the environment under the names of Apache Kafka's image."""
    return with_prefixes(os.environ, socket.gethostname())[0]


def _run(act: Callable[[ContainerOptions], int], options: ContainerOptions) -> int:
    level = _variables().get("KAFKA_LOG4J_ROOT_LOGLEVEL", "").strip().upper() or "INFO"
    level = _LEVELS.get(level, level)
    log_to(logging.StreamHandler(sys.stdout), level if level in logging.getLevelNamesMapping() else "INFO")
    try:
        return act(options)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _configure(options: ContainerOptions) -> int:
    composed = _compose(options)
    start_config(composed.properties)  # report a configuration that cannot start now
    return 0


def _format(options: ContainerOptions) -> int:
    config = _config(options)
    if _variables().get("KAFKA_PROCESS_ROLES", "").strip():
        _check_directories(config)
        # Without an id nothing is formatted here: only `launch` fails, because a script may format them before it.
        if _given_cluster_id() is not None:
            _format_directories(config, _cluster_id())
    return 0


def _launch(options: ContainerOptions) -> int:
    from pykbroker.entry.node_process import run_node

    config = _config(options)
    # Before anything is formatted, so that a start that is refused leaves no directory behind.
    faults = _faults_server(config)
    if config.is_default(_HEALTH):
        path = _health_socket()
        if path is not None:
            config = with_overrides(config, {_HEALTH: path})
    _check_directories(config)
    # A script that ran before may have formatted the directories, perhaps under another id, or this node has done it
    # when it had no id. `run_node` checks that the directories belong together.
    if not _is_formatted(config) or (_given_cluster_id() is not None and not options.keep):
        _format_directories(config, _cluster_id())
    return run_node(config, may_format=False, faults=faults)


def _faults_server(config: Config) -> FaultsServer | None:
    """Return the server of fault rules and of the clock that the environment asks for, or None. Raises ConfigError, as
    `pykbroker start --faults` does."""
    variables = _variables()
    address = variables.get(_FAULTS, "").strip()
    hosts = [name.strip() for name in variables.get(_FAULTS_HOST, "").split(",") if name.strip()]
    if not address:
        if hosts:
            raise ConfigError(f"{_FAULTS_HOST} goes with {_FAULTS}")
        return None
    # A node without this server never imports these modules.
    from pykbroker.testing.faults_server import FaultsServer, require_servable

    try:
        require_servable(config)
        return FaultsServer(address, hosts)
    except ConfigError as error:
        raise ConfigError(f"{_FAULTS} is for --faults, and {_FAULTS_HOST} for --faults-host: {error}") from None


# -- the properties file ----------------------------------------------------------------------------------------------


def _config(options: ContainerOptions) -> Config:
    """Return the configuration of the node. Raises ConfigError, OSError."""
    if options.keep and os.path.exists(options.file):
        with open(options.file, "rb") as file:
            properties = parse_bytes(file.read())
        return start_config(properties)
    return start_config(_compose(options).properties)


def _compose(options: ContainerOptions) -> ServerProperties:
    mounted = next((_read(path) for path in options.mounted if os.path.exists(path)), None)
    mounts = read_mounts(_mountinfo())
    variables, translated = with_prefixes(os.environ, socket.gethostname())
    if translated is not None:
        logger.warning("%s", translated)
    composed = server_properties(
        variables,
        mounted=mounted,
        defaults=_read(options.defaults),
        hostname=socket.gethostname(),
        mounts=mounts,
        read_credentials=_read,
    )
    for warning in composed.warnings:
        logger.warning("%s", warning)
    directories = [os.path.realpath(path) for path in data_directories(composed.properties)]
    lost = lost_data_line(directories, mounts, {mount.point for mount in mounts if os.path.isdir(mount.point)})
    if lost is not None:
        logger.warning("%s", lost)
    start_texts(composed.properties)
    data = composed.text.encode(errors="surrogateescape")
    try:
        if any(_SECRET.search(key) for key in composed.properties):
            _write_secrets(options.file, data)
        else:
            with open(options.file, "wb") as file:
                file.write(data)
    except OSError as error:
        # The root is read-only, or another user owns the file. The node does not need the file, so it starts.
        logger.info("%s is not written: %s", options.file, error.strerror)
    return composed


def _write_secrets(path: str, data: bytes) -> None:
    """Write a file that only its owner can read, and replace another user's file. Raises ConfigError if it cannot be
    replaced, and OSError if nothing can be written."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        try:
            os.fchmod(file.fileno(), 0o600)
        except PermissionError:
            pass
        else:
            file.truncate()
            file.write(data)
            return
    fresh = f"{path}.{os.getpid()}"
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        os.replace(fresh, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise ConfigError(
            f"{path} would have passwords, but another user owns it, with mode {mode:04o}. Let the user "
            f"{os.geteuid()} own it, or write to its folder ({error.strerror})"
        ) from None


def _mountinfo() -> str:
    try:
        return _read("/proc/self/mountinfo")
    except OSError:
        return ""


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


# -- directories ------------------------------------------------------------------------------------------------------


def _given_cluster_id() -> str | None:
    return read_environment(_variables()).cluster_id


def _cluster_id() -> str:
    """Return CLUSTER_ID, or a new id for a node that is a cluster by itself. Raises ConfigError."""
    from pykbroker_wire.primitives import random_uuid, uuid_to_str

    cluster_id = _given_cluster_id()
    if cluster_id is not None:
        return cluster_id
    if _variables().get("KAFKA_PROCESS_ROLES", "").strip():
        raise ConfigError("CLUSTER_ID is not set: `kafka-storage random-uuid` makes one, the same for all nodes")
    return uuid_to_str(random_uuid(random.SystemRandom()))


def _check_directories(config: Config) -> None:
    """Raise ConfigError for a directory that cannot be used."""
    from pykbroker.storage.format import directories_of

    for path in directories_of(config):
        problem = complaint(path, _seen(path), os.geteuid())
        if problem is not None:
            raise ConfigError(problem)


def _seen(data: str) -> DirectorySeen:
    path = os.path.abspath(data)
    while not os.path.exists(path) and path != "/":
        path = os.path.dirname(path)
    writable = os.access(path, os.W_OK | os.X_OK)
    foreign = _foreign_entry(path) if writable and path == os.path.abspath(data) else None
    return DirectorySeen(
        path=path,
        owner=os.stat(path).st_uid,
        writable=writable,
        read_only=not writable and bool(os.statvfs(path).f_flag & os.ST_RDONLY),
        foreign=foreign,
    )


def _foreign_entry(path: str) -> tuple[str, int] | None:
    with os.scandir(path) as entries:
        for _, entry in zip(range(_MOST_ENTRIES), entries, strict=False):
            if entry.name != "lost+found" and not os.access(entry.path, os.W_OK):
                return entry.path, entry.stat(follow_symlinks=False).st_uid
    return None


def _is_formatted(config: Config) -> bool:
    from pykbroker.storage.format import directories_of
    from pykbroker_log import names

    return all(os.path.exists(os.path.join(path, names.META_PROPERTIES)) for path in directories_of(config))


def _format_directories(config: Config, cluster_id: str) -> None:
    """Format the directories. A directory that is formatted already must be of this node. Raises StorageFormatError,
    OSError."""
    from pykbroker.storage.format import StorageFormatError, format_directories
    from pykbroker_log.os_disk.disk import OsDisk

    voters = first_voters(config, {socket.gethostname()})
    if voters is FirstVoters.JOINS:
        logger.warning(
            "controller.quorum.bootstrap.servers names other controllers, and controller.quorum.voters is not set: "
            "this controller joins them and begins no quorum. A new cluster begins with KAFKA_CONTROLLER_QUORUM_VOTERS"
        )
    try:
        formatted = format_directories(
            OsDisk(),
            config,
            cluster_id,
            random.SystemRandom(),
            now_ms=time.time_ns() // 1_000_000,
            ignore_formatted=True,
            standalone=voters is FirstVoters.STANDALONE,
        )
    except StorageFormatError as error:
        raise StorageFormatError(another_cluster(str(error), cluster_id)) from error
    if formatted:
        logger.info("Formatted %s for the cluster %s", ", ".join(formatted), cluster_id)


# -- health -----------------------------------------------------------------------------------------------------------


def _health_socket() -> str | None:
    """Return the first usual path of the socket in a directory that only this user can write to, or also its group in
    our own image. A file in that directory shows the image's health check that a node runs in this container."""
    for path in USUAL_SOCKETS:
        directory = os.path.dirname(path)
        try:
            if directory.startswith("/dev/shm/") and not os.path.lexists(directory):  # noqa: S108  # it must not be there yet
                os.mkdir(directory, 0o700)
            there = os.lstat(directory)
        except OSError:
            continue
        # Another user could have made the directory, in a directory that every user may write to, like /dev/shm.
        safe = stat.S_ISDIR(there.st_mode) and not there.st_mode & stat.S_IWOTH
        if safe and there.st_uid in (0, os.geteuid()) and os.access(directory, os.W_OK | os.X_OK):
            _leave_mark(directory)
            return path
    logger.warning("The health socket has no place, so `pykbroker health` finds no node here")
    return None


def _leave_mark(directory: str) -> None:
    """Write the file that docker/scripts/kafka/healthcheck looks for."""
    with contextlib.suppress(OSError), open(os.path.join(directory, "launched"), "wb"):
        pass
