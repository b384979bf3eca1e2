"""The ways into a cluster that is rolled. Where it has SASL_SSL and ACLs, alice logs in with SCRAM, and may read
and write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from compat_tests.mixed_cluster.members import Cluster
from compat_tests.mixed_cluster.secured import SETTINGS, USERS
from compat_tests.rolls.configurations import Configuration
from compat_tests.rolls.front_door import FrontDoor
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


def make_cluster(configuration: Configuration) -> Cluster:
    """Return a formatted cluster of Apache Kafka that does not run."""
    members = configuration.members("kafka")
    settings = dict(configuration.settings)
    listeners: dict[int, str] = {}
    if configuration.secured:
        settings |= SETTINGS
        brokers = [number for number, member in members.items() if member.is_broker]
        listeners = {number: f"BROKERS://localhost:{steady_port()}" for number in brokers}
    cluster = Cluster(
        members,
        quorum=configuration.quorum,
        settings=settings,
        directories=configuration.directories,
        listeners=listeners,
        kafka=configuration.release,
    )
    # The tool of Apache Kafka formats its nodes.
    cluster.format(*(USERS if configuration.secured else ()), own_tools=True)
    return cluster


@contextmanager
def reached(cluster: Cluster, configuration: Configuration) -> Iterator[tuple[Access, Access]]:
    """Yield how clients reach a cluster, and how those do that go through the plain listener. Where every broker goes
    in time, they have an address that stays."""
    with ExitStack() as stack:

        def bootstrap(address: Callable[[int], str]) -> str:
            if configuration.way == "directory":
                return ",".join(map(address, cluster.numbers))
            door = FrontDoor(lambda: [address(number) for number in cluster.living()])
            return stack.enter_context(closing(door)).address

        plain = Access(bootstrap(cluster.address))
        yield _as_alice(bootstrap(cluster.further_address)) if configuration.secured else plain, plain


def _as_alice(bootstrap: str) -> Access:
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
    let_alice(cluster, ALL, dict.fromkeys((TOPIC, GROUP, TRANSACTIONAL_ID), "*"))


def let_alice(cluster: Cluster, operation: int, resources: Mapping[int, str]) -> None:
    """Let her do this with resources. `resources`: the kind of a resource -> its name"""
    rules = [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=LITERAL,
            principal="User:alice",
            host="*",
            operation=operation,
            permission_type=ALLOW,
        )
        for kind, name in resources.items()
    ]

    def is_made() -> bool:
        with Wire(cluster.address(cluster.numbers[0]), timeout=60) as wire:
            results = wire.call(CreateAclsRequest(creations=rules)).results
        return all(result.error_code == ErrorCode.NONE for result in results)

    eventually("alice is let in", is_made)
