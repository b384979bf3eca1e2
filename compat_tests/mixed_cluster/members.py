"""The nodes of one cluster, some of Apache Kafka and some of pykbroker, each a process with a home of its own.

Both kinds read properties files and directories of the same form. Not responsible for the expectations (the tests have
them), nor for requests to nodes (testkit/nodes/nodes.py).
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from compat_tests.node import format_directories
from compat_tests.tool_server import run_shared
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker_wire.primitives import uuid_to_str
from testkit import needs
from testkit.nodes.nodes import Nodes, eventually
from testkit.nodes.wire import Wire
from testkit.oracle.kafka import KAFKA, broker_command
from testkit.ports import steady_port
from testkit.standing_still import standing_still

Kind = Literal["kafka", "pykbroker"]
#: The names of Apache Kafka's kraft.version 0 and 1 in these tests. In a "joining" quorum the first controller is the
#: only voter at first, and the others add themselves (KIP-1186).
Quorum = Literal["static", "dynamic", "joining"]

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
READY: dict[Kind, bytes] = {"kafka": b"Kafka Server started", "pykbroker": b"pykbroker is ready"}
#: A bound for hanging nodes: several JVMs start at once on two busy cores.
PATIENCE_S = 300
SMALL_JVM = ["-Xmx256m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
SETTINGS = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A killed broker is fenced earlier than after nine seconds, and a slow one on a busy machine is not.
    "initial.broker.registration.timeout.ms": "300000",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
}


@dataclass(frozen=True, slots=True)
class Member:
    kind: Kind
    roles: str = "broker,controller"

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles


class Cluster(Nodes):
    """Members by node id. Call `format`, then `start_all`; `close` ends every process and removes every file."""

    def __init__(
        self,
        members: Mapping[int, Member],
        *,
        quorum: Quorum = "dynamic",
        settings: Mapping[str, str] | None = None,
        own: Mapping[int, Mapping[str, str]] | None = None,
        directories: int = 2,
        listeners: Mapping[int, str] | None = None,
        host: str = "localhost",
        prefix: Sequence[str] = (),
        kafka: str = KAFKA,
    ) -> None:
        """`settings` are those of every member, `own` additional ones of some. A broker has `directories` log.dirs:
        with two it reports to the controller which of them has a replica (KIP-858). `listeners`: a further one of a
        member. `host`: the host in `listeners`. `prefix`: a command in front of the one that starts a member.
        `kafka`: the release of the members of Apache Kafka."""
        self.members = dict(members)
        self.quorum = quorum
        self.numbers = tuple(number for number, member in members.items() if member.is_broker)
        self.folder = Path(tempfile.mkdtemp(prefix="mixed-"))
        self.running: dict[int, _Process] = {}
        #: the interpreters of members that do not run the pykbroker of this environment
        self.pythons: dict[int, Path] = {}
        # The port after each is the controller's.
        self._ports = {number: steady_port() for number in members}
        self._settings = {**SETTINGS, **(settings or {})}
        self._own = dict(own or {})
        self._directories = directories
        self._listeners = dict(listeners or {})
        self._host = host
        self._prefix = tuple(prefix)
        self._kafka = kafka
        for number in members:
            (self.folder / str(number)).mkdir()
            self._write(number)
        atexit.register(self.close)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
        self.running.clear()
        if not os.environ.get("PYKBROKER_COMPAT_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    # -- where they are

    @property
    def controllers(self) -> tuple[int, ...]:
        return tuple(number for number, member in self.members.items() if member.is_controller)

    def of_kind(self, kind: Kind) -> tuple[int, ...]:
        """Return the brokers of one kind."""
        return tuple(number for number in self.numbers if self.members[number].kind == kind)

    def address(self, number: int) -> str:
        return f"localhost:{self._ports[number]}"

    def further_address(self, number: int) -> str:
        """Return the address of a member's further listener."""
        return self._listeners[number].rpartition("/")[2]

    def controller_address(self, number: int) -> str:
        return f"localhost:{self._ports[number] + 1}"

    def data(self, number: int) -> Path:
        return self.folder / str(number) / "data"

    def log_dirs(self, number: int) -> list[Path]:
        count = self._directories if self.members[number].is_broker else 1
        return [self.folder / str(number) / name for name in ("data", "more")[:count]]

    def folder_of(self, number: int, topic: str, partition: int) -> Path:
        found = (folder / f"{topic}-{partition}" for folder in self.log_dirs(number))
        return next((folder for folder in found if folder.is_dir()), self.data(number))

    def replicas(self, number: int) -> list[Path]:
        """Return the folders with replicas of a broker, without deleted ones."""
        found = [path for folder in self.log_dirs(number) for path in folder.glob("*-*") if path.is_dir()]
        return [path for path in found if not path.name.endswith("-delete")]

    def log_file(self, number: int) -> Path:
        """Return the log of a member. A member that was handed over has one of each kind."""
        return self.folder / str(number) / f"{self.members[number].kind}.log"

    def said(self, number: int) -> str:
        path = self.log_file(number)
        return path.read_text(errors="replace") if path.exists() else ""

    def properties(self, number: int) -> Path:
        return self.folder / str(number) / "server.properties"

    def _write(self, number: int) -> None:
        member = self.members[number]
        listeners = []
        if member.is_broker:
            listeners.append(f"PLAINTEXT://{self._host}:{self._ports[number]}")
        listeners += [self._listeners[number]] if number in self._listeners else []
        if member.is_controller:
            listeners.append(f"CONTROLLER://{self._host}:{self._ports[number] + 1}")
        if self.quorum == "static":
            voters = ",".join(f"{each}@{self.controller_address(each)}" for each in self.controllers)
            found_by = {"controller.quorum.voters": voters}
        else:
            known = ",".join(map(self.controller_address, self.controllers))
            found_by = {"controller.quorum.bootstrap.servers": known}
        if self.quorum == "joining":
            found_by["controller.quorum.auto.join.enable"] = "true"
        values = {
            "process.roles": member.roles,
            "node.id": str(number),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": ",".join(map(str, self.log_dirs(number))),
            "metadata.log.dir": str(self.data(number)),
            **self._settings,
            **self._own.get(number, {}),
            **found_by,
        }
        self.properties(number).write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    # -- members that come and go

    def format(self, *words: str, own_tools: bool = False) -> None:
        """Format every home. `own_tools`: format each of Apache Kafka's nodes with its StorageTool, which takes a
        JVM."""

        with ThreadPoolExecutor(len(self.members)) as pool:
            list(pool.map(lambda number: self.format_one(number, *words, own_tools=own_tools), self.members))

    def format_one(self, number: int, *words: str, own_tools: bool = False, later: bool = False) -> None:
        """`later`: the member comes to a cluster that exists, so that its controller is no voter at first."""
        member = self.members[number]
        arguments = [f"--cluster-id={CLUSTER_ID}", "-c", str(self.properties(number)), *words]
        if self.quorum == "dynamic" and member.is_controller:
            arguments += ["--no-initial-controllers"] if later else self._first_voters()
        if self.quorum == "joining":
            arguments += ["--standalone" if number == self.controllers[0] else "--no-initial-controllers"]
        if own_tools and member.kind == "kafka":
            run_shared("kafka.tools.StorageTool", ["format", *arguments], version=self._kafka)
        else:
            command, environment = self._pykbroker(number)
            format_directories(command, *arguments, env=environment if number in self.pythons else None)

    def _first_voters(self) -> list[str]:
        voters = (
            f"{number}@{self.controller_address(number)}:{uuid_to_str(bytes([number]) * 16)}"
            for number in self.controllers
        )
        return ["--initial-controllers", ",".join(voters)]

    def launch(self, *numbers: int) -> None:
        """Begin to start these members; `ready` waits for them."""
        for number in numbers:
            assert number not in self.running, f"node {number} runs"
            if self.members[number].kind == "kafka":
                command, environment = _apache_kafka(self._kafka), dict(os.environ)
            else:
                command, environment = self._pykbroker(number)
                command += ["start", "--log-level", _our_level()]
            self.running[number] = _Process(
                self.members[number].kind,
                [*self._prefix, *command, str(self.properties(number))],
                self.log_file(number),
                environment,
            )

    def _pykbroker(self, number: int) -> tuple[list[str], dict[str, str]]:
        """Return the beginning of a command of this member's pykbroker, and its environment."""
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
        if number in self.pythons:
            # It would name the code of this environment.
            environment.pop("PYTHONPATH", None)
        return needs.node_command(str(self.pythons.get(number, needs.NODE_PYTHON))), environment

    def ready(self, *numbers: int) -> None:
        for number in numbers:
            self.running[number].wait_ready()

    def start(self, *numbers: int) -> None:
        self.launch(*numbers)
        self.ready(*numbers)

    def start_all(self) -> None:
        """Start all members at once, the JVMs first, because they take longest."""
        self.start(*sorted(self.members, key=lambda number: self.members[number].kind != "kafka"))

    def stop(self, *numbers: int) -> None:
        """Shut these members down in parallel. Each gets one signal, because a second one ends a node at once."""
        for number in numbers:
            self.running[number].ask(signal.SIGTERM)
        for number in numbers:
            process = self.running.pop(number)
            # A JVM that was asked to end returns the number of the signal.
            code = process.wait()
            wanted = 128 + signal.SIGTERM if process.kind == "kafka" else 0
            assert code == wanted, f"node {number} ended with {code}:\n{process.tail()}"

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self.running.pop(number).kill()

    def hand_over(self, number: int, kind: Kind) -> None:
        """Shut a member down, and start it as one of this kind, with the same properties and directories."""
        self.stop(number)
        self.members[number] = replace(self.members[number], kind=kind)
        self.start(number)

    def add(self, number: int, member: Member, listener: str | None = None) -> None:
        """Make a home for a further member; `format_one` with `later` and `start` come next. `listener`: one more."""
        self.members[number] = member
        self._ports[number] = steady_port()
        if listener is not None:
            self._listeners[number] = listener
        if member.is_broker:
            self.numbers = (*self.numbers, number)
        (self.folder / str(number)).mkdir()
        # Each file names the controllers, those of the others from their next start on.
        for each in self.members:
            self._write(each)

    def forget(self, number: int) -> None:
        """Leave a member out that was stopped. Its files stay."""
        assert number not in self.running, f"node {number} runs"
        del self.members[number]
        self.numbers = tuple(each for each in self.numbers if each != number)

    @contextmanager
    def paused(self, *numbers: int) -> Iterator[None]:
        """Pause the processes within the block: they keep their sockets, and do nothing."""
        with standing_still(*(self.running[number].pid for number in numbers)):
            yield

    # -- leaders

    def move(self, topic: str, to: int) -> None:
        """Make a broker the preferred replica of every partition of a topic, and let it be elected."""
        order = [to, *(number for number in self.numbers if number != to)]
        self.in_sync(topic)
        partitions = self.partitions(topic)
        with Wire(self.address(self.living()[0])) as wire:
            reassign(
                wire,
                topic,
                {index: sorted(partition.replica_nodes, key=order.index) for index, partition in partitions.items()},
            )

            def led() -> bool:
                asked = [TopicPartitions(topic=topic, partitions=sorted(partitions))]
                wire.call(ElectLeadersRequest(topic_partitions=asked, timeout_ms=30_000))
                return set(self.leaders(topic).values()) == {to}

            eventually(f"node {to} leads {topic}", led)

    def place(self, topic: str, replicas: Sequence[int]) -> None:
        """Give every partition of a topic these replicas, and wait until they are in sync and no other one is left."""
        with Wire(self.address(self.living()[0])) as wire:
            reassign(wire, topic, {index: list(replicas) for index in self.partitions(topic)})
        self.all_say(
            f"{topic} is on nodes {replicas}",
            topic,
            lambda found: all(
                set(each.replica_nodes) == set(each.isr_nodes) == set(replicas) for each in found.values()
            ),
        )

    # -- the quorum

    def controller(self, number: int) -> Wire:
        """Return a connection to a controller's listener."""
        return Wire(self.controller_address(number))

    def led_by(self, *numbers: int) -> int:
        """Wait until one of these controllers is active, and return it."""

        def look() -> int | None:
            active = self.active()
            return active if active in numbers else None

        return eventually(f"one of {numbers} leads the quorum", look, seconds=PATIENCE_S)

    def complaints(self) -> list[str]:
        """Return lines of pykbroker's logs that report an error or a bug."""
        wrong = (" ERROR ", " CRITICAL ", "Traceback")
        return [
            f"node {path.parent.name}: {line}"
            for path in sorted(self.folder.glob("*/pykbroker.log"))
            for line in path.read_text(errors="replace").splitlines()
            if any(word in line for word in wrong)
        ]

    def tails(self, lines: int = 30) -> str:
        """Return the ends of all logs, for a failure's message."""
        ends = []
        for number, member in self.members.items():
            ends += [f"--- node {number} ({member.kind})", *self.said(number).splitlines()[-lines:]]
        return "\n".join(ends)


def reassign(wire: Wire, topic: str, replicas: Mapping[int, list[int]]) -> None:
    """Begin to give partitions of a topic these replicas."""
    wanted = [ReassignablePartition(partition_index=index, replicas=each) for index, each in replicas.items()]
    reassigned = wire.call(
        AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=wanted)])
    )
    assert not reassigned.error_code, reassigned
    assert not any(each.error_code for each in reassigned.responses[0].partitions), reassigned


class _Process:
    def __init__(self, kind: Kind, command: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> None:
        self.kind = kind
        self._log_file = log_file
        self._before = log_file.stat().st_size if log_file.exists() else 0
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=log_file.parent,
                env=environment,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while READY[self.kind] not in self._log_file.read_bytes()[self._before :]:
            assert self._process.poll() is None, f"ended with {self._process.returncode}:\n{self.tail()}"
            assert time.monotonic() < deadline, f"not ready after {PATIENCE_S} s:\n{self.tail()}"
            time.sleep(0.05)

    def ask(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"a node of {self.kind} did not stop:\n{self.tail()}") from None

    def tail(self) -> str:
        return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-60:])


def _apache_kafka(version: str) -> list[str]:
    level = os.environ.get("PYKBROKER_COMPAT_KAFKA_LOG", "info")
    levels = [f"-Dorg.slf4j.simpleLogger.log.{name}={level}" for name in ("kafka", "org.apache.kafka", "state")]
    dated = ["-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"]
    return broker_command([*SMALL_JVM, *levels, *dated], version)


def _our_level() -> str:
    return os.environ.get("PYKBROKER_COMPAT_LOG", "INFO")
