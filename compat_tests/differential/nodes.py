"""Apache Kafka and pykbroker, each alone and new, with the same server.properties and the same finalised features."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.node import ADDRESS
from testkit import needs
from testkit.oracle.kafka import NEWEST, SINGLE_NODE, ApacheKafka
from testkit.ports import steady_port

CONFIG = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    # So that the answer to a heartbeat does not depend on the time of the previous one; a script sets it for its group.
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.max.size": "6",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.session.timeout.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.size": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    # A script waits until its topic is compacted.
    "log.cleaner.backoff.ms": "200",
}
# Features that pykbroker does not serve yet are finalised on neither side, because Kafka's answers depend on them.
RELEASE = "4.3-IV0"
NOT_SERVED = {"streams.version": 0}


@dataclass(frozen=True, slots=True)
class Kind:
    """A pair of nodes: its keys of server.properties besides CONFIG, the levels of its features, and the number of log
    directories of its replicas."""

    name: str
    config: dict[str, str] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    directories: int = 1

    def paths(self, home: Path) -> list[Path]:
        return [home / (f"data{number}" if number else "data") for number in range(self.directories)]


KINDS = {
    kind.name: kind
    for kind in (
        Kind("latest"),
        # Nothing is finalised yet here, and a script raises the levels. Its groups wait for their members.
        Kind(
            "first",
            {
                "group.initial.rebalance.delay.ms": "1000",
                "group.min.session.timeout.ms": "500",
                "group.consumer.migration.policy": "disabled",
            },
            {"transaction.version": 0, "group.version": 0, "share.version": 0},
        ),
        Kind(
            "upgrade",
            {
                "group.consumer.migration.policy": "upgrade",
                "group.initial.rebalance.delay.ms": "1000",
                "group.max.size": "2",
            },
        ),
        Kind("downgrade", {"group.consumer.migration.policy": "downgrade"}),
        Kind("min isr", {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}),
        Kind("directories", directories=3),
        # The prefix is that of the names of the scripts.
        Kind(
            "dead letters",
            {
                "errors.deadletterqueue.topic.name.prefix": "dead_letter_",
                "group.share.min.record.lock.duration.ms": "1000",
            },
            {"share.version": 2},
        ),
    )
}
LATEST = KINDS["latest"]


@dataclass(slots=True)
class Side:
    """A node of the pair. `texts` are the node's own texts, with their names in a comparison. `nodes`: those of a
    cluster, by the name of the link to each."""

    name: str
    address: str
    texts: dict[str, str] = field(default_factory=dict)
    log_file: Path | None = None
    nodes: dict[str, str] = field(default_factory=dict)


@contextmanager
def both(kind: Kind = LATEST, python: str = needs.NODE_PYTHON) -> Iterator[tuple[Side, Side]]:
    with apache_kafka(kind) as theirs, pykbroker(kind, python) as ours:
        yield theirs, ours


@contextmanager
def apache_kafka(kind: Kind = LATEST) -> Iterator[Side]:
    with tempfile.TemporaryDirectory(prefix="kafka-differential-") as folder, ExitStack() as stack:
        paths = kind.paths(Path(folder))
        config = {**CONFIG, **kind.config, "log.dirs": ",".join(map(str, paths))}
        kafka = stack.enter_context(ApacheKafka(config, data_dir=paths[0], format_args=_features(kind), version=NEWEST))
        side = Side("Apache Kafka", kafka.bootstrap, _texts(kafka.bootstrap, paths), kafka.log_file)
        side.texts[f"localhost:{kafka.controller_port}"] = "‹controller›"
        yield side


@contextmanager
def pykbroker(kind: Kind = LATEST, python: str = needs.NODE_PYTHON) -> Iterator[Side]:
    with tempfile.TemporaryDirectory(prefix="pykbroker-differential-") as folder:
        home = Path(folder)
        port = steady_port()
        controller_port = port + 1
        values = {
            **SINGLE_NODE,
            "listeners": f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://localhost:{port}",
            "controller.quorum.bootstrap.servers": f"localhost:{controller_port}",
            "log.dirs": ",".join(map(str, kind.paths(home))),
            **CONFIG,
            **kind.config,
        }
        properties = home / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        log_file, said = home / "server.log", home / "address"
        subprocess.run(
            [*needs.node_command(python), "format", str(properties), *_features(kind)],
            check=True,
            capture_output=True,
            cwd=home,
        )
        with log_file.open("wb") as log, said.open("wb") as out:
            command = [*needs.node_command(python), "start", str(properties)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=home)
        try:
            deadline = time.monotonic() + 30
            while not (ADDRESS.search(said.read_bytes()) and said.read_bytes().endswith(b"\n")):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"pykbroker did not come up:\n{log_file.read_text()[-3000:]}")
                time.sleep(0.02)
            address = f"localhost:{port}"
            side = Side("pykbroker", address, _texts(address, kind.paths(home)), log_file)
            side.texts[f"localhost:{controller_port}"] = "‹controller›"
            yield side
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


def _features(kind: Kind) -> list[str]:
    """Return the arguments for `format`, which are the same for both."""
    levels = NOT_SERVED | kind.levels
    return [
        "--release-version",
        RELEASE,
        *(word for name in levels for word in ("--feature", f"{name}={levels[name]}")),
    ]


def _texts(address: str, paths: list[Path]) -> dict[str, str]:
    # The longest first, because the first path is the beginning of the others.
    names = {str(path): f"‹log.dirs›{number or ''}" for number, path in reversed(list(enumerate(paths)))}
    return {**names, address: "‹broker›"}
