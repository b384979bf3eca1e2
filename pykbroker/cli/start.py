"""`pykbroker start`: run a node until it is told to stop.

Only here may a node change its process: signals, garbage collector, logging, file limits. An embedded broker never does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys

from pykbroker.cli import settings
from pykbroker.config.kinds import ConfigError

logger = logging.getLogger("pykbroker")


def arguments(parser: argparse.ArgumentParser) -> None:
    settings.add_arguments(parser)
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
        "--log-level", default="INFO", metavar="LEVEL", help="DEBUG, INFO, WARNING or ERROR (default: INFO)"
    )


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(
        level=options.log_level.upper(), stream=sys.stderr, format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
    )
    if options.ephemeral:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="pykbroker-") as directory:
            return _run(options, directory)
    return _run(options, options.data_dir or settings.default_data_dir())


def _run(options: argparse.Namespace, data_dir: str) -> int:
    try:
        chosen = settings.read(options, data_dir, options.port)
    except (ConfigError, OSError) as error:
        print(f"pykbroker: {error}", file=sys.stderr)
        return 1
    if options.data_dir and chosen.has_file:
        print(
            "pykbroker: --data-dir goes with the development profile; with a properties file set `log.dirs`",
            file=sys.stderr,
        )
        return 1
    _raise_file_limit()
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(loop, chosen, may_format=options.format or not chosen.has_file))
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


async def _serve(loop: asyncio.AbstractEventLoop, chosen: settings.Settings, *, may_format: bool) -> int:
    from pykbroker.broker import Node, StartError
    from pykbroker.runtime import OsRuntime

    stop = asyncio.Event()
    runtime = OsRuntime(loop)
    for warning in chosen.config.warnings:
        logger.warning("%s", warning)
    node = Node(chosen.config, runtime, may_format=may_format)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    node.on_fatal(stop.set)
    try:
        await node.start()
    except (StartError, OSError) as error:
        print(f"pykbroker: {error}", file=sys.stderr)
        await node.stop()
        runtime.close()
        return 1
    # What start-up made lives as long as the process: no collection needs to look at it again.
    gc.collect()
    gc.freeze()
    print(f"pykbroker is ready: {node.bootstrap_servers}", flush=True)
    await stop.wait()
    failed = node.fatal is not None
    await node.stop()
    runtime.close()
    return 1 if failed else 0
