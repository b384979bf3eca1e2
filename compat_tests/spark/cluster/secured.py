"""Three nodes as processes with SASL_SSL, SCRAM and ACLs, which report their load, and their clients.

The nodes log in to each other as `node`, a super user. `alice` has the permissions that the tests give her.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from example.secured_node import SecuredNode
from pipeline import secured
from pipeline.secured import Security
from testkit.certificates import authority
from testkit.clients import PATIENCE_S, wait_until
from testkit.nodes.secured_trio import MECHANISM, SecuredTrio
from testkit.nodes.told_loads import REPORTING

USER = "alice"


class Secured(SecuredTrio):
    def __init__(self, folder: Path) -> None:
        often = {"replica.high.watermark.checkpoint.interval.ms": 200, "default.replication.factor": 3}
        super().__init__(folder, "PLAIN", {**REPORTING, **often})
        (folder / "authority.pem").write_bytes(authority().certificate_pem)
        (folder / "password").write_text(f"{USER}-secret")
        self.known = SecuredNode(self.bootstrap, self._login("node"), self._login("node"), self.security)

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, self.numbers))

    @property
    def directories(self) -> list[str]:
        return [str(self.data(number)) for number in self.numbers]

    @property
    def security(self) -> dict[str, str]:
        """Return the table `[security]` of pipeline.toml for alice."""
        return {
            "protocol": "SASL_SSL",
            "mechanism": MECHANISM,
            "user": USER,
            "password_file": str(self.folder / "password"),
            "ca_file": str(self.folder / "authority.pem"),
        }

    def options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source for alice."""
        kafka = {"bootstrap.servers": self.bootstrap, **secured.settings(Security(**self.security))}
        return {f"kafka.{key}": value for key, value in kafka.items()}

    def _login(self, user: str) -> Mapping[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.folder / "authority.pem"),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": f"{user}-secret",
            "log_level": "0",
        }

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = AdminClient(dict(self.known.admin))
        admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(PATIENCE_S)

    def produce(self, topic: str, partitions: int, numbers: Iterable[int]) -> None:
        """Write a record for each number n, in partition n modulo `partitions`, with acks=all."""
        producer = Producer({**self.known.admin, "linger.ms": 50, "compression.type": "lz4"})
        for number in numbers:
            producer.produce(topic, b"%d" % number, b"k%d" % (number % 7), partition=number % partitions)
            producer.poll(0)
        assert not producer.flush(PATIENCE_S)

    def wait_for_checkpoints(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Wait until a node of each partition has written down that the partition is safe up to this end."""
        from compat_tests.spark.segments.estates import checkpointed

        def written() -> bool:
            found = [checkpointed(self.data(number)) for number in self.numbers]
            return all(any(each.get(place) == end for each in found) for place, end in ends.items())

        wait_until(written, "the checkpoints have the ends of the topic")
