"""kafka-acls, theirs and ours, against a node with ACLs; text that Apache Kafka prints in the order of a hash map is
sorted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from compat_tests.node import make_node
from compat_tests.our_tools.both import BothTools, ours, two_names
from compat_tests.tool_server import ToolServer

ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def guarded(tool_server: ToolServer, against: str) -> Iterator[BothTools]:
    node = make_node(against, ACLS)
    node.start()
    try:
        yield BothTools(node.bootstrap, tool_server)
    finally:
        node.close()


def in_order(text: str) -> str:
    """Return the blocks and their lines sorted, without the stack trace after an error."""
    text = re.sub(r"(?ms)^(Error while [^\n]*\n)[\w.]+Exception: .*", r"\1", text)
    # The space before the first line of a list stays with the line above.
    text = text.replace("\n \t", "‹space›\n\t")
    blocks = re.split(r"(?m)^(?=\S)", text)
    return "".join(sorted("\n".join(sorted(block.split("\n"))) for block in blocks))


def agree(both: BothTools, words: str, names: dict[str, tuple[str, str]] | None = None) -> str:
    return both.agree("acls", *words.split(), names=names, change=[in_order]).out


def test_add_list_and_remove(guarded: BothTools) -> None:
    names = {**two_names("t"), **two_names("u")}

    def both(words: str) -> str:
        return agree(guarded, words, names)

    both("--add --topic ‹t› --allow-principal User:‹u› --operation Read --operation describeconfigs")
    assert both("--add --topic ‹t› --allow-principal User:‹u› --operation Read --operation Write").count("already") == 1
    both("--add --topic ‹t› --deny-principal User:‹u› --deny-host 10.0.0.1 --deny-host 10.0.0.2")
    both("--add --topic ‹t› --resource-pattern-type prefixed --allow-principal User:‹u› --producer")
    listed = both("--list --topic ‹t›")
    assert "(principal=User:‹u›, host=10.0.0.1, operation=ALL, permissionType=DENY)" in listed
    assert listed.count("Current ACLs") == 1
    assert both("--list --topic ‹t› --resource-pattern-type any").count("Current ACLs") == 2
    assert both("--list --topic ‹t›-more --resource-pattern-type match").count("Current ACLs") == 1
    assert both("--list --topic ‹t› --resource-pattern-type match --principal User:‹u›").count("Current ACLs") == 2
    assert "ACLs for principal `User:other`" in both("--list --principal User:‹u› --principal User:other")
    both("--remove --topic ‹t› --allow-principal User:‹u› --operation Read --force")
    assert "operation=READ" not in both("--list --topic ‹t›")
    both("--remove --topic ‹t› --resource-pattern-type match --force")
    assert both("--list --topic ‹t› --resource-pattern-type any") == ""


def test_every_resource_and_both_roles(guarded: BothTools) -> None:
    names = {**two_names("t"), **two_names("g")}

    def both(words: str) -> str:
        return agree(guarded, words, names)

    both("--add --topic ‹t› --group ‹g› --transactional-id ‹t› --allow-principal User:a --allow-principal User:b "
         "--producer --consumer")  # fmt: skip
    both("--add --delegation-token ‹t› --user-principal User:‹g› --allow-principal User:a")
    both("--add --user-principal User:‹g› --operation CreateTokens --allow-principal User:a --allow-host 10.0.0.1")
    listed = both("--list --topic ‹t› --group ‹g› --transactional-id ‹t› --delegation-token ‹t› "
                  "--user-principal User:‹g›")  # fmt: skip
    assert listed.count("Current ACLs") == 5
    both("--remove --topic ‹t› --group ‹g› --allow-principal User:a --consumer --force")
    both("--list --topic ‹t› --group ‹g›")
    both("--remove --topic ‹t› --group ‹g› --transactional-id ‹t› --delegation-token ‹t› --user-principal User:‹g› "
         "--force")  # fmt: skip
    assert agree(guarded, "--list") == ""


def test_the_cluster(guarded: BothTools) -> None:
    """There is only one cluster: an ACL that the first tool adds exists for the second, so both list the result of
    each."""
    where = ["--bootstrap-server", guarded.bootstrap]
    assert (
        ours("acls", [*where, *["--add", "--cluster", "--operation", "All", "--allow-principal", "User:*"]]).status == 0
    )
    try:
        assert "already exists" in agree(guarded, "--add --cluster --allow-principal User:*")
        assert "name=kafka-cluster" in agree(guarded, "--list --cluster")
        agree(guarded, "--list")
        agree(guarded, "--list --principal")
        agree(guarded, "--list --command-config")
    finally:
        agree(guarded, "--remove --cluster --force")
    assert agree(guarded, "--list --cluster") == ""


@pytest.mark.parametrize(
    "words",
    [
        "--add --topic t",
        "--add --topic t --allow-host 1.2.3.4",
        "--add --topic t --allow-principal a",
        "--add --topic t --allow-principal User:a --operation any",
        "--add --topic t --allow-principal User:a --resource-pattern-type match",
        "--add --topic t --allow-principal User:a --resource-pattern-type foo",
        "--add --topic t --allow-principal User:a --resource-pattern-type unknown",
        "--add --cluster --operation Create --allow-principal User:a --resource-pattern-type prefixed",
        "--add --allow-principal User:a",
        "--add --remove --topic t",
        "--topic t",
        "--add --producer --group g --allow-principal User:a",
        "--add --consumer --topic t --allow-principal User:a",
        "--add --consumer --topic t --group g --cluster --allow-principal User:a",
        "--add --idempotent --topic t --allow-principal User:a",
        "--add --producer --topic t --operation Read --allow-principal User:a",
        "--add --consumer --topic t --group g --deny-principal User:a",
        "--list --allow-principal User:a",
        "--list --principal a",
        "--add --principal User:a --topic t --allow-principal User:a",
        "--remove --force",
        "--list --topic",
        "--list --command-config /none/such",
        "--list --bootstrap-controller localhost:1",
        "--none-such",
        "--version",
        "--help",
    ],
)
def test_what_is_refused(guarded: BothTools, words: str) -> None:
    agree(guarded, words)


def test_an_operation_that_the_resource_does_not_have(guarded: BothTools) -> None:
    """Apache Kafka names the operations of the resource in the order of a hash set."""
    for words in ("--topic t --operation IdempotentWrite", "--cluster --operation Read", "--topic t --operation x"):
        guarded.agree_on_status("acls", "--add", *words.split(), "--allow-principal", "User:a")


def test_refused_by_the_node(guarded: BothTools) -> None:
    out = guarded.agree("acls", "--add", "--topic", "", "--allow-principal", "User:a", change=[in_order]).out
    assert "InvalidRequestException: Invalid empty resource name" in out


def test_an_answer_is_asked_for(guarded: BothTools) -> None:
    """Apache Kafka's tool asks on a terminal, and fails without one."""
    where = ["--bootstrap-server", guarded.bootstrap]
    added = ours("acls", [*where, "--add", "--topic", "q", "--operation", "Read", "--allow-principal", "User:a"])
    assert added.status == 0
    asked = ours("acls", [*where, "--remove", "--topic", "q"], stdin="n\n")
    assert asked == (0, "Are you sure you want to delete all ACLs for resource filter `ResourcePattern("
                        "resourceType=TOPIC, name=q, patternType=LITERAL)`? (y/n)\n", "")  # fmt: skip
    assert "READ" in ours("acls", [*where, "--list"]).out
    assert ours("acls", [*where, "--remove", "--topic", "q"], stdin="Y\n").status == 0
    assert ours("acls", [*where, "--list"]).out == ""


def test_without_a_server(guarded: BothTools) -> None:
    assert guarded.agree("acls", "--list", where=False).status == 1
