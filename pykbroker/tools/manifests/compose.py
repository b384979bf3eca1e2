"""A Compose file, like docker/compose.yaml: for any number of brokers, any image and ports, with or without TLS.

Valid for docker-compose 1.29 and Compose v2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykbroker.config.kinds import ConfigError
from pykbroker.config.variables import variable_of
from pykbroker.tools.manifests import checked
from pykbroker.tools.manifests.prometheus import PORT as METRICS_PORT
from pykbroker.tools.manifests.replication import replication_variables
from pykbroker.tools.manifests.secured import (
    ADMIN,
    AUTHORITY_FILE,
    CLIENTS,
    NODE_FILE,
    Security,
    client_as_node,
    secured_keys,
)

MOST_BROKERS: Final = 99
_MOST_PORT: Final = 65_535
#: The folder in which Compose mounts secrets.
_SECRETS: Final = "/run/secrets"
#: The user of the containers. It must own the files of secrets, whose owner and mode Compose takes from the host.
_OWNER: Final = "${PYKBROKER_UID:-1000}:0"


@dataclass(slots=True, frozen=True, kw_only=True)
class ComposeCluster:
    """The values of a Compose file. Raises ConfigError for a value that cannot be in one."""

    image: str
    #: the first three brokers are voters too; if there are fewer, only the first is
    brokers: int = 3
    #: the port of the first broker on this machine; the other brokers have the following ports
    port: int = 9092
    #: the name by which clients outside the network reach this machine
    host: str = "localhost"
    #: the address whose ports are published
    bind: str = "127.0.0.1"
    cluster_id: str | None = None
    #: the port on this machine for metrics of the first broker; with None only the project's network reaches metrics
    metrics_port: int | None = None
    security: Security = Security.PLAINTEXT
    #: the users that may log in with SASL_SSL, in addition to `admin`
    users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked.image(self.image)
        checked.host(self.host)
        checked.address(self.bind)
        checked.cluster_id(self.cluster_id, "")
        for user in self.users:
            checked.user(user)
        if self.users and self.security is not Security.SASL_SSL:
            raise ConfigError("users log in with --security sasl_ssl alone")
        if not 1 <= self.brokers <= MOST_BROKERS:
            raise ConfigError(f"{self.brokers} brokers: there are 1 to {MOST_BROKERS}")
        for first in (self.port, self.metrics_port):
            if first is not None and not 1 <= first <= _MOST_PORT + 1 - self.brokers:
                raise ConfigError(f"{self.brokers} brokers have no ports from {first} on")
        if self.metrics_port is not None and abs(self.metrics_port - self.port) < self.brokers:
            raise ConfigError(
                f"{self.brokers} brokers need the ports from {self.port} on, and their metrics those from "
                f"{self.metrics_port} on"
            )

    @property
    def numbers(self) -> range:
        return range(1, self.brokers + 1)

    @property
    def voters(self) -> int:
        return 3 if self.brokers >= 3 else 1

    @property
    def logins(self) -> tuple[str, ...]:
        """The users that have a password."""
        return tuple(dict.fromkeys((ADMIN, *self.users))) if self.security is Security.SASL_SSL else ()


def compose(cluster: ComposeCluster) -> str:
    outside = ",".join(f"{cluster.host}:{cluster.port + number - 1}" for number in cluster.numbers)
    inside = ",".join(f"node-{number}:19092" for number in cluster.numbers)
    replication = "".join(f"  {name}: {text}\n" for name, text in replication_variables(cluster.brokers).items())
    nodes = "\n".join(_node(cluster, number) for number in cluster.numbers)
    volumes = "".join(f"  data-{number}:\n" for number in cluster.numbers)
    return f"""# Clients of this machine: {outside}
# Containers of the project's network: {inside}
# Prometheus: port {METRICS_PORT} of each node in the project's network.
{_what_a_person_makes(cluster)}x-node: &node
  image: {cluster.image}
  restart: unless-stopped
  # A controlled shutdown moves leaders and closes logs; Docker's own 10 seconds may cut it short.
  stop_grace_period: 60s
{_secrets_of_node(cluster)}
x-environment: &environment
  CLUSTER_ID: "{checked.cluster_id(cluster.cluster_id, "compose")}"
{_common_variables(cluster)}{replication}
services:
{_users_service(cluster)}{nodes}
volumes:
{volumes}{_secrets(cluster)}"""


def _common_variables(cluster: ComposeCluster) -> str:
    voters = ",".join(f"{number}@node-{number}:9093" for number in range(1, cluster.voters + 1))
    listeners = {"process.roles": "broker,controller", "listeners": _listeners(cluster, of_voter=True)}
    if cluster.security.is_secured:
        protocols = secured_keys(cluster.security, _SECRETS, (CLIENTS, "HOST"))
    else:
        protocols = {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
        }
    keys = {
        **listeners,
        **protocols,
        "controller.quorum.voters": voters,
        "pykbroker.metrics.listener": f"0.0.0.0:{METRICS_PORT}",
    }
    return "".join(f"  {variable_of(key)}: {text}\n" for key, text in keys.items())


def _listeners(cluster: ComposeCluster, *, of_voter: bool) -> str:
    inside = "NODES://:19093,CLIENTS://:19092" if cluster.security.is_secured else "PLAINTEXT://:19092"
    return f"{'CONTROLLER://:9093,' if of_voter else ''}{inside},HOST://:9092"


def _node(cluster: ComposeCluster, number: int) -> str:
    port = cluster.port + number - 1
    broker_only = f"""
      KAFKA_PROCESS_ROLES: broker
      KAFKA_LISTENERS: {_listeners(cluster, of_voter=False)}"""
    name = f"node-{number}"
    between = f"NODES://{name}:19093,CLIENTS" if cluster.security.is_secured else "PLAINTEXT"
    metrics = ""
    if cluster.metrics_port is not None:
        metrics = f"\n      - {cluster.bind}:{cluster.metrics_port + number - 1}:{METRICS_PORT}"
    return f"""  {name}:
    <<: *node
    hostname: {name}
    environment:
      <<: *environment
      KAFKA_NODE_ID: {number}{broker_only if number > cluster.voters else ""}
      KAFKA_ADVERTISED_LISTENERS: {between}://{name}:19092,HOST://{cluster.host}:{port}
    ports:
      - {cluster.bind}:{port}:9092{metrics}
    volumes:
      - data-{number}:/var/lib/kafka/data
"""


# -- secrets ----------------------------------------------------------------------------------------------------------


def _what_a_person_makes(cluster: ComposeCluster) -> str:
    """Return the comment that names the files which must exist before the first start."""
    if not cluster.security.is_secured:
        return ""
    hosts = dict.fromkeys([cluster.host, *(f"node-{number}" for number in cluster.numbers)])
    create = " \\\n#       ".join(["pykbroker tls create secrets", *(f"--host {host}" for host in hosts)])
    lines = [
        "Before the first start a person makes the folder secrets/ beside this file. It has node.pem (the key and the",
        "certificate of the nodes, CN=node, with their names) and authority.pem (what nodes and clients trust):",
    ]
    if cluster.security is Security.SSL:
        create += f" --client {ADMIN}"
        after = [
            f"Clients show a certificate of that authority. {ADMIN} may do everything, and others what ACLs allow.",
            "`--client NAME` makes their files, and secrets/NAME.properties names them for a Java client.",
        ]
    else:
        names = " ".join(cluster.logins)
        made = "(umask 077; openssl rand -base64 18 > secrets/$user.password)"
        create += f"\n#   for user in {names}; do {made}; done"
        after = [
            "Clients log in with SASL_SSL, SCRAM-SHA-512 and their password, and trust secrets/authority.pem.",
            f"{ADMIN} may do everything, and others what ACLs allow. The service `users` writes the passwords into the",
            "cluster.",
        ]
    owner = [
        "Containers run as the user that may read these files: export PYKBROKER_UID=$(id -u), unless it is 1000.",
        "secrets/authority.key signs certificates. No node reads it, so keep it elsewhere.",
    ]
    text = [*(f"# {line}" for line in lines), f"#   {create}", *(f"# {line}" for line in (*after, *owner))]
    return "\n".join(text) + "\n"


def _secrets_of_node(cluster: ComposeCluster) -> str:
    if not cluster.security.is_secured:
        return ""
    return f"""  user: "{_OWNER}"
  secrets: [{NODE_FILE}, {AUTHORITY_FILE}]
"""


def _secrets(cluster: ComposeCluster) -> str:
    if not cluster.security.is_secured:
        return ""
    files = [NODE_FILE, AUTHORITY_FILE, *(f"{user}.password" for user in cluster.logins)]
    return "\nsecrets:\n" + "".join(f"  {file}: {{file: ./secrets/{file}}}\n" for file in files)


def _users_service(cluster: ComposeCluster) -> str:
    """Return a container that sets the passwords, and tries this again until the nodes serve."""
    if not cluster.logins:
        return ""
    files = ", ".join([NODE_FILE, AUTHORITY_FILE, *(f"{user}.password" for user in cluster.logins)])
    nodes = ",".join(f"node-{number}:19093" for number in cluster.numbers)
    return f"""  # It is tried until the nodes serve. The certificate of a node is that of a super user.
  users:
    image: {cluster.image}
    user: "{_OWNER}"
    restart: on-failure
    command:
      - sh
      - -euc
      - |
        for user in {" ".join(cluster.logins)}; do
          pykbroker users set $$user -b {nodes} \\
            {client_as_node(_SECRETS)} \\
            < {_SECRETS}/$$user.password
        done
    healthcheck: {{disable: true}}
    secrets: [{files}]

"""
