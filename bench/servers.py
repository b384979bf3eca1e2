"""The two sides: Apache Kafka and pykbroker as processes, and the operating system's figures for them.

Apache Kafka comes from testkit/oracle (Maven resolves the jars). Both run with their defaults. A `Server` is a
single node; clusters.py has three of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path

from bench.raw import Client
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.metadata import MetadataRequest

ROOT = Path(__file__).resolve().parent.parent
KAFKA_VERSION = "4.3.1"
#: The side of `--before`.
BEFORE = "before"


def free_port() -> int:
    """Return a port that is free with the port after it, where pykbroker's controller listens."""
    while True:
        with socket.socket() as probe, socket.socket() as behind:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            try:
                behind.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


class BrokerProcess(ABC):
    """A broker on a directory of its own. `ready_seconds` is the time from its start to the first answered Metadata."""

    name: str
    #: the working directory of the process
    root: Path

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.address = ("127.0.0.1", port)
        self.process: subprocess.Popen[bytes] | None = None
        self.ready_seconds = 0.0
        self._began = 0.0

    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs the broker."""

    def launch(self) -> None:
        """Begin to start; also again, on the same directory."""
        # An installed package has its bytecode; with this variable set each start would compile it.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = self.command()
        with self.log.open("ab") as log:
            self._began = time.perf_counter()
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.root, start_new_session=True, env=environment
            )

    def await_ready(self, timeout: float = 60) -> None:
        """Wait for the first answered Metadata."""
        assert self.process is not None
        while True:
            try:
                client = Client(self.address)
                # Connections are refused until it listens; a listener that does not answer yet is not ready.
                answer = client.call(MetadataRequest(topics=[]), 12)
                client.close()
                if answer.brokers:
                    break
            except (ConnectionError, TimeoutError):
                pass
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} did not start: {self.log.read_text(errors='replace')[-2000:]}")
            if time.perf_counter() - self._began > timeout:
                raise TimeoutError(f"{self.name} is not ready after {timeout} s")
            time.sleep(0.002)
        self.ready_seconds = time.perf_counter() - self._began

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def halt(self, number: int = signal.SIGTERM, timeout: float = 300) -> float:
        """End the process and keep its directory; return how many seconds that took."""
        assert self.process is not None
        begin = time.perf_counter()
        self.process.send_signal(number)
        self.process.wait(timeout)
        self.process = None
        return time.perf_counter() - begin

    def stop(self) -> None:
        """End the process, at the latest after 30 s, and remove its directory."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def memory(self) -> tuple[float, float]:
        """Return RssAnon and VmRSS in MB."""
        assert self.process is not None
        fields = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            if ":" in line
        )
        return tuple(int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS"))  # type: ignore[return-value]

    def cpu_seconds(self) -> float:
        """Return user and system time of the process so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class LoneNode(BrokerProcess):
    """A single node, on its own directory and ports."""

    def __init__(self) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="pykbroker-bench-")), free_port())
        #: topics of measurements that are finished
        self.topics: list[str] = []
        self._prepared = False

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Prepare everything that must exist before the clock starts."""

    def start(self, timeout: float = 60) -> None:
        """Start the node, or start it again on the same directory after `halt`."""
        if not self._prepared:
            self.prepare()
            self._prepared = True
        self.launch()
        self.await_ready(timeout)

    def delete_topics(self) -> None:
        """Delete all topics of measurements, because a whole run would fill a disk of 70 GB. Their files are deleted a
        minute later, by the defaults of both brokers."""
        if not self.topics:
            return
        topics = [DeleteTopicState(name=name) for name in self.topics]
        client = Client(self.address)
        client.call(DeleteTopicsRequest(topics=topics, timeout_ms=30_000), 6)
        client.close()
        self.topics.clear()


class Server(LoneNode):
    """A node of one side, with the side's defaults."""

    name = ""
    root = ROOT

    @classmethod
    @abstractmethod
    def starting(cls, properties: Path) -> list[str]:
        """Return the command that runs a node of this side from its properties."""

    @classmethod
    @abstractmethod
    def formatting(cls, properties: Path, *words: str) -> list[str]:
        """Return the command that formats the directories of a node of this side."""


class Pykbroker(Server):
    name = "pykbroker"
    python = sys.executable

    def command(self) -> list[str]:
        return [
            self.python,
            "-m",
            "pykbroker",
            "start",
            "--data-dir",
            str(self.directory / "data"),
            "--port",
            str(self.port),
        ]

    @classmethod
    def starting(cls, properties: Path) -> list[str]:
        return [cls.python, "-m", "pykbroker", "start", str(properties)]

    @classmethod
    def formatting(cls, properties: Path, *words: str) -> list[str]:
        return [cls.python, "-m", "pykbroker", "format", "--config", str(properties), *words]


def checkout(folder: Path) -> type[Pykbroker]:
    """Return pykbroker of another checkout, in its own environment (`make install` there)."""

    class Before(Pykbroker):
        name = BEFORE
        python = str(folder / ".venv" / "bin" / "python")
        root = folder

    return Before


class ApacheKafka(Server):
    name = "Apache Kafka"
    version = KAFKA_VERSION

    def prepare(self) -> None:
        controller = free_port()
        (self.directory / "server.properties").write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={self.directory}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""
        )
        command = self.formatting(
            self.directory / "server.properties", "--standalone", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg"
        )
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def command(self) -> list[str]:
        return self.starting(self.directory / "server.properties")

    @classmethod
    def starting(cls, properties: Path) -> list[str]:
        # The heap and collector of Apache Kafka's own start script.
        options = [
            "-Xmx1G",
            "-Xms1G",
            "-server",
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
            "-XX:InitiatingHeapOccupancyPercent=35",
        ]
        return ["java", *options, *_classes(cls.version), "kafka.Kafka", str(properties)]

    @classmethod
    def formatting(cls, properties: Path, *words: str) -> list[str]:
        return [
            "java",
            *_classes(cls.version),
            "kafka.tools.StorageTool",
            "format",
            "--config",
            str(properties),
            *words,
        ]


def _classes(version: str) -> list[str]:
    from testkit.oracle.kafka import kafka_libs

    return ["-cp", f"{kafka_libs(version)}/*"]
