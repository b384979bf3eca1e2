"""Apache Kafka and pykbroker, alone and fresh, with the same server.properties and the same finalised features."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.node import ADDRESS
from compat_tests.oracle.kafka import SINGLE_NODE, ApacheKafka, free_ports

CONFIG = {"offsets.topic.num.partitions": "3"}
# What pykbroker does not serve yet is not finalised on Kafka's side either: its answers depend on it.
FEATURES_AT_ZERO = ("share", "streams", "eligible.leader.replicas")
FORMAT_ARGS = [
    "--release-version",
    "4.3-IV0",
    *(word for name in FEATURES_AT_ZERO for word in ("--feature", f"{name}.version=0")),
]


@dataclass(slots=True)
class Side:
    """One of the two. `texts` are the node's own words, with what they are called in a comparison."""

    name: str
    address: str
    texts: dict[str, str] = field(default_factory=dict)
    log_file: Path | None = None


@contextmanager
def both() -> Iterator[tuple[Side, Side]]:
    with apache_kafka() as theirs, pykbroker() as ours:
        yield theirs, ours


@contextmanager
def apache_kafka() -> Iterator[Side]:
    with ApacheKafka(CONFIG, format_args=FORMAT_ARGS) as kafka:
        side = Side("Apache Kafka", kafka.bootstrap, _texts(kafka.bootstrap, str(kafka.data_dir)), kafka.log_file)
        side.texts[f"localhost:{kafka._controller_port}"] = "‹controller›"
        yield side


@contextmanager
def pykbroker() -> Iterator[Side]:
    with tempfile.TemporaryDirectory(prefix="pykbroker-differential-") as folder:
        home = Path(folder)
        port, controller_port = free_ports(2)
        values = {
            **SINGLE_NODE,
            "listeners": f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://localhost:{port}",
            "controller.quorum.bootstrap.servers": f"localhost:{controller_port}",
            "log.dirs": str(home / "data"),
            **CONFIG,
        }
        properties = home / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        log_file, said = home / "server.log", home / "address"
        with log_file.open("wb") as log, said.open("wb") as out:
            command = [sys.executable, "-m", "pykbroker", "start", str(properties), "--format"]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        try:
            deadline = time.monotonic() + 30
            while not (ADDRESS.search(said.read_bytes()) and said.read_bytes().endswith(b"\n")):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"pykbroker did not come up:\n{log_file.read_text()[-3000:]}")
                time.sleep(0.02)
            address = f"localhost:{port}"
            side = Side("pykbroker", address, _texts(address, str(home / "data")), log_file)
            side.texts[f"localhost:{controller_port}"] = "‹controller›"
            yield side
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


def _texts(address: str, data_dir: str) -> dict[str, str]:
    return {data_dir: "‹log.dirs›", address: "‹broker›"}
