"""The processes of a cluster on one machine: start, watch, restart, stop in order.

Responsible for the directory tree (`cluster.json`, and `node-N` with `server.properties`, `server.log` and `data`) and
for one process per node. Not responsible for a node's properties (topology.py).

Invariants: a node ends at the latest when this process ends, because that closes the node's standard input. Ctrl-C
reaches only this process, which stops the nodes in order. A tree belongs to one supervisor at a time.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count

from pykbroker.config import properties
from pykbroker.config.kinds import ConfigError
from pykbroker.config.start_up import start_config
from pykbroker.entry import ready_line
from pykbroker.entry.failures import put_line, said_of, say
from pykbroker.entry.local_cluster.topology import (
    CLUSTER_FILE,
    HOST,
    Layout,
    Member,
    bootstrap_servers,
    client_ports,
    grown,
    layout_from_json,
    new_layout,
    node_folder,
    properties_of,
    signals_of,
)
from pykbroker.entry.taken_ports import check_free, is_taken
from pykbroker.storage.format import format_directories
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_wire.primitives import ZERO_UUID, random_uuid

_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 0.5, 30.0
#: A node that ran for this long did not fail at its start, so its next restart is after _FIRST_DELAY_SECONDS again.
_STEADY_SECONDS = 30.0
_TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class WantedCluster:
    """The cluster that the command line describes. `given`: configuration keys for all nodes. `port`: 0 for free
    ports. `ready_json`: the line on standard output is JSON."""

    brokers: int
    controllers: int
    port: int
    tree: str
    given: Mapping[str, str]
    log_level: str = "INFO"
    ready_json: bool = False


class NodeFailed(Exception):
    """A node ended before the cluster was ready; the message has the end of its log."""


def prepare(wanted: WantedCluster) -> tuple[Layout, dict[int, int]]:
    """Make the tree, or its missing parts; returns the layout and the brokers' ports.

    Raises ConfigError, StorageFormatError or OSError with a message for the user.
    """
    rng = random.SystemRandom()
    os.makedirs(wanted.tree, mode=0o700, exist_ok=True)
    path = os.path.join(wanted.tree, CLUSTER_FILE)
    with ExitStack() as held:
        free_port = _free_ports(held)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                earlier = layout_from_json(file.read(), path)
            layout = grown(earlier, wanted.brokers, wanted.controllers, wanted.port, wanted.tree)
        else:
            layout = new_layout(
                wanted.brokers,
                wanted.controllers,
                wanted.port,
                lambda: random_uuid(rng),
                free_port,
                is_taken=partial(is_taken, HOST),
            )
        ports = client_ports(layout, wanted.port, free_port)
    told = {member.number: properties_of(layout, member, wanted.tree, ports, wanted.given) for member in layout.members}
    configs = {number: start_config(values) for number, values in told.items()}
    check_free(
        ((f"node {number}", HOST, port) for number, port in ports.items()),
        "--port N chooses other ports, --port 0 free ones",
    )
    check_free(
        (
            (f"the controller of node {member.number}", HOST, member.controller_port)
            for member in layout.members
            if member.controller_port is not None
        ),
        f"the cluster in {wanted.tree} keeps this port, and another --data-dir holds another cluster",
    )
    # From here on the tree is written. If this is interrupted, the next start makes the missing parts.
    _write(path, layout.to_json())
    for member in layout.members:
        folder = node_folder(wanted.tree, member.number)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _write(os.path.join(folder, "server.properties"), properties.format(told[member.number]))
        format_directories(
            OsDisk(),
            configs[member.number],
            layout.cluster_id,
            rng,
            now_ms=time.time_ns() // 1_000_000,
            ignore_formatted=True,
            standalone=False,
            initial_voters=None if member.controller_port is None else layout.voters,
        )
    return layout, ports


def check(wanted: WantedCluster) -> None:
    """Raise ConfigError for numbers of nodes and for keys that no tree can make valid. Touches no file."""
    # Stand for free ports, because no port is opened here.
    any_port = count(32_768).__next__
    layout = new_layout(wanted.brokers, wanted.controllers, wanted.port, lambda: ZERO_UUID, any_port)
    ports = client_ports(layout, wanted.port, any_port)
    # Nodes of the same roles have the same keys, so one of each is enough.
    for member in {member.roles: member for member in layout.members}.values():
        start_config(properties_of(layout, member, wanted.tree, ports, wanted.given))


def run(wanted: WantedCluster) -> int:
    """Run the cluster until a signal, or until it cannot start; returns the exit status."""
    try:
        # A refused command leaves no directory and no lock.
        check(wanted)
        os.makedirs(wanted.tree, mode=0o700, exist_ok=True)
        with open(os.path.join(wanted.tree, ".lock"), "wb", opener=partial(os.open, mode=0o600)) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"pykbroker: another cluster runs in {wanted.tree}", file=sys.stderr)
                return 1
            layout, ports = prepare(wanted)
            return asyncio.run(Supervisor(layout, ports, wanted).run())
    except BrokenPipeError:
        # The reader of standard output has closed it.
        raise
    except (ConfigError, OSError, ValueError) as error:
        say(said_of(error) or str(error))
        return 1


class Supervisor:
    """Keeps the nodes of one cluster running. `prepare` must have made its tree."""

    def __init__(self, layout: Layout, ports: Mapping[int, int], wanted: WantedCluster) -> None:
        self._layout = layout
        self._ports = ports
        self._wanted = wanted
        self._running: dict[int, asyncio.subprocess.Process] = {}
        #: nodes that were ready once -> what they said then
        self._ready: dict[int, ready_line.ReadyNode] = {}
        self._all_ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._is_hurried = False

    async def run(self) -> int:
        """Run until a signal, or until a node fails at its start; returns the exit status. Raises OSError if standard
        output does not take the line."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._asked_to_stop)
        kept = [asyncio.create_task(self._keep(member)) for member in self._layout.members]
        try:
            await self._until_ready(kept)
        except NodeFailed as error:
            print(f"pykbroker: {error}", file=sys.stderr)
            self._stop.set()
            await self._end(kept)
            return 1
        try:
            if not self._stop.is_set():
                put_line(self._ready_line())
        except OSError:
            self._stop.set()
            await self._end(kept)
            raise
        await self._stop.wait()
        return await self._end(kept)

    # -- one node -----------------------------------------------------------------------------------------------------

    async def _keep(self, member: Member) -> None:
        """Start a node, and restart it whenever it ends unexpectedly. Raises NodeFailed if the node ends and was never
        ready."""
        delay = _FIRST_DELAY_SECONDS
        folder = node_folder(self._wanted.tree, member.number)
        log = os.path.join(folder, "server.log")
        while not self._stop.is_set():
            began = time.monotonic()
            status = await self._run_once(member, os.path.join(folder, "server.properties"), log)
            if self._stop.is_set():
                return
            if member.number not in self._ready:
                raise NodeFailed(f"node {member.number} {signals_of(status)}; the end of {log}:\n{_tail(log)}")
            if time.monotonic() - began > _STEADY_SECONDS:
                delay = _FIRST_DELAY_SECONDS
            _say(f"node {member.number} {signals_of(status)}, and is started again in {delay:g} s; its log is {log}")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), delay)
            delay = min(2 * delay, _LONGEST_DELAY_SECONDS)

    async def _run_once(self, member: Member, properties_path: str, log: str) -> int:
        """Run a node until it ends. Returns its exit status, or the number of the signal that ended it, negated."""
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                # -P, so that no module of the current directory is imported.
                *(sys.executable, "-P", "-m", "pykbroker", "start", properties_path),
                *("--until-stdin-ends", "--ready-json", "--log-level", self._wanted.log_level),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=out,
                # Ctrl-C on a terminal goes to all processes of its group.
                start_new_session=True,
            )
        finally:
            os.close(out)
        self._running[member.number] = process
        if self._stop.is_set():
            process.terminate()
        assert process.stdout is not None
        async for line in process.stdout:
            if (node := ready_line.node_in(line)) is not None:
                if member.number in self._ready:
                    _say(f"node {member.number} is ready again")
                self._ready[member.number] = node
                if len(self._ready) == len(self._layout.members):
                    self._all_ready.set()
        status = await process.wait()
        del self._running[member.number]
        return status

    # -- all nodes ----------------------------------------------------------------------------------------------------

    async def _until_ready(self, kept: list[asyncio.Task[None]]) -> None:
        """Wait until all nodes are ready, or until the user asks to stop. Raises the exception of a node that
        failed."""
        waiting = [asyncio.create_task(event.wait()) for event in (self._all_ready, self._stop)]
        await asyncio.wait([*waiting, *kept], return_when=asyncio.FIRST_COMPLETED)
        for either in waiting:
            either.cancel()
        for task in kept:
            if task.done():
                task.result()

    def _ready_line(self) -> str:
        servers = bootstrap_servers(self._ports)
        if self._wanted.ready_json:
            return ready_line.as_json(servers, self._layout.cluster_id, self._ready.values())
        return ready_line.for_people(servers)

    def _asked_to_stop(self) -> None:
        """Stop in order; the second time, kill the nodes at once."""
        if self._stop.is_set():
            self._is_hurried = True
            for process in self._running.values():
                process.kill()
        self._stop.set()

    async def _end(self, kept: list[asyncio.Task[None]]) -> int:
        """Shut the nodes down in order. Returns 1 if a node did not end well."""
        is_well = True
        for members in self._layout.stop_order():
            ending = [self._running[member.number] for member in members if member.number in self._running]
            for process in ending:
                process.kill() if self._is_hurried else process.terminate()
            for process in ending:
                is_well = await process.wait() == 0 and is_well
        await asyncio.gather(*kept, return_exceptions=True)
        return int(not is_well and not self._is_hurried)


def _free_ports(held: ExitStack) -> Callable[[], int]:
    """Return a function that finds free ports. It never returns the same port twice while `held` holds the sockets."""

    def one() -> int:
        found = held.enter_context(socket.socket())
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
        return port

    return one


def _write(path: str, text: str) -> None:
    """Write the whole file, or leave the old one as it was."""
    # The file may contain passwords.
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def _tail(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(deque(file, _TAIL_LINES)).rstrip()


def _say(text: str) -> None:
    print(f"pykbroker: {text}", file=sys.stderr, flush=True)
