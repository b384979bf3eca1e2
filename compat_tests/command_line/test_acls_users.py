"""`pykbroker acls` and `pykbroker users`, against pykbroker and Apache Kafka with an authorizer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from compat_tests.command_line.asked import CommandLine
from compat_tests.node import make_node
from testkit.clients import wait_until

ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module", params=["broker", "apache-kafka"])
def guarded(request: pytest.FixtureRequest, against: str) -> Iterator[CommandLine]:
    node = make_node(against if request.param == "broker" else request.param, ACLS)
    node.start()
    try:
        yield CommandLine(node.bootstrap)
    finally:
        node.close()


@pytest.fixture
def user() -> str:
    return f"u{uuid.uuid4().hex[:10]}"


def wait_for_rules(line: CommandLine, user: str, count: int) -> None:
    """The broker applies a rule a moment after the controller has answered."""
    wait_until(lambda: len(line.json("acls", "list", "--principal", user)) == count, f"{user} has {count} rules")


def test_rules_come_and_go(guarded: CommandLine, user: str, name: str) -> None:
    added = guarded("acls", "add", user, "--topic", name, "--role", "producer", "--allow", "describe-configs")
    assert (added.status, added.out) == (0, f"Added 4 rules for User:{user}.\n")
    wait_for_rules(guarded, user, 4)
    rules = guarded.json("acls", "list", "--principal", user)
    assert {rule["operation"] for rule in rules} == {"write", "describe", "create", "describe-configs"}
    assert rules[0] == {
        "resource": "topic", "name": name, "pattern": "literal", "principal": f"User:{user}", "host": "*",
        "operation": rules[0]["operation"], "permission": "allow",
    }  # fmt: skip
    table = guarded("acls", "list", "--topic", name).out.splitlines()
    assert table[0].split() == ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"]
    assert len(table) == 5
    gone = guarded.json("acls", "remove", "--principal", user, "--operation", "describe")
    assert [rule["operation"] for rule in gone] == ["describe"]
    wait_for_rules(guarded, user, 3)
    assert guarded("acls", "remove", "--principal", user).status == 0
    wait_for_rules(guarded, user, 0)
    assert guarded("acls", "remove", "--principal", user).failure == (
        "No rule matches: `pykbroker acls list` names those that there are"
    )
    assert guarded.json("acls", "remove", "--principal", user) == []


def test_prefixes_and_groups(guarded: CommandLine, user: str, name: str) -> None:
    guarded("acls", "add", user, "--topic", name, "--group", name, "--prefixed", "--role", "consumer")
    wait_for_rules(guarded, user, 3)
    assert len(guarded.json("acls", "list", "--topic", f"{name}-1", "--pattern", "match")) == 2
    assert guarded.json("acls", "list", "--topic", f"{name}-1") == []
    assert len(guarded.json("acls", "remove", "--group", name, "--pattern", "prefixed")) == 1
    assert len(guarded.json("acls", "remove", "--principal", f"User:{user}")) == 2


def test_which_principals_may(guarded: CommandLine, user: str, name: str) -> None:
    guarded("acls", "add", user, "--topic", name, "--allow", "read")
    guarded("acls", "add", f"{user}-2", "--topic", name, "--allow", "all")
    guarded("acls", "add", f"{user}-2", "--topic", name[:-1], "--prefixed", "--deny", "describe", "--host", "10.0.0.7")
    wait_until(
        lambda: len(guarded.json("acls", "list", "--topic", name, "--pattern", "match")) == 3, "the rules are in"
    )
    rows = guarded.json("acls", "check", "describe", "--topic", name)
    assert [(row["principal"], row["allowed"]) for row in rows] == [(f"User:{user}", True), (f"User:{user}-2", True)]
    assert rows[0]["rule"] == f"allow read on literal topic {name} from *"
    refused = guarded("acls", "check", "describe", "--topic", name, "--principal", f"{user}-2", "--host", "10.0.0.7")
    assert refused.status == 1
    assert refused.out.splitlines()[1].split(None, 2) == [
        f"User:{user}-2", "no", f"deny describe on prefixed topic {name[:-1]} from 10.0.0.7"
    ]  # fmt: skip
    unknown = guarded("acls", "check", "write", "--topic", name, "--principal", "stranger")
    assert (unknown.status, unknown.out.splitlines()[1].split()) == (1, ["User:stranger", "no", "-"])
    assert guarded("acls", "remove", "--topic", name, "--pattern", "match").status == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("add alice --allow read", "Say what the rules are about: --topic, --group, --transactional-id, --cluster, …"),
        ("add alice --topic t", "Say what the rules do: --allow, --deny or --role."),
        ("add alice --group g --role consumer", "--role consumer needs a --topic."),
        ("add alice --cluster --prefixed --allow all", "--cluster does not go with --prefixed."),
        ("add alice --group g --allow write", "A group has no operation write; it has"),
        ("remove", "Say which rules: --principal, --topic, … or --all, and not both."),
        ("remove --all --topic t", "Say which rules"),
        ("remove --pattern match", "Say which rules"),
        ("remove --pattern literal --operation read --permission allow --host *", "Say which rules"),
        ("remove --principal alice:x", "'alice:x' is not clear: User:alice:x is a user of that name"),
        ("add CN=a:b --topic t --allow read", "'CN=a:b' is not clear"),
        ("add User: --topic t --allow read", "'User:' is not clear"),
        ("check read", "Say of what, once"),
        ("check write --group g", "A group has no operation write"),
    ],
)
def test_words_that_do_not_go_together(guarded: CommandLine, words: str, said: str) -> None:
    ended = guarded("acls", *words.split())
    assert ended.status == 2
    assert ended.failure.startswith(said)


def test_users_come_and_go(guarded: CommandLine, user: str) -> None:
    done = guarded("users", "set", user, stdin="first secret\n")
    assert (done.status, done.out, done.err) == (0, f"Set the password of {user} for SCRAM-SHA-512.\n", "")
    assert guarded("users", "set", user, "--mechanism", "SCRAM-SHA-256", "--iterations", "8192", stdin="b").status == 0
    both = [
        {"user": user, "mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"user": user, "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]
    wait_until(lambda: [row for row in guarded.json("users", "list") if row["user"] == user] == both, "both are known")
    assert guarded.json("users", "list", user) == both
    assert guarded("users", "remove", user, "--mechanism", "SCRAM-SHA-256").out == f"Removed SCRAM-SHA-256 of {user}.\n"
    wait_until(lambda: len(guarded.json("users", "list", user)) == 1, "one is gone")
    assert guarded("users", "remove", user, "--mechanism", "SCRAM-SHA-256").failure == (
        f"{user} has no SCRAM-SHA-256, only SCRAM-SHA-512"
    )
    assert (
        f"There is no user of SCRAM '{user}x': did you mean '{user}'?" in guarded("users", "list", f"{user}x").failure
    )
    assert guarded.json("users", "remove", user) == {"user": user, "mechanisms": ["SCRAM-SHA-512"]}
    wait_until(lambda: user not in guarded("users", "list").out, "the user is gone")
    assert guarded("users", "remove", user).failure.startswith(f"There is no user of SCRAM '{user}'")


def test_a_password_is_needed(guarded: CommandLine, user: str) -> None:
    assert guarded("users", "set", user).failure == ("The password is the first line of standard input, which is empty")
    assert user not in guarded("users", "list").out


def test_without_an_authorizer_one_line_says_so(line: CommandLine) -> None:
    assert line("acls", "list").failure.endswith("(SECURITY_DISABLED)")
