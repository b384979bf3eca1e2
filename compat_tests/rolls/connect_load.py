"""A worker of Kafka Connect that carries lines from a file into a topic, and from there into another file."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

from compat_tests.mixed_cluster.members import PATIENCE_S, Cluster
from compat_tests.rolls.load import order_from
from testkit.nodes.nodes import eventually
from testkit.oracle.kafka import java_command, resolved
from testkit.ports import steady_port
from testkit.programs import Worker

TOPIC = "connected"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
FILE = "org.apache.kafka.connect.file.FileStream"
#: metadata.recovery.rebootstrap.trigger.ms. A client of the worker asks for the metadata every five minutes. When all
#: brokers that it knows have gone since, it goes back to its bootstrap servers after this time at the latest.
REBOOTSTRAP_S = 300


class ConnectLoad:
    """The worker has the defaults of its clients. It delivers at least once, so a line may come again."""

    def __init__(self, cluster: Cluster, bootstrap: str, folder: Path) -> None:
        cluster.create(TOPIC, order_from(cluster.numbers[0], cluster.numbers))
        self._source, self._target = folder / "source.txt", folder / "target.txt"
        self._source.touch()
        self._lines: list[str] = []
        self._address = f"http://127.0.0.1:{steady_port()}"
        replicas = str(len(cluster.numbers))
        values = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "listeners": self._address,
            **{
                key: value
                for kind in ("offset", "config", "status")
                for key, value in (
                    (f"{kind}.storage.topic", f"connect-{kind}"),
                    (f"{kind}.storage.replication.factor", replicas),
                )
            },
            "offset.storage.partitions": "2",
            "status.storage.partitions": "1",
            "offset.flush.interval.ms": "1000",
        }
        properties = folder / "connect.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        jars = [resolved(Path(__file__).parent / "connect" / "pom.xml") / "*"]
        command = java_command("org.apache.kafka.connect.cli.ConnectDistributed", extra_classpath=jars, sharing=())
        self._worker = Worker("connect", [*command, str(properties)], folder / "connect.log", lambda _: None)
        eventually("Connect answers", self._answers, seconds=PATIENCE_S)
        self._make("source", {"connector.class": f"{FILE}SourceConnector", "file": self._source, "topic": TOPIC})
        self._make("sink", {"connector.class": f"{FILE}SinkConnector", "file": self._target, "topics": TOPIC})

    def _answers(self) -> bool:
        assert self._worker.alive(), self._worker.tail()
        with urllib.request.urlopen(f"{self._address}/connectors", timeout=60) as answer:
            return bool(answer.status == 200)

    def _make(self, name: str, config: dict[str, object]) -> None:
        body = json.dumps({key: str(value) for key, value in {**config, "tasks.max": 1}.items()}).encode()

        def is_made() -> bool:
            request = urllib.request.Request(
                f"{self._address}/connectors/{name}/config",
                data=body,
                method="PUT",
                headers={"Content-Type": "application/json"},
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return bool(answer.status in (200, 201))
            except urllib.error.HTTPError:
                # The worker is joining its group.
                return False

        eventually(f"Connect has its {name}", is_made, seconds=PATIENCE_S)

    def goes_on(self) -> None:
        """Write some lines, and wait until they are in the other file."""
        first = len(self._lines)
        self._lines += [f"line {number}" for number in range(first, first + 20)]
        with self._source.open("a") as file:
            file.writelines(f"{line}\n" for line in self._lines[first:])
        eventually("every line came through Connect", lambda: not self._missing(), seconds=REBOOTSTRAP_S + PATIENCE_S)

    def _found(self) -> list[str]:
        return self._target.read_text().splitlines() if self._target.exists() else []

    def _missing(self) -> set[str]:
        assert self._worker.alive(), self._worker.tail()
        return set(self._lines) - set(self._found())

    def finish(self) -> None:
        """Check that each line is there, none that was not written, and that they came in order at first."""
        self.goes_on()
        assert list(dict.fromkeys(self._found())) == self._lines

    def close(self) -> None:
        if self._worker.alive():
            self._worker.kill()
