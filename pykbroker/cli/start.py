"""`pykbroker start`: run a node until it is told to stop.

Only here may a node change its process: signals, garbage collector, logging, file limits. An embedded broker never
does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys

from pykbroker.cli.options import add_arguments, assignments, default_data_dir, read
from pykbroker.cli.status_line import StatusLine
from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import Config

logger = logging.getLogger("pykbroker")


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument("--data-dir", metavar="DIR", help="where the data is (default: $XDG_DATA_HOME/pykbroker)")
    parser.add_argument(
        "--port", type=int, metavar="N", help="port of the client listener; 0 takes a free one (default: 9092)"
    )
    parser.add_argument(
        "--ephemeral", action="store_true", help="keep the data in a temporary directory and remove it at the end"
    )
    parser.add_argument(
        "--format",
        action="store_true",
        help="format log directories that are absent or empty, also with a properties file",
    )
    parser.add_argument(
        "--brokers",
        type=int,
        metavar="N",
        help="run a cluster of N brokers, each a process of its own, on --port and the ports behind it",
    )
    parser.add_argument(
        "--controllers",
        type=int,
        default=0,
        metavar="N",
        help="with --brokers: N controllers of their own (default: one or three of the brokers are controllers too)",
    )
    parser.add_argument(
        "--until-stdin-ends",
        action="store_true",
        help="stop also when standard input ends, as it does with the program that holds its other end",
    )
    parser.add_argument(
        "--log-level",
        default="INFO",
        type=str.upper,
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="the least important lines in the log (default: INFO)",
    )


def run(options: argparse.Namespace) -> int:
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


def log_to(handler: logging.Handler, level: str) -> None:
    """Every line in the shape that Apache Kafka's log has."""
    logging.basicConfig(level=level, handlers=[handler], format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)")


def _run(options: argparse.Namespace, data_dir: str, status: StatusLine | None) -> int:
    try:
        chosen = read(options, data_dir, options.port)
    except (ConfigError, OSError) as error:
        print(f"pykbroker: {error}", file=sys.stderr)
        return 1
    if chosen.has_file and (options.data_dir or options.ephemeral):
        option = "--data-dir" if options.data_dir else "--ephemeral"
        print(
            f"pykbroker: {option} goes with the development profile; with a properties file set `log.dirs`",
            file=sys.stderr,
        )
        return 1
    return run_node(
        chosen.config,
        may_format=options.format or not chosen.has_file,
        status=status,
        until_stdin_ends=options.until_stdin_ends,
    )


def _run_cluster(options: argparse.Namespace, tree: str) -> int:
    from pykbroker.local_cluster.supervisor import Wanted, run

    try:
        if options.brokers is None:
            raise ConfigError("--controllers goes with --brokers")
        if options.properties is not None:
            raise ConfigError("--brokers goes without a properties file; --set sets a key for all nodes")
        given = dict(assignments(options.set))
    except ConfigError as error:
        print(f"pykbroker: {error}", file=sys.stderr)
        return 1
    port = 9092 if options.port is None else options.port
    return run(Wanted(options.brokers, options.controllers, port, tree, given, options.log_level))


def run_node(
    config: Config, *, may_format: bool, status: StatusLine | None = None, until_stdin_ends: bool = False
) -> int:
    """Run a node in this process until a signal or a failure ends it; returns the exit status."""
    _raise_file_limit()
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(
            _serve(loop, config, may_format=may_format, status=status, until_stdin_ends=until_stdin_ends)
        )
    finally:
        loop.close()


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
) -> int:
    from pykbroker.net import connection
    from pykbroker.node.node import Node
    from pykbroker.node.shared import StartError
    from pykbroker.runtime import OsRuntime

    # Set by tests: see pykbroker/net/connection.py.
    connection.POISON_RECEIVED = bool(os.environ.get("PYKBROKER_POISON_RECEIVED"))
    stop = asyncio.Event()
    runtime = OsRuntime(loop)
    node = Node(config, runtime, may_format=may_format)
    # What the imports made lives as long as the process: no collection needs to look at it again. Before anything
    # runs, because this one takes some time.
    gc.collect()
    gc.freeze()
    # Requests make hundreds of objects that die by their count; looking for cycles among them every 700 is for nothing.
    gc.set_threshold(20_000, 20, 50)
    runtime.on_keep = gc.freeze

    def asked_to_stop(number: int) -> None:
        stop.set()
        # Whoever asks twice does not want to wait for a controlled shutdown.
        loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_stop, number)
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
        await starting
    except (StartError, OSError, asyncio.CancelledError) as error:
        interrupted = isinstance(error, asyncio.CancelledError)
        if not interrupted:
            print(f"pykbroker: {error}", file=sys.stderr)
        await node.stop()
        runtime.close()
        return 0 if interrupted else 1
    # What start-up made stays as well. Not collected first: coordinators may be loading, and clients are there already.
    gc.freeze()
    print(f"pykbroker is ready: {node.bootstrap_servers}", flush=True)
    await stop.wait()
    failed = node.fatal is not None
    await node.stop()
    runtime.close()
    return 1 if failed else 0


def _read_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """What comes is of no meaning, but its end."""
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        stop.set()
