"""Runs a node in this process until a signal, the end of standard input or a failure ends it.

Only this module may change settings of the process: signals, garbage collector, file limits. An embedded broker changes
none of them.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pykbroker.config.typed_config import Config
from pykbroker.entry import failures, ready_line
from pykbroker.entry.orphans import reap_as_first_process
from pykbroker.entry.status_line import StatusLine

if TYPE_CHECKING:
    from pykbroker.node.node import Node
    from pykbroker.testing.faults_server import FaultsServer

logger = logging.getLogger("pykbroker")

#: While a node stops, or ends its start, this is the interval of the checks that its broker loop still turns.
_LOOK_SECONDS = 0.5


def run_node(
    config: Config,
    *,
    may_format: bool,
    status: StatusLine | None = None,
    until_stdin_ends: bool = False,
    faults: FaultsServer | None = None,
    usual_health_socket: str | None = None,
    ready_json: bool = False,
) -> int:
    """Run a node in this process until a signal or a failure ends it; returns the exit status. `faults`: a server that
    is not started yet. `usual_health_socket`: see Node. `ready_json`: the line on standard output is JSON. Raises
    OSError if the address of `faults` is in use, and if the line cannot be written; then the node has been stopped."""
    if faults is not None:
        faults.start()
    _raise_file_limit()
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(
            _serve(
                loop,
                config,
                may_format=may_format,
                status=status,
                until_stdin_ends=until_stdin_ends,
                faults=faults,
                usual_health_socket=usual_health_socket,
                ready_json=ready_json,
            )
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
    usual_health_socket: str | None,
    ready_json: bool,
) -> int:
    from pykbroker.dispatch.dispatcher import Dispatcher
    from pykbroker.net import connection
    from pykbroker.node.node import Node
    from pykbroker.node.shared import StartError
    from pykbroker.node.start_options import StartOptions
    from pykbroker.runtime import OsRuntime
    from pykbroker.runtime.client_clock import LoopClock

    # Tests set this variable (see POISON_RECEIVED in pykbroker/net/connection.py).
    connection.POISON_RECEIVED = bool(os.environ.get("PYKBROKER_POISON_RECEIVED"))
    if os.environ.get("PYKBROKER_CHECK_OWNERS"):
        from pykbroker.node import owner_check

        owner_check.install(owner_check.parts_of_loops())
    stop = asyncio.Event()
    # The testing kit takes part in requests and in the time of clients only if --faults asks for it.
    make_dispatcher = Dispatcher if faults is None else faults.make_dispatcher
    make_client_clock = LoopClock if faults is None else faults.make_client_clock
    runtime = OsRuntime(loop, two_loops=True, make_client_clock=make_client_clock)
    node = Node(
        config,
        runtime,
        options=StartOptions(may_format=may_format),
        make_dispatcher=make_dispatcher,
        usual_health_socket=usual_health_socket,
    )
    # Objects of the imports live as long as the process, so no collection needs to visit them again. This is done
    # before the node runs, because this collection takes some time.
    gc.collect()
    gc.freeze()
    # Requests make hundreds of objects, which reference counts free. By default Python searches for cycles every 700
    # objects, and these searches find none.
    gc.set_threshold(20_000, 20, 50)
    runtime.on_keep = gc.freeze

    def asked_to_stop(number: int) -> None:
        stop.set()
        # A second signal ends the process: its operator does not want to wait for a controlled shutdown.
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
        starting.cancel()  # has no effect if it is done
    # If the node has failed, its start ends by itself and logs the reason.
    try:
        await _unless_it_stands(node, starting)
    except (StartError, OSError, asyncio.CancelledError) as error:
        interrupted = isinstance(error, asyncio.CancelledError)
        if not interrupted:
            failures.say(failures.said_of(error) or str(error))
        await _unless_it_stands(node, node.stop())
        runtime.close()
        return 0 if interrupted else 1
    # Objects of the start-up also live as long as the process. No collection runs before this freeze: it would stop the
    # loop while coordinators load and clients are connected.
    gc.freeze()
    try:
        failures.put_line(
            ready_line.of_node(node, None if faults is None else faults.url)
            if ready_json
            else ready_line.for_people(node.bootstrap_servers)
        )
        await stop.wait()
    finally:
        failed = node.fatal is not None
        await _unless_it_stands(node, node.stop())
        runtime.close()
    return 1 if failed else 0


async def _unless_it_stands(node: Node, end: Awaitable[None]) -> None:
    """Wait for the end of a start or of a stop. Both wait for the broker loop. If this loop has not turned for a
    session timeout, the node cannot be closed in order, and the process ends at once."""
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
    """Stop when standard input ends; other input is ignored."""
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        stop.set()
