"""The index decides as a walk over all ACLs would, after any adds and removes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.security.acl import Acl, AclFilter, PatternType, Permission, java_address, known
from pykbroker.security.acl_index import AclIndex, Ruling
from pykbroker.security.authorizer import Operation, Resource

TOPIC = Resource.TOPIC
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
OPERATIONS = [Operation.ALL, Operation.READ, Operation.DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS]
NAMES = ["*", "a", "ab", "abc", "b", "*a"]
PRINCIPALS = ["User:*", "User:u", "User:v"]
ADDRESSES = ["10.0.0.1", "10.0.0.2", "2001:db8:0:0:0:0:0:1"]
#: The last three contain no address: one has no length, one is another range, one has the form of another version.
RANGES = ["10.0.0.0/8", "10.9.9.9/8", "10.0.0.1/32", "10.0.0.2/31", "2001:DB8::/32", "10.0.0.1/", "11.0.0.0/8", "::/x"]
HOSTS = ["*", *ADDRESSES, *RANGES]

acls = st.builds(
    Acl,
    st.sampled_from([TOPIC, Resource.GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([ALLOW, DENY]),
)
questions = st.tuples(
    st.sampled_from(PRINCIPALS),
    st.sampled_from(ADDRESSES),
    st.sampled_from(OPERATIONS[1:]),
    st.sampled_from([TOPIC, Resource.GROUP]),
    st.sampled_from([*NAMES, "abcd", "zz"]),
)
Question = tuple[str, str, Operation, Resource, str]

IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def acl(
    name: str = "t",
    principal: str = "User:u",
    permission: Permission = ALLOW,
    operation: Operation = Operation.READ,
    pattern: PatternType = LITERAL,
    host: str = "*",
) -> Acl:
    return Acl(TOPIC, name, pattern, principal, host, operation, permission)


def index_of(rules: Iterable[Acl]) -> AclIndex:
    return AclIndex({number.to_bytes(16, "big"): rule for number, rule in enumerate(rules)})


def naive(rules: Collection[Acl], question: Question) -> bool | None:
    """Walk over all. Return None if no rule is about the resource."""
    principal, host, operation, resource, name = question
    about = [rule for rule in rules if rule.resource_type == resource and covers(rule, name)]
    mine = [rule for rule in about if rule.principal in (principal, "User:*") and means(rule, host)]
    if any(r.permission_type == DENY and r.operation in (operation, Operation.ALL) for r in mine):
        return False
    enough = {operation, Operation.ALL} | IMPLYING.get(operation, set())
    if any(rule.permission_type == ALLOW and rule.operation in enough for rule in mine):
        return True
    return False if about else None


def means(rule: Acl, host: str) -> bool:
    if rule.host in (host, "*"):
        return True
    try:
        return ip_address(host) in ip_network(rule.host, strict=False)
    except ValueError:
        return False


def covers(rule: Acl, name: str) -> bool:
    if rule.pattern_type == PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name in (name, "*")


def verdict(found: Ruling) -> bool | None:
    if found.rule is not None:
        return found.rule.permission_type == ALLOW
    return False if found.has_rules else None


@pytest.mark.slow
@given(st.lists(acls, max_size=12), questions)
def test_a_decision_is_that_of_a_walk_over_all(rules: list[Acl], question: Question) -> None:
    assert verdict(index_of(rules).decide(*question)) == naive(rules, question)


def naive_some(rules: Collection[Acl], principal: str, host: str, operation: Operation) -> bool:
    """KIP-679 in words: an ALLOW that no DENY of its name, of a prefix of it, or of `*` overrides."""
    mine = [
        rule
        for rule in rules
        if rule.resource_type == TOPIC
        and rule.principal in (principal, "User:*")
        and means(rule, host)
        and rule.operation in (operation, Operation.ALL)
    ]
    allowed = [rule for rule in mine if rule.permission_type == ALLOW]
    denied = [rule for rule in mine if rule.permission_type == DENY]
    if any(rule.resource_name == "*" and rule.pattern_type == LITERAL for rule in denied):
        return False
    for rule in allowed:
        if rule.resource_name == "*" and rule.pattern_type == LITERAL:
            return True
        same = rule.pattern_type == LITERAL and any(
            no.pattern_type == LITERAL and no.resource_name == rule.resource_name for no in denied
        )
        if not same and not any(
            no.pattern_type == PREFIXED and rule.resource_name.startswith(no.resource_name) for no in denied
        ):
            return True
    return False


@pytest.mark.slow
@given(st.lists(acls, max_size=10), st.sampled_from(PRINCIPALS), st.sampled_from(ADDRESSES))
def test_some_resource_is_that_of_a_walk_over_all(rules: list[Acl], principal: str, host: str) -> None:
    found = index_of(rules).allows_some(principal, host, Operation.READ, TOPIC)
    assert found == naive_some(rules, principal, host, Operation.READ)


ids = st.integers(0, 5).map(lambda number: number.to_bytes(16, "big"))
steps = st.lists(st.tuples(ids, st.none() | acls), max_size=30)


@pytest.mark.slow
@given(steps, st.lists(questions, min_size=1, max_size=5))
def test_cve_2024_27309_what_is_left_decides_whatever_was_there_before(
    changes: list[tuple[bytes, Acl | None]], asked: list[Question]
) -> None:
    """In that bug, removing one of three ACLs left the index with one instead of two, and a DENY was lost."""
    index = AclIndex()
    left: dict[bytes, Acl] = {}
    for acl_id, rule in changes:
        if rule is None:
            index.remove(acl_id)
            left.pop(acl_id, None)
        else:
            index.add(acl_id, rule)
            left[acl_id] = rule
    assert sorted(index) == sorted(left.values())
    built_anew = AclIndex(left)
    for question in asked:
        assert index.decide(*question) == built_anew.decide(*question)
        principal, host, operation, resource, _ = question
        assert index.allows_some(principal, host, operation, resource) == built_anew.allows_some(
            principal, host, operation, resource
        )
    for acl_id in list(left):
        index.remove(acl_id)
    ranges, none = vars(index).pop("_ranges"), vars(new := AclIndex()).pop("_ranges")
    assert (vars(index), vars(ranges)) == (vars(new), vars(none)), "nothing is kept of what is gone"


def test_a_rule_that_is_there_twice_counts_until_both_are_gone() -> None:
    index = AclIndex({b"1": acl(permission=DENY), b"2": acl(permission=DENY), b"3": acl()})
    question = ("User:u", "10.0.0.1", Operation.READ, TOPIC, "t")
    index.remove(b"1")
    assert verdict(index.decide(*question)) is False
    index.remove(b"2")
    assert verdict(index.decide(*question)) is True


def test_an_allow_of_describe_follows_from_others_and_a_deny_does_not() -> None:
    def may(operation: Operation, *rules: Acl) -> bool | None:
        return verdict(index_of(rules).decide("User:u", "10.0.0.1", operation, TOPIC, "t"))

    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
        assert may(Operation.DESCRIBE, acl(operation=operation)) is True
    assert may(Operation.DESCRIBE, acl(operation=Operation.CREATE)) is False
    assert may(Operation.DESCRIBE_CONFIGS, acl(operation=Operation.ALTER_CONFIGS)) is True
    assert may(Operation.DESCRIBE, acl(operation=Operation.DESCRIBE), acl(permission=DENY)) is True


def test_names_are_compared_as_they_are() -> None:
    index = index_of([acl("orders"), acl("Ça", pattern=PREFIXED)])
    for name, allowed in (
        ("orders", True),
        ("Orders", None),
        ("orders\u200b", None),
        ("Ça va", True),
        ("C\u0327a", None),
    ):
        assert verdict(index.decide("User:u", "h", Operation.READ, TOPIC, name)) is allowed
    assert verdict(index.decide("User:U", "h", Operation.READ, TOPIC, "orders")) is False


def test_the_wildcard_is_for_every_name() -> None:
    """In Apache Kafka 4.3.1 names that themselves begin with `*` are left out: a DENY of `*` does not hold for them."""
    index = index_of([acl("*", permission=DENY)])
    assert verdict(index.decide("User:u", "h", Operation.READ, TOPIC, "*abc")) is False


def test_a_question_looks_at_few_of_many_rules() -> None:
    """There are many rules of other patterns and of other users on the same one, and a decision reads none of them."""
    index = index_of(
        [*(acl(f"topic-{n}") for n in range(1_000)), *(acl("*", principal=f"User:{n}") for n in range(1_000))]
    )

    class Watched(dict[tuple[str, str], tuple[Acl, ...]]):
        def __iter__(self) -> None:  # type: ignore[override]
            raise AssertionError("walked over")

        items = values = __iter__  # type: ignore[assignment]

    for patterns in (index._literal, index._prefixed):
        for pattern in patterns:
            patterns[pattern] = Watched(patterns[pattern])
    assert verdict(index.decide("User:7", "h", Operation.READ, TOPIC, "topic-3")) is True
    assert verdict(index.decide("User:none", "h", Operation.READ, TOPIC, "x" * 249)) is False


def test_a_permission_of_another_version_denies() -> None:
    other = acl()._replace(permission_type=9)
    assert index_of([other, acl()]).decide("User:u", "h", Operation.READ, TOPIC, "t").rule == other


FILTER = AclFilter(Resource.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (FILTER, {"a", "ab*", "*"}),
        (FILTER._replace(resource_name="a"), {"a"}),
        (FILTER._replace(resource_name="abc", pattern_type=PatternType.MATCH), {"ab*", "*"}),
        (FILTER._replace(resource_name="a", pattern_type=PatternType.MATCH), {"a", "*"}),
        (FILTER._replace(pattern_type=LITERAL), {"a", "*"}),
        (FILTER._replace(resource_name="*", pattern_type=LITERAL), {"*"}),
        (FILTER._replace(resource_name="ab", pattern_type=PREFIXED), {"ab*"}),
        (FILTER._replace(resource_type=Resource.GROUP), set()),
        (FILTER._replace(resource_type=Resource.TOPIC), {"a", "ab*", "*"}),
        (FILTER._replace(principal="User:u"), {"a", "ab*"}),
        (FILTER._replace(principal="User:*"), {"*"}),
        (FILTER._replace(host="10.0.0.1"), {"ab*"}),
        (FILTER._replace(operation=Operation.DESCRIBE), {"*"}),
        (FILTER._replace(permission_type=DENY), {"ab*"}),
        (FILTER._replace(pattern_type=PatternType.UNKNOWN), set()),
        (FILTER._replace(operation=Operation.UNKNOWN), set()),
    ],
)
def test_filters(wanted: AclFilter, found: set[str]) -> None:
    rules = {
        "a": acl("a"),
        "ab*": acl("ab", pattern=PREFIXED, permission=DENY, host="10.0.0.1"),
        "*": acl("*", principal="User:*", operation=Operation.DESCRIBE),
    }
    assert {name for name, rule in rules.items() if wanted.matches(rule)} == found


@pytest.mark.parametrize(
    ("host", "as_java"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::a0:0", "2001:db8:0:0:0:0:a0:0"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("no:address", "no:address"),
    ],
)
def test_hosts_are_written_as_java_writes_them(host: str, as_java: str) -> None:
    assert java_address(host) == as_java


def test_codes_of_another_version_are_unknown() -> None:
    assert known(Operation, 99) is Operation.UNKNOWN
    assert known(PatternType, -1) is PatternType.UNKNOWN
    assert known(Resource, 2) is TOPIC
