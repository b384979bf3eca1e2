"""A cluster of SASL_SSL with ACLs, and its user: alice logs in with SCRAM, and may read and write."""

from __future__ import annotations

from compat_tests.mixed_cluster.members import Cluster
from compat_tests.mixed_cluster.secured import SETTINGS, USERS
from compat_tests.rolls.configurations import Configuration
from compat_tests.rolls.load import Access
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest
from testkit.certificates import authority, in_one_line
from testkit.nodes.nodes import eventually
from testkit.nodes.secured_trio import MECHANISM, SCRAM
from testkit.nodes.wire import Wire
from testkit.ports import steady_port

TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
LITERAL, ALL, ALLOW = 3, 2, 3


def make_cluster(configuration: Configuration) -> tuple[Cluster, Access]:
    """Return a formatted cluster of Apache Kafka that does not run, and how clients will reach it."""
    members = configuration.members("kafka")
    settings = dict(configuration.settings)
    secured: dict[int, str] = {}
    if configuration.secured:
        settings |= SETTINGS
        secured = {number: f"localhost:{steady_port()}" for number, member in members.items() if member.is_broker}
    cluster = Cluster(
        members,
        quorum=configuration.quorum,
        settings=settings,
        directories=configuration.directories,
        listeners={number: f"BROKERS://{address}" for number, address in secured.items()},
        kafka=configuration.release,
    )
    # The tool of Apache Kafka formats its nodes.
    cluster.format(*(USERS if configuration.secured else ()), own_tools=True)
    return cluster, _access(",".join(secured.values())) if secured else Access(cluster.bootstrap)


def _access(bootstrap: str) -> Access:
    trusted = authority().certificate_pem
    librdkafka = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
        "ssl.ca.pem": trusted.decode(),
    }
    java = (
        f"security.protocol=SASL_SSL\nsasl.mechanism={MECHANISM}\n"
        f'sasl.jaas.config={SCRAM} required username="alice" password="alice-secret";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.certificates={in_one_line(trusted)}\n"
    )
    return Access(bootstrap, librdkafka, java)


def let_alice_in(cluster: Cluster) -> None:
    """Let her use every topic, group and transactional id."""
    rules = [
        AclCreation(
            resource_type=kind,
            resource_name="*",
            resource_pattern_type=LITERAL,
            principal="User:alice",
            host="*",
            operation=ALL,
            permission_type=ALLOW,
        )
        for kind in (TOPIC, GROUP, TRANSACTIONAL_ID)
    ]

    def is_made() -> bool:
        with Wire(cluster.address(cluster.numbers[0]), timeout=60) as wire:
            results = wire.call(CreateAclsRequest(creations=rules)).results
        return all(result.error_code == ErrorCode.NONE for result in results)

    eventually("alice is let in", is_made)
