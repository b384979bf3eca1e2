"""`pykbroker start`: run a node until it is told to stop.

Only here may a node change its process: signals, garbage collector, logging, file limits. An embedded broker never
does.
"""

from __future__ import annotations

import asyncio
import errno
import faulthandler
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import Config
from pykbroker.tools.commands import failures
from pykbroker.tools.commands.command_group import Command
from pykbroker.tools.commands.node_log import log_to
from pykbroker.tools.commands.options import assignments, default_data_dir, properties_argument, read
from pykbroker.tools.commands.orphans import reap_as_first_process
from pykbroker.tools.commands.status_line import StatusLine

if TYPE_CHECKING:
    from pykbroker.node.node import Node
    from pykbroker.testing.faults_server import FaultsServer

logger = logging.getLogger("pykbroker")

#: Between two looks at whether a node that ends still turns.
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The words of the command line."""

    properties: str | None
    settings: tuple[str, ...]
    data_dir: str | None
    port: int | None
    ephemeral: bool
    may_format: bool
    brokers: int | None
    controllers: int
    until_stdin_ends: bool
    faults: str | None
    faults_host: tuple[str, ...]
    log_level: str


@click.command("start", cls=Command, example="pykbroker start\npykbroker start --brokers 3 --ephemeral")
@properties_argument
@click.option("--data-dir", metavar="DIR", help="Where the data is (default: $XDG_DATA_HOME/pykbroker).")
@click.option("--port", type=int, metavar="N", help="Port of the client listener; 0 takes a free one (default: 9092).")
@click.option("--ephemeral", is_flag=True, help="Keep the data in a temporary directory and remove it at the end.")
@click.option(
    "--format",
    "may_format",
    is_flag=True,
    help="Format log directories that are absent or empty, also with a properties file.",
)
@click.option(
    "--brokers",
    type=int,
    metavar="N",
    help="Run a cluster of N brokers, each a process of its own, on --port and the ports behind it.",
)
@click.option(
    "--controllers",
    type=int,
    default=0,
    metavar="N",
    help="With --brokers: N controllers of their own (default: one or three of the brokers are controllers too).",
)
@click.option(
    "--until-stdin-ends",
    is_flag=True,
    help="Stop also when standard input ends, as it does with the program that holds its other end.",
)
@click.option(
    "--faults",
    metavar="HOST:PORT",
    help="For tests: take fault rules over HTTP there, on a loopback address (docs/testing.md).",
)
@click.option(
    "--faults-host",
    multiple=True,
    metavar="NAME",
    help="Let other machines reach --faults under this name (may be repeated).",
)
@click.option(
    "--log-level",
    default="INFO",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    metavar="LEVEL",
    help="The least important lines in the log: DEBUG, INFO (default), WARNING or ERROR.",
)
def command(**words: Any) -> int:
    """Run a node, or a cluster of nodes; no argument is needed.

    Without a properties file the development profile holds: a broker and controller on localhost. One line on standard
    output says the address when clients are served. Ctrl-C stops it.
    """
    options = StartOptions(**words)
    status = StatusLine(sys.stderr) if sys.stderr.isatty() else None
    log_to(status or logging.StreamHandler(sys.stderr), options.log_level)

    def in_directory(directory: str) -> int:
        if options.brokers is not None or options.controllers:
            return _run_cluster(options, directory)
        return _run(options, directory, status)

    if options.ephemeral:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="pykbroker-") as directory:
            return in_directory(directory)
    return in_directory(
        options.data_dir or default_data_dir("pykbroker" if options.brokers is None else "pykbroker-cluster")
    )


def _run(options: StartOptions, data_dir: str, status: StatusLine | None) -> int:
    """Raises ConfigError, OSError."""
    chosen = read(options.properties, options.settings, data_dir, options.port, is_taken=_is_taken)
    if chosen.has_file and (options.data_dir or options.ephemeral):
        option = "--data-dir" if options.data_dir else "--ephemeral"
        raise ConfigError(f"{option} goes with the development profile; with a properties file set `log.dirs`")
    faults = _faults_server(options, chosen.config)
    return run_node(
        chosen.config,
        may_format=options.may_format or not chosen.has_file,
        status=status,
        until_stdin_ends=options.until_stdin_ends,
        faults=faults,
    )


def _is_taken(port: int) -> bool:
    """Return True if another program listens on this port of localhost."""
    from pykbroker.runtime import bind_sockets

    try:
        bound = bind_sockets("localhost", port, 1)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    for sock in bound:
        sock.close()
    return False


def _faults_server(options: StartOptions, config: Config) -> FaultsServer | None:
    """Raises ConfigError."""
    if options.faults is None:
        if options.faults_host:
            raise ConfigError("--faults-host goes with --faults")
        return None
    from pykbroker.testing.faults_server import FaultsServer

    return FaultsServer(options.faults, config, options.faults_host)


def _run_cluster(options: StartOptions, tree: str) -> int:
    """Raises ConfigError."""
    from pykbroker.tools.local_cluster.supervisor import Wanted, run

    if options.brokers is None:
        raise ConfigError("--controllers goes with --brokers")
    if options.properties is not None:
        raise ConfigError("--brokers goes without a properties file; --set sets a key for all nodes")
    if options.faults is not None or options.faults_host:
        raise ConfigError("--faults goes with one node; in tests pykbroker.testing.Cluster has fault rules")
    given = dict(assignments(options.settings))
    port = 9092 if options.port is None else options.port
    return run(Wanted(options.brokers, options.controllers, port, tree, given, options.log_level))


def run_node(
    config: Config,
    *,
    may_format: bool,
    status: StatusLine | None = None,
    until_stdin_ends: bool = False,
    faults: FaultsServer | None = None,
) -> int:
    """Run a node in this process until a signal or a failure ends it; returns the exit status. `faults`: not started.
    Raises OSError when its address cannot be taken."""
    if faults is not None:
        faults.start()
    _raise_file_limit()
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(
            _serve(loop, config, may_format=may_format, status=status, until_stdin_ends=until_stdin_ends, faults=faults)
        )
    finally:
        loop.close()
        if faults is not None:
            faults.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _raise_file_limit() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:
            logger.info("The limit of open files stays at %d: %s", soft, error)


async def _serve(
    loop: asyncio.AbstractEventLoop,
    config: Config,
    *,
    may_format: bool,
    status: StatusLine | None,
    until_stdin_ends: bool,
    faults: FaultsServer | None,
) -> int:
    from pykbroker.net import connection
    from pykbroker.node.node import Node
    from pykbroker.node.shared import StartError
    from pykbroker.runtime import OsRuntime
    from pykbroker.serving.dispatch import Dispatcher

    # Set by tests: see pykbroker/net/connection.py.
    connection.POISON_RECEIVED = bool(os.environ.get("PYKBROKER_POISON_RECEIVED"))
    if os.environ.get("PYKBROKER_CHECK_OWNERS"):
        from pykbroker.node import owner_check

        owner_check.install(owner_check.parts_of_loops())
    stop = asyncio.Event()
    runtime = OsRuntime(loop, two_loops=True)
    # Nothing of the testing kit is in the way of a request unless --faults asks for it.
    make_dispatcher = Dispatcher if faults is None else faults.make_dispatcher
    node = Node(config, runtime, may_format=may_format, make_dispatcher=make_dispatcher)
    # What the imports made lives as long as the process: no collection needs to look at it again. Before anything
    # runs, because this one takes some time.
    gc.collect()
    gc.freeze()
    # Requests make hundreds of objects that die by their count; looking for cycles among them every 700 is for nothing.
    gc.set_threshold(20_000, 20, 50)
    runtime.on_keep = gc.freeze

    def asked_to_stop(number: int) -> None:
        stop.set()
        # An operator who asks twice does not want to wait for a controlled shutdown.
        loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_stop, number)
    reap_as_first_process(loop)
    if until_stdin_ends:
        loop.add_reader(sys.stdin.fileno(), _read_stdin, loop, stop)
    node.on_fatal(stop.set)
    starting, stopping = asyncio.ensure_future(node.start()), asyncio.ensure_future(stop.wait())
    if status is not None:
        status.follow_recovery(loop, node.recovery_progress, lambda: not starting.done())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if node.fatal is None:
        starting.cancel()  # of no effect when it is done
    # Else the start ends by itself, and says why.
    try:
        await _unless_it_stands(node, starting)
    except (StartError, OSError, asyncio.CancelledError) as error:
        interrupted = isinstance(error, asyncio.CancelledError)
        if not interrupted:
            failures.say(failures.said_of(error) or str(error))
        await _unless_it_stands(node, node.stop())
        runtime.close()
        return 0 if interrupted else 1
    # What start-up made stays as well. Not collected first: coordinators may be loading, and clients are there already.
    gc.freeze()
    print(f"pykbroker is ready: {node.bootstrap_servers}", flush=True)
    await stop.wait()
    failed = node.fatal is not None
    await _unless_it_stands(node, node.stop())
    runtime.close()
    return 1 if failed else 0


async def _unless_it_stands(node: Node, end: Awaitable[None]) -> None:
    """Wait for the end of a start or of a stop. Both wait for the broker loop. If that has not turned for a session,
    nothing can be closed in order any more, and the process ends as it stands."""
    ending, longest = asyncio.ensure_future(end), node.config.int("broker.session.timeout.ms") / 1000
    while not ending.done():
        await asyncio.wait({ending}, timeout=_LOOK_SECONDS)
        silent = node.health().broker_silent_seconds
        if silent >= longest and not ending.done():
            logger.critical(
                "The broker loop has not turned for %.1f s: this process ends without a shutdown, and the next start "
                "recovers its logs. Its threads stand here:",
                silent,
            )
            logging.shutdown()
            faulthandler.dump_traceback()
            os._exit(1)
    await ending


def _read_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """What comes is of no meaning, but its end."""
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        stop.set()
