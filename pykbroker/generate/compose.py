"""A Compose file: docker/compose.yaml for any number of brokers, another image, other ports.

Valid for docker-compose 1.29 and Compose v2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykbroker.config.kinds import ConfigError
from pykbroker.generate import checked
from pykbroker.generate.replication import replication_variables

MOST_BROKERS: Final = 99
_MOST_PORT: Final = 65_535


@dataclass(slots=True, frozen=True, kw_only=True)
class ComposeCluster:
    """What a Compose file is made of. Raises ConfigError for a value that cannot stand in one."""

    image: str
    #: the first three are voters too; of fewer, the first
    brokers: int = 3
    #: of the first broker on this machine; the others have those behind it
    port: int = 9092
    #: the name by which clients outside the network reach this machine
    host: str = "localhost"
    #: the address whose ports are published
    bind: str = "127.0.0.1"
    cluster_id: str | None = None

    def __post_init__(self) -> None:
        checked.image(self.image)
        checked.host(self.host)
        checked.address(self.bind)
        checked.cluster_id(self.cluster_id, "")
        if not 1 <= self.brokers <= MOST_BROKERS:
            raise ConfigError(f"{self.brokers} brokers: there are 1 to {MOST_BROKERS}")
        if not 1 <= self.port <= _MOST_PORT + 1 - self.brokers:
            raise ConfigError(f"{self.brokers} brokers have no ports from {self.port} on")

    @property
    def numbers(self) -> range:
        return range(1, self.brokers + 1)

    @property
    def voters(self) -> int:
        return 3 if self.brokers >= 3 else 1


def compose(cluster: ComposeCluster) -> str:
    outside = ",".join(f"{cluster.host}:{cluster.port + number - 1}" for number in cluster.numbers)
    inside = ",".join(f"node-{number}:19092" for number in cluster.numbers)
    voters = ",".join(f"{number}@node-{number}:9093" for number in range(1, cluster.voters + 1))
    replication = "".join(f"  {name}: {text}\n" for name, text in replication_variables(cluster.brokers).items())
    nodes = "\n".join(_node(cluster, number) for number in cluster.numbers)
    volumes = "".join(f"  data-{number}:\n" for number in cluster.numbers)
    return f"""# Clients of this machine: {outside}
# Containers of the project's network: {inside}
x-node: &node
  image: {cluster.image}
  restart: unless-stopped
  # A controlled shutdown moves leaders and closes logs; Docker's own 10 seconds may cut it short.
  stop_grace_period: 60s

x-environment: &environment
  CLUSTER_ID: "{checked.cluster_id(cluster.cluster_id, "compose")}"
  KAFKA_PROCESS_ROLES: broker,controller
  KAFKA_LISTENERS: CONTROLLER://:9093,PLAINTEXT://:19092,HOST://:9092
  KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT
  KAFKA_INTER_BROKER_LISTENER_NAME: PLAINTEXT
  KAFKA_CONTROLLER_LISTENER_NAMES: CONTROLLER
  KAFKA_CONTROLLER_QUORUM_VOTERS: {voters}
{replication}
services:
{nodes}
volumes:
{volumes}"""


def _node(cluster: ComposeCluster, number: int) -> str:
    port = cluster.port + number - 1
    broker_only = """
      KAFKA_PROCESS_ROLES: broker
      KAFKA_LISTENERS: PLAINTEXT://:19092,HOST://:9092"""
    return f"""  node-{number}:
    <<: *node
    hostname: node-{number}
    environment:
      <<: *environment
      KAFKA_NODE_ID: {number}{broker_only if number > cluster.voters else ""}
      KAFKA_ADVERTISED_LISTENERS: PLAINTEXT://node-{number}:19092,HOST://{cluster.host}:{port}
    ports:
      - {cluster.bind}:{port}:9092
    volumes:
      - data-{number}:/var/lib/kafka/data
"""
