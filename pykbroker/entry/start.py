"""`pykbroker start`: run a node, or a cluster of nodes, until a signal stops it."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.config.kinds import ConfigError
from pykbroker.entry.command_parser import CommandParser, add_properties, integer, one_of

# All other modules are imported only when the command runs, so that the help and the completion of a shell are fast.
if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.entry.status_line import StatusLine
    from pykbroker.testing.faults_server import FaultsServer


def parser() -> CommandParser:
    words = CommandParser(
        "start",
        """Run a node, or a cluster of nodes; no argument is needed.

        Without a properties file the development profile holds: a broker and controller on localhost. One line on
        standard output says the address when clients are served. Ctrl-C stops it.""",
        example="pykbroker start\npykbroker start --brokers 3 --ephemeral",
    )
    add_properties(words)
    words.add_argument("--data-dir", metavar="DIR", help="Where the data is (default: $XDG_DATA_HOME/pykbroker).")
    words.add_argument(
        "--port",
        type=integer,
        metavar="N",
        help="Port of the client listener; 0 takes a free one (default: 9092). The controller listens on the next "
        "port, or on a free one.",
    )
    words.add_argument(
        "--ephemeral", action="store_true", help="Keep the data in a temporary directory and remove it at the end."
    )
    words.add_argument(
        "--format",
        dest="may_format",
        action="store_true",
        help="Format log directories that are absent or empty, also with a properties file.",
    )
    words.add_argument(
        "--brokers",
        type=integer,
        metavar="N",
        help="Run a cluster of N brokers, each a process of its own, on --port and the ports after it. Controllers "
        "listen 10000 above these, or on free ports.",
    )
    words.add_argument(
        "--controllers",
        type=integer,
        default=0,
        metavar="N",
        help="With --brokers: N controllers of their own (default: one or three of the brokers are controllers too).",
    )
    words.add_argument(
        "--until-stdin-ends",
        action="store_true",
        help="Stop also when standard input ends, as it does with the program that holds its other end.",
    )
    words.add_argument(
        "--ready-json",
        action="store_true",
        help="Print the line on standard output as JSON, with every address (docs/other-languages.md).",
    )
    words.add_argument(
        "--faults",
        metavar="HOST:PORT",
        help="For tests: take fault rules over HTTP there, on a loopback address (docs/testing.md).",
    )
    words.add_argument(
        "--faults-host",
        action="append",
        default=[],
        metavar="NAME",
        help="Let other machines reach --faults under this name (may be repeated).",
    )
    words.add_argument(
        "--log-level",
        type=one_of(["DEBUG", "INFO", "WARNING", "ERROR"]),
        default="INFO",
        metavar="LEVEL",
        help="The least important lines in the log: DEBUG, INFO (default), WARNING or ERROR.",
    )
    words.exclude("--ephemeral", "--data-dir")
    return words


def run(given: argparse.Namespace) -> int:
    """Run the command; returns the exit status. Raises ConfigError, OSError."""
    from pykbroker.entry.data_dirs import CLUSTER, EPHEMERAL_PREFIX, NODE, default_data_dir
    from pykbroker.entry.node_log import log_to
    from pykbroker.entry.status_line import StatusLine

    status = StatusLine(sys.stderr) if sys.stderr.isatty() else None
    log_to(status or logging.StreamHandler(sys.stderr), given.log_level)

    def in_directory(directory: str) -> int:
        if given.brokers is not None or given.controllers:
            return _run_cluster(given, directory)
        return _run(given, directory, status)

    if given.ephemeral:
        import tempfile

        with tempfile.TemporaryDirectory(prefix=EPHEMERAL_PREFIX) as directory:
            return in_directory(directory)
    return in_directory(given.data_dir or default_data_dir(NODE if given.brokers is None else CLUSTER))


def _run(given: argparse.Namespace, data_dir: str, status: StatusLine | None) -> int:
    """Run one node; returns the exit status. Raises ConfigError, OSError."""
    from pykbroker.entry.health import SOCKET_NAME
    from pykbroker.entry.node_process import run_node
    from pykbroker.entry.options import read
    from pykbroker.entry.taken_ports import check_free, is_taken

    chosen = read(given.properties, given.settings, data_dir, given.port, is_taken=partial(is_taken, "localhost"))
    if chosen.has_file and (given.data_dir or given.ephemeral):
        option = "--data-dir" if given.data_dir else "--ephemeral"
        raise ConfigError(f"{option} goes with the development profile; with a properties file set `log.dirs`")
    config = chosen.config
    is_plain = not chosen.has_file
    if is_plain or given.may_format:
        # Before anything is formatted, so that a start that fails leaves no directory behind.
        check_free(
            ((f"listener {point.listener_name}", point.host, point.port) for point in config.listeners.all),
            "--port N chooses another port, --port 0 a free one" if is_plain else "`listeners` has the port",
        )
    faults = _faults_server(given, config)
    return run_node(
        config,
        may_format=given.may_format or is_plain,
        status=status,
        until_stdin_ends=given.until_stdin_ends,
        faults=faults,
        usual_health_socket=os.path.join(config.log_dirs[0], SOCKET_NAME) if is_plain else None,
        ready_json=given.ready_json,
    )


def _faults_server(given: argparse.Namespace, config: Config) -> FaultsServer | None:
    """Return the server of --faults, or None. Raises ConfigError."""
    if given.faults is None:
        if given.faults_host:
            raise ConfigError("--faults-host goes with --faults")
        return None
    from pykbroker.testing.faults_server import FaultsServer, require_servable

    require_servable(config)
    return FaultsServer(given.faults, given.faults_host)


def _run_cluster(given: argparse.Namespace, tree: str) -> int:
    """Run a cluster of processes; returns the exit status. Raises ConfigError."""
    from pykbroker.entry.local_cluster.supervisor import WantedCluster, run
    from pykbroker.entry.options import assignments

    if given.brokers is None:
        raise ConfigError("--controllers goes with --brokers")
    if given.properties is not None:
        raise ConfigError("--brokers goes without a properties file; --set sets a key for all nodes")
    if given.faults is not None or given.faults_host:
        raise ConfigError(
            "--faults goes with one node; several nodes share rules in one process: faults_over_http of "
            "pykbroker.testing.Cluster (docs/other-languages.md)"
        )
    settings = dict(assignments(given.settings))
    port = 9092 if given.port is None else given.port
    wanted = WantedCluster(
        given.brokers, given.controllers, port, tree, settings, given.log_level, ready_json=given.ready_json
    )
    return run(wanted)
