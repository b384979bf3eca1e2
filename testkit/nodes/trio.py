"""Three combined nodes as three processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from pykbroker_wire.primitives import uuid_to_str
from testkit.nodes.nodes import PATIENCE_SECONDS, Nodes
from testkit.nodes.processes import Process, run_here, write_properties
from testkit.ports import steady_port
from testkit.standing_still import standing_still

NUMBERS = (1, 2, 3)
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
#: Settings of nodes whose topics all have three replicas, also the internal ones.
REPLICATED: Mapping[str, object] = {
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 6,
    # A killed broker is fenced sooner than after nine seconds.
    "broker.session.timeout.ms": 4_000,
    "broker.heartbeat.interval.ms": 500,
}


class Trio(Nodes):
    """Nodes 1, 2 and 3, formatted; `with` starts them all. `settings` are those of every node, `own` those of one."""

    numbers: Sequence[int] = NUMBERS

    def __init__(
        self,
        folder: Path,
        quorum: str,
        settings: Mapping[str, object],
        own: Mapping[int, Mapping[str, object]] | None = None,
        users: Sequence[str] = (),
    ) -> None:
        """`users`: users of SCRAM from the first start on, in the form of `--add-scram`."""
        self.folder = folder
        self._users = [word for user in users for word in ("--add-scram", user)]
        self.ports, self.controller_ports = self.choose_ports()
        self.running: dict[int, Process] = {}
        self._stack = ExitStack()
        addresses = {number: f"{self.host(number)}:{port}" for number, port in self.controller_ports.items()}
        if quorum == "static":
            found_by = {"controller.quorum.voters": ",".join(f"{n}@{addresses[n]}" for n in NUMBERS)}
        elif quorum == "joining":
            found_by = {
                "controller.quorum.bootstrap.servers": ",".join(addresses.values()),
                "controller.quorum.auto.join.enable": "true",
            }
        else:
            found_by = {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
        self.files = {
            number: write_properties(
                folder / f"{number}.properties",
                {
                    "process.roles": "broker,controller",
                    "node.id": number,
                    "listeners": f"PLAINTEXT://{self.address(number)},CONTROLLER://{addresses[number]}",
                    "controller.listener.names": "CONTROLLER",
                    "log.dirs": self.data(number),
                    "num.partitions": 3,
                    "group.initial.rebalance.delay.ms": 0,
                    **settings,
                    **(own or {}).get(number, {}),
                    **found_by,
                },
            )
            for number in NUMBERS
        }
        # Each node gets all voters and their directories, as with Apache Kafka's tool.
        initial = [f"{number}@{addresses[number]}:{uuid_to_str(bytes([number]) * 16)}" for number in NUMBERS]
        for number in NUMBERS:
            self.format(number, *self._voters(quorum, number, initial))

    @staticmethod
    def _voters(quorum: str, number: int, initial: Sequence[str]) -> Sequence[str]:
        """Return the tool's words for the first voters. `joining`: node 1 is the first, and the others add
        themselves."""
        if quorum == "static":
            return ()
        if quorum == "joining":
            return ("--standalone",) if number == 1 else ("--no-initial-controllers",)
        return ("--initial-controllers", ",".join(initial))

    def format(self, number: int, *voters: str) -> None:
        done = run_here("format", str(self.files[number]), "--cluster-id", CLUSTER_ID, *voters, *self._users)
        assert done.returncode == 0, done.stderr

    def __enter__(self) -> Self:
        for number in NUMBERS:
            self.start(number)
        for process in self.running.values():
            process.ready(PATIENCE_SECONDS)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    # -- starting and stopping nodes

    def start(self, number: int) -> Process:
        self.running[number] = self._stack.enter_context(self.launch(number))
        return self.running[number]

    def launch(self, number: int) -> Process:
        return Process(self.folder / f"{number}.log", str(self.files[number]))

    def bring_back(self) -> None:
        """Start the nodes that do not run, and wait until all of them serve."""
        for number in set(NUMBERS) - set(self.running):
            self.start(number)
        for process in self.running.values():
            process.ready(PATIENCE_SECONDS)
        self.serving(*NUMBERS)

    def kill(self, number: int) -> None:
        self.running.pop(number).kill()

    def stop(self, number: int) -> int:
        """Ask the node to stop in order. Return its exit status."""
        return self.running.pop(number).interrupt(signal.SIGTERM, PATIENCE_SECONDS)

    @contextmanager
    def paused(self, *numbers: int) -> Iterator[None]:
        """Stop the processes within the block: they keep their sockets, and do nothing."""
        with standing_still(*(self.running[number].pid for number in numbers)):
            yield

    # -- addresses and directories

    def data(self, number: int) -> Path:
        return self.folder / f"data{number}"

    def host(self, number: int) -> str:
        return "127.0.0.1"

    def address(self, number: int) -> str:
        return f"{self.host(number)}:{self.ports[number]}"

    def choose_ports(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return ports for clients and ports for controllers. A node that restarts finds its ports free."""
        clients = {number: steady_port() for number in NUMBERS}
        return clients, {number: port + 1 for number, port in clients.items()}

    def lines(self, part: str) -> list[str]:
        """Return the log lines of the nodes with this part."""
        texts = [(self.folder / f"{number}.log").read_text(errors="replace") for number in self.files]
        return [line for text in texts for line in text.splitlines() if part in line]

    def complaints(self) -> list[str]:
        """Return the lines of the nodes' logs that report an error, or a bug."""
        wrong = (" ERROR ", " CRITICAL ", "Traceback")
        return [
            f"node {number}: {line}"
            for number in self.files
            for line in (self.folder / f"{number}.log").read_text(errors="replace").splitlines()
            if any(word in line for word in wrong)
        ]
