"""One node in a container of each side: its time until it is ready, its memory and the size of its image.

Both images have the same base (`make image`, `make apache-kafka-image`). Apache Kafka's has Debian's Java, the options
that start it fastest (docker/apache-kafka/run), and the heap size of its own image.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Mapping

from bench import raw
from bench.measurements import Figure, Kind, Measurement
from bench.servers import ApacheKafka, Pykbroker, Server, free_port
from pykbroker_wire.messages.metadata import MetadataRequest

IMAGES = {Pykbroker.name: "pykbroker:latest", ApacheKafka.name: "pykbroker-apache-kafka:latest"}
_MB = 1_000_000
_READY_SECONDS = 120.0
_IDLE_SECONDS = 3.0


def variables(port: int) -> Mapping[str, str]:
    """Return the environment of a node with both roles that clients on this machine reach at `port`."""
    return {
        "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qg",
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://127.0.0.1:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_HEAP_OPTS": "-Xmx1G -Xms1G",
    }


class NodeInContainer:
    """A node under `docker run`, with figures of the engine and of the operating system."""

    def __init__(self, side: type[Server]) -> None:
        self.name = f"pykbroker-bench-{uuid.uuid4().hex[:12]}"
        self.image = IMAGES[side.name]
        self.port = free_port()
        self.ready_seconds = 0.0

    def start(self) -> None:
        """Start it, and wait for the first Metadata response on the published port."""
        given = [word for name, value in variables(self.port).items() for word in ("-e", f"{name}={value}")]
        begin = time.perf_counter()
        _docker("run", "-d", "--name", self.name, "-p", f"127.0.0.1:{self.port}:{self.port}", *given, self.image)
        while not self._answers():
            if time.perf_counter() - begin > _READY_SECONDS:
                raise TimeoutError(f"{self.image} is not ready after {_READY_SECONDS} s:\n{_docker('logs', self.name)}")
            time.sleep(0.005)
        self.ready_seconds = time.perf_counter() - begin

    def _answers(self) -> bool:
        try:
            client = raw.Client(("127.0.0.1", self.port))
            try:
                return bool(client.call(MetadataRequest(topics=[]), 12).brokers)
            finally:
                client.close()
        except (ConnectionError, TimeoutError):
            # The engine's proxy accepts connections before the node does, and closes them.
            return False

    def memory(self) -> float:
        """Return RssAnon of all its processes, in MB."""
        pids = _docker("top", self.name, "-eo", "pid").split()[1:]
        return sum(_rss_anon(int(pid)) for pid in pids) / _MB

    def image_size(self) -> float:
        """Return the size with its base, in MB."""
        return int(_docker("image", "inspect", "-f", "{{.Size}}", self.image)) / _MB

    def delete_topics(self) -> None:
        """Do nothing, because it has no topics."""

    def stop(self) -> None:
        subprocess.run(["docker", "rm", "-fv", self.name], check=False, capture_output=True)


def _docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"docker {' '.join(words)}: {done.stderr.strip()}; the images are made by `make image` and "
            "`make apache-kafka-image`"
        )
    return done.stdout


def _rss_anon(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon:"))


def _warm_up(node: NodeInContainer, seconds: float) -> None:
    """Do nothing, because each measurement has its own node."""


def _measure(node: NodeInContainer, seconds: float) -> dict[str, float]:
    node.start()
    time.sleep(_IDLE_SECONDS)
    return {"ready": node.ready_seconds, "RssAnon idle": node.memory(), "image": node.image_size()}


CONTAINERS: list[Measurement] = [
    Measurement(
        "containers, one node",
        _measure,
        (
            Figure("ready", "s", more_is_better=False, at_most=1.0),
            Figure("RssAnon idle", "MB", more_is_better=False, at_most=60),
            Figure("image", "MB", more_is_better=False),
        ),
        fresh=True,
        kind=Kind("containers", NodeInContainer, _warm_up, alone=True),
    )
]
