"""kafka-acls: its output against pykbroker is the same as against Apache Kafka.

Its lines are compared without their order, because the tool prints sets. A list after a change may be the state from
before, on either node; so the list is requested until both have the same, and is compared then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from compat_tests.node import Node, make_node
from compat_tests.tool_server import Ended, ToolServer, shared
from testkit.oracle.kafka import kafka_libs

pytestmark = pytest.mark.slow
COMMAND = "org.apache.kafka.tools.AclCommand"
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
PATIENCE_S = 30
READ = ["--operation", "Read"]
ALICE = ["--allow-principal", "User:alice"]
#: Each begins with the state after the previous one. `--force`: the tool asks before it removes.
CHANGES = {
    "a topic": ["--add", *ALICE, *READ, "--topic", "orders"],
    "the same again": ["--add", *ALICE, *READ, "--topic", "orders"],
    "all operations of a topic": ["--add", *ALICE, "--topic", "everything"],
    "several at once": [
        "--add",
        *ALICE,
        "--allow-principal",
        "User:bob",
        *READ,
        "--operation",
        "Describe",
        "--topic",
        "a",
        "--topic",
        "b",
    ],
    "hosts": ["--add", *ALICE, "--allow-host", "10.0.0.1", "--allow-host", "::1", *READ, "--topic", "hosts"],
    "a denial": ["--add", "--deny-principal", "User:mallory", "--deny-host", "10.0.0.2", *READ, "--topic", "orders"],
    "both": ["--add", *ALICE, "--deny-principal", "User:mallory", "--operation", "Write", "--topic", "both"],
    "a prefix": ["--add", *ALICE, *READ, "--topic", "orders-", "--resource-pattern-type", "prefixed"],
    "every topic": ["--add", *ALICE, *READ, "--topic", "*"],
    "a group": ["--add", *ALICE, *READ, "--group", "billing"],
    "groups by prefix": [
        "--add",
        *ALICE,
        "--operation",
        "Delete",
        "--group",
        "b",
        "--resource-pattern-type",
        "prefixed",
    ],
    "the cluster": ["--add", *ALICE, "--operation", "Alter", "--operation", "ClusterAction", "--cluster"],
    "a transactional id": [
        "--add",
        *ALICE,
        "--operation",
        "Write",
        "--operation",
        "TwoPhaseCommit",
        "--transactional-id",
        "tx",
    ],
    "a delegation token": ["--add", *ALICE, "--operation", "Describe", "--delegation-token", "token-1"],
    "a user": ["--add", *ALICE, "--operation", "CreateTokens", "--user-principal", "User:bob"],
    "a producer": ["--add", "--allow-principal", "User:producer", "--producer", "--topic", "written"],
    "an idempotent producer": [
        "--add",
        "--allow-principal",
        "User:idempotent",
        "--producer",
        "--idempotent",
        "--topic",
        "written",
    ],
    "a transactional producer": [
        "--add",
        "--allow-principal",
        "User:tx",
        "--producer",
        "--transactional-id",
        "tx-2",
        "--topic",
        "written",
    ],
    "a consumer": [
        "--add",
        "--allow-principal",
        "User:consumer",
        "--consumer",
        "--topic",
        "read",
        "--group",
        "readers",
    ],
    "a name of signs": ["--add", "--allow-principal", "User:CN=Ann Lee,OU=über,O=a:b", *READ, "--topic", "signs_._-"],
    "one removed": ["--remove", "--force", *ALICE, *READ, "--topic", "orders"],
    "one that is not there removed": ["--remove", "--force", *ALICE, *READ, "--topic", "nowhere"],
    "a denial removed": [
        "--remove",
        "--force",
        "--deny-principal",
        "User:mallory",
        "--deny-host",
        "10.0.0.2",
        *READ,
        "--topic",
        "orders",
    ],
    "a resource removed": ["--remove", "--force", "--topic", "everything"],
    "a prefix removed": ["--remove", "--force", "--topic", "orders-", "--resource-pattern-type", "prefixed"],
    "what a resource matches removed": ["--remove", "--force", "--topic", "hosts", "--resource-pattern-type", "match"],
    "a consumer removed": [
        "--remove",
        "--force",
        "--allow-principal",
        "User:consumer",
        "--consumer",
        "--topic",
        "read",
        "--group",
        "readers",
    ],
    "everything of a type removed": ["--remove", "--force", "--group", "*", "--resource-pattern-type", "any"],
}
#: `*` is a name here, and no rule has it.
CHANGE_NOTHING = {"the same again", "one that is not there removed", "everything of a type removed"}
LISTS = {
    "all": ["--list"],
    "a topic": ["--list", "--topic", "orders"],
    "what a topic matches": ["--list", "--topic", "orders-1", "--resource-pattern-type", "match"],
    "prefixes": ["--list", "--topic", "orders-", "--resource-pattern-type", "prefixed"],
    "any pattern": ["--list", "--topic", "orders-", "--resource-pattern-type", "any"],
    "several": ["--list", "--topic", "a", "--group", "billing", "--cluster"],
    "a principal": ["--list", "--principal", "User:bob"],
    "two principals": ["--list", "--principal", "User:bob", "--principal", "User:mallory"],
    "nothing": ["--list", "--topic", "nowhere"],
}
REFUSED = {
    "no principal": ["--add", "--topic", "t"],
    "no resource": ["--add", *ALICE],
    "an operation of another resource": ["--add", *ALICE, "--operation", "IdempotentWrite", "--topic", "t"],
    "no such operation": ["--add", *ALICE, "--operation", "Fly", "--topic", "t"],
    "a principal without a type": ["--add", "--allow-principal", "alice", *READ, "--topic", "t"],
    "an empty name": ["--add", *ALICE, *READ, "--topic", ""],
    "two actions": ["--add", "--list", *ALICE, "--topic", "t"],
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[Node, Node]]:
    kafka_libs()
    made = [make_node(kind, CONFIG) for kind in ("apache-kafka", "pykbroker")]
    try:
        for node in made:
            node.start()
        yield made[0], made[1]
    finally:
        for node in made:
            node.close()


@pytest.fixture(scope="module")
def server() -> ToolServer:
    return shared()


def said(server: ToolServer, node: Node, words: list[str]) -> Ended:
    ended = server.run(COMMAND, ["--bootstrap-server", node.bootstrap, *words])
    return Ended(ended.status, ended.out.replace(node.bootstrap, "node"), ended.err.replace(node.bootstrap, "node"))


def lines(text: str) -> list[str]:
    return sorted(line.rstrip() for line in text.splitlines() if line.strip())


def listed(
    server: ToolServer, nodes: tuple[Node, Node], words: list[str], before: list[str] | None = None
) -> tuple[list[str], list[str]]:
    """Return the list by Apache Kafka and by pykbroker when both are the same and not `before`, or after a timeout the
    last ones."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        theirs, ours = (said(server, node, words) for node in nodes)
        found = lines(theirs.out), lines(ours.out)
        if (theirs.status == ours.status and found[0] == found[1] != before) or time.monotonic() > deadline:
            return found


def test_kafka_acls(nodes: tuple[Node, Node], server: ToolServer) -> None:
    before: list[str] = []
    for name, words in CHANGES.items():
        theirs, ours = (said(server, node, words) for node in nodes)
        assert (theirs.status, theirs.err) == (ours.status, ours.err) == (0, ""), name
        # The rest may be a list from before the change.
        changed = [lines(each.out.partition("Current ACLs")[0]) for each in (theirs, ours)]
        assert changed[0] == changed[1], name
        kafka, own = listed(server, nodes, LISTS["all"], None if name in CHANGE_NOTHING else before)
        assert kafka == own, name
        assert (kafka == before) == (name in CHANGE_NOTHING), name
        before = kafka
        if name == "a name of signs":
            assert_lists_are_the_same(nodes, server)


def assert_lists_are_the_same(nodes: tuple[Node, Node], server: ToolServer) -> None:
    for name, words in LISTS.items():
        theirs, ours = listed(server, nodes, words)
        assert theirs == ours, name
        assert theirs or name == "nothing", name


@pytest.mark.parametrize("name", REFUSED)
def test_kafka_acls_refuses(nodes: tuple[Node, Node], server: ToolServer, name: str) -> None:
    theirs, ours = (said(server, node, REFUSED[name]) for node in nodes)
    assert (theirs.status, lines(theirs.out)) == (ours.status, lines(ours.out))
    assert theirs.err.splitlines()[:1] == ours.err.splitlines()[:1]
