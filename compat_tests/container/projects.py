"""Compose projects of docker/: each has a name and ports of its own, and is removed after its test.

PYKBROKER_COMPOSE names another program than docker-compose: a build of Compose v2.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, PartitionMetadata

from compat_tests.container.containers import EVERY_S, PATIENCE_S, docker, fresh_name
from compat_tests.container.host_clients import at
from testkit import needs
from testkit.clients import wait_until
from testkit.ports import steady_port

FOLDER = needs.ROOT / "docker"
#: The folder of certificates and passwords in containers of compose.secured.yaml.
SECRETS = "/etc/kafka/secrets"
_LABEL = "com.docker.compose"
#: The length of the names that the engine gives; ours are shorter.
_ANONYMOUS = 64


class Project:
    """A file of docker/ with an image. `close` removes everything with the project's label."""

    def __init__(self, image: str, file: str) -> None:
        self.name = fresh_name()
        self.image = image
        #: further variables that the file reads
        self.more: dict[str, str] = {}
        self.path = FOLDER / file
        #: by the number of the broker: PYKBROKER_PORT_1, …
        self.ports: dict[int, int] = {}
        while len(self.ports) < 4:
            port = steady_port()
            if port not in self.ports.values():
                self.ports[len(self.ports) + 1] = port

    @property
    def variables(self) -> dict[str, str]:
        ports = {f"PYKBROKER_PORT_{number}": str(port) for number, port in self.ports.items()}
        return {
            **os.environ,
            **ports,
            **self.more,
            "PYKBROKER_IMAGE": self.image,
            "COMPOSE_PROJECT_NAME": self.name,
        }

    def bootstrap(self, *numbers: int) -> str:
        """Return the address of these brokers for clients on the host."""
        return at(*(self.ports[number] for number in numbers or (1, 2, 3)))

    def logged_in(self, user: str, authority: Path) -> dict[str, str]:
        """Return librdkafka's settings for a user of a secured cluster; the trusted certificate is written to
        `authority`."""
        authority.write_text(self.run_in("node-1", "cat", f"{SECRETS}/authority.pem"))
        return {
            "bootstrap.servers": self.bootstrap(),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self.run_in("node-1", "cat", f"{SECRETS}/{user}.password").strip(),
            "log_level": "0",
        }

    def compose(self, *words: str, stdin: str | None = None, patience_s: float = 2 * PATIENCE_S) -> str:
        """Run `docker-compose -f FILE WORDS`; returns its output."""
        program = needs.program(os.environ.get("PYKBROKER_COMPOSE", "docker-compose"))
        done = subprocess.run(
            [program, "-f", str(self.path), *words],
            input=stdin or "",
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr or done.stdout}"
        return done.stdout

    def run_in(self, service: str, *words: str, stdin: str | None = None) -> str:
        """Run a command in the container of a service."""
        return self.compose("exec", "-T", service, *words, stdin=stdin)

    def containers(self) -> dict[str, str]:
        """Return service -> container id, for those that run."""
        return {service: found for service, (found, state) in self._all().items() if state == "running"}

    def _all(self) -> dict[str, tuple[str, str]]:
        form = f'{{{{.Label "{_LABEL}.service"}}}} {{{{.ID}}}} {{{{.State}}}}'
        listed = docker("ps", "-a", "--filter", f"label={_LABEL}.project={self.name}", "--format", form).stdout
        rows = (line.split() for line in listed.splitlines())
        return {service: (found, state) for service, found, state in rows}

    def serves(self, *services: str) -> None:
        """Wait until each node reports that it serves."""
        for service in services:
            wait_until(partial(self._healthy, service), f"{service} serves", timeout_s=PATIENCE_S, every_s=EVERY_S)

    def _healthy(self, service: str) -> bool:
        found = self.containers().get(service)
        return found is not None and docker("exec", found, "pykbroker", "health", check=False).returncode == 0

    def tails(self) -> str:
        """Return the ends of the containers' logs."""
        texts = []
        for service, (found, state) in self._all().items():
            said = docker("logs", "--tail", "60", found, check=False)
            texts.append(f"-- {service} ({state})\n{said.stdout}{said.stderr}")
        return "\n".join(texts)

    def down(self, *words: str) -> None:
        """Run `docker-compose down`, and remove what it leaves: volumes that only the image declared."""
        mounted = docker("inspect", "-f", "{{range .Mounts}}{{.Name}} {{end}}", *self.containers().values()).stdout
        self.compose("down", *words)
        assert self._all() == {}
        for name in mounted.split():
            if len(name) == _ANONYMOUS:
                docker("volume", "rm", name, check=False)

    def close(self) -> None:
        """Remove everything through the engine, in whatever state the project is."""
        label = f"label={_LABEL}.project={self.name}"
        for found in docker("ps", "-aq", "--filter", label, check=False).stdout.split():
            docker("rm", "-fv", found, check=False)
        for kind in ("network", "volume"):
            for found in docker(kind, "ls", "-q", "--filter", label, check=False).stdout.split():
                docker(kind, "rm", found, check=False)

    # -- what a client of the host sees

    def seen_by(self, *numbers: int) -> ClusterMetadata | None:
        """Return the cluster's metadata from the first of these brokers that answers."""
        try:
            return self._admin(*numbers).list_topics(timeout=5)
        except KafkaException:
            return None

    def has_brokers(self, ids: Mapping[int, int]) -> None:
        """Wait until the cluster has exactly these brokers: id -> number of its published port."""
        wanted = {broker: ("localhost", self.ports[number]) for broker, number in ids.items()}

        def has() -> bool:
            found = self.seen_by(*ids.values())
            if found is None:
                return False
            hosts = {number: (str(broker.host), broker.port) for number, broker in found.brokers.items()}
            return hosts == wanted

        wait_until(has, f"the brokers are {wanted}", timeout_s=PATIENCE_S, every_s=EVERY_S)

    def create_topic(self, partitions: int = 3) -> str:
        """Create a topic with the cluster's replication factor and min.insync.replicas."""
        return self._create(NewTopic(fresh_name(), partitions))

    def create_topic_on(self, *ids: int) -> str:
        """Create a topic of one partition with a replica on each of these brokers."""
        return self._create(NewTopic(fresh_name(), 1, replica_assignment=[list(ids)]))

    def _create(self, topic: NewTopic) -> str:
        name: str = topic.topic
        admin = self._admin()
        admin.create_topics([topic])[name].result(PATIENCE_S)
        return name

    def partitions(self, topic: str, *numbers: int) -> dict[int, PartitionMetadata]:
        found = self.seen_by(*numbers)
        return {} if found is None or topic not in found.topics else found.topics[topic].partitions

    def in_sync(self, topic: str, *ids: int) -> None:
        """Wait until every partition is led, and has exactly these replicas, all in its ISR."""
        wanted = set(ids)

        def whole() -> bool:
            found = self.partitions(topic).values()
            return bool(found) and all(
                set(part.replicas) == set(part.isrs) == wanted and part.leader in wanted for part in found
            )

        wait_until(whole, f"{topic} is in sync on {wanted}", timeout_s=PATIENCE_S, every_s=EVERY_S)

    def _admin(self, *numbers: int) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap(*numbers), "log_level": 0})
