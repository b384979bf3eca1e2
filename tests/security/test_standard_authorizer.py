"""Super users, then ACLs, then the default; no decision before the ACLs are loaded; the log lines."""

from __future__ import annotations

import logging

import pytest

from pykbroker.security import standard_authorizer
from pykbroker.security.acl import Acl, PatternType, Permission
from pykbroker.security.authorizer import AuthorizerNotReady, Operation, Resource
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.security.askers import AskingClient

AUDIT = "kafka.authorizer.logger"


ALICE, ADMIN = AskingClient("User:alice"), AskingClient("User:admin")
READ = Acl(Resource.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
DENIED = READ._replace(permission_type=Permission.DENY)


def may_read(authorizer: StandardAuthorizer, client: AskingClient, name: str = "t", *, quiet: bool = False) -> bool:
    return authorizer.authorize(client, Operation.READ, Resource.TOPIC, name, quiet)


def made(*, allow_if_no_acl: bool = False) -> StandardAuthorizer:
    authorizer = StandardAuthorizer(1, ["User:admin"], allow_if_no_acl=allow_if_no_acl)
    authorizer.complete_initial_load()
    return authorizer


def test_nothing_is_answered_before_the_acls_are_loaded() -> None:
    authorizer = StandardAuthorizer(1, ["User:admin"], allow_if_no_acl=True)
    loaded: list[str] = []
    authorizer.when_loaded(lambda: loaded.append("then"))
    authorizer.change({b"1": READ})
    assert may_read(authorizer, ADMIN)
    with pytest.raises(AuthorizerNotReady):
        may_read(authorizer, ALICE)
    with pytest.raises(AuthorizerNotReady):
        authorizer.authorize_some(ALICE, Operation.WRITE, Resource.TOPIC)
    assert not loaded
    authorizer.complete_initial_load()
    authorizer.complete_initial_load()
    authorizer.when_loaded(lambda: loaded.append("now"))
    assert loaded == ["then", "now"]
    assert may_read(authorizer, ALICE)


def test_an_acl_that_changes_changes_what_was_decided_before() -> None:
    authorizer = made()
    for changes, allowed in (
        ({b"1": READ}, True),
        ({b"2": DENIED}, False),
        ({b"2": None}, True),
        ({b"1": None}, False),
    ):
        authorizer.change(changes)
        assert may_read(authorizer, ALICE) is may_read(authorizer, ALICE) is allowed


def test_super_users_are_denied_nothing() -> None:
    authorizer = made()
    authorizer.change({b"1": DENIED._replace(principal="User:*")})
    assert may_read(authorizer, ADMIN)
    assert authorizer.authorize_some(ADMIN, Operation.WRITE, Resource.TOPIC)
    assert not may_read(authorizer, AskingClient("User:Admin"))


def test_everyone_is_allowed_what_has_no_acl_only_when_that_is_set() -> None:
    assert not may_read(made(), ALICE)
    authorizer = made(allow_if_no_acl=True)
    authorizer.change({b"1": READ})
    assert may_read(authorizer, AskingClient("User:bob"), "other")
    assert not may_read(authorizer, AskingClient("User:bob"))


def test_decisions_are_kept_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_authorizer, "MAX_DECISIONS", 10)
    authorizer = made()
    for number in range(100):
        assert not may_read(authorizer, ALICE, f"name-{number}")
        assert not authorizer.authorize_some(AskingClient(f"User:{number}"), Operation.WRITE, Resource.TOPIC)
        assert 1 <= len(authorizer._decisions) <= 10


def test_some_resource_asks_for_super_users_and_the_default_too() -> None:
    authorizer = made()
    assert not authorizer.authorize_some(ALICE, Operation.READ, Resource.TOPIC)
    authorizer.change({b"1": READ._replace(pattern_type=PatternType.PREFIXED)})
    assert authorizer.authorize_some(ALICE, Operation.READ, Resource.TOPIC)
    assert made(allow_if_no_acl=True).authorize_some(ALICE, Operation.READ, Resource.TOPIC)


def test_the_log_says_what_apache_kafkas_says(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = made()
    authorizer.change({b"1": READ, b"2": DENIED._replace(resource_name="u")})
    with caplog.at_level(logging.DEBUG, AUDIT):
        for client, name in ((ALICE, "t"), (ALICE, "u"), (AskingClient("User:bob", "::1"), "t"), (ADMIN, "t")):
            may_read(authorizer, client, name)
        may_read(authorizer, ALICE, "u", quiet=True)
        may_read(authorizer, ALICE, "t", quiet=True)
        assert authorizer.would_allow(ALICE, Operation.READ, Resource.TOPIC, "t")
        assert not authorizer.would_allow(ALICE, Operation.READ, Resource.TOPIC, "u")
    rule = (
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName={0}, patternType=LITERAL, principal=User:alice, "
        "host=*, operation=READ, permissionType={1}])"
    )
    line = (
        "Principal = {} is {} operation = READ from host = {} on resource = Topic:LITERAL:{} for request = Fetch "
        "with resourceRefCount = 1 based on rule {}"
    )
    said = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == AUDIT]
    assert said == [
        ("DEBUG", line.format("User:alice", "Allowed", "10.0.0.1", "t", rule.format("t", "ALLOW"))),
        ("INFO", line.format("User:alice", "Denied", "10.0.0.1", "u", rule.format("u", "DENY"))),
        ("INFO", line.format("User:bob", "Denied", "0:0:0:0:0:0:0:1", "t", "DefaultDeny")),
        ("DEBUG", line.format("User:admin", "Allowed", "10.0.0.1", "t", "SuperUser")),
        ("DEBUG", line.format("User:alice", "Allowed", "10.0.0.1", "t", rule.format("t", "ALLOW"))),
    ]


def test_a_name_cannot_begin_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, AUDIT):
        may_read(made(), AskingClient("User:eve\r\nPrincipal = User:root"), "g\n\x1b[2J\u2028\ud800é")
    (record,) = (record for record in caplog.records if record.name == AUDIT)
    assert "Principal = User:eve\\r\\nPrincipal = User:root is Denied" in record.getMessage()
    assert "Topic:LITERAL:g\\n\\x1b[2J\\u2028\\ud800é for" in record.getMessage()
    assert record.getMessage().isprintable()


def test_refusals_of_one_client_beyond_a_hundred_in_a_second_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    seconds = [5.0]
    authorizer = StandardAuthorizer(1, now=lambda: seconds[0])
    authorizer.complete_initial_load()

    def lines(client: AskingClient, count: int) -> list[str]:
        caplog.clear()
        assert not any(may_read(authorizer, client, f"t{number}") for number in range(count))
        return caplog.messages

    with caplog.at_level(logging.INFO, AUDIT):
        first = lines(ALICE, 1000)
        assert len(first) == standard_authorizer.MOST_REFUSALS + 1
        assert first[-1].startswith(
            "Principal = User:alice is Denied more than 100 operations within a second from host"
        )
        assert not lines(ALICE, 10)
        assert len(lines(ADMIN, 10)) == 10
        seconds[0] += 1
        assert len(lines(ADMIN, 10)) == 10
    assert authorizer.denied == 1030
    with caplog.at_level(logging.DEBUG, AUDIT):
        assert len(lines(ALICE, 1000)) == 1000
