"""The protocol that the members of a classic group choose."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.group.classic.classic_member import Member
from pykbroker.coordinator.group.classic.protocol_selection import read_subscriptions, selected_protocol
from tests.coordinator.group.harness import subscription


def member(name: str, *protocols: str, metadata: bytes = b"") -> Member:
    return Member(name, None, "client", "/127.0.0.1", 1, 1, tuple((protocol, metadata) for protocol in protocols))


def test_a_protocol_that_one_member_lacks_gets_no_vote() -> None:
    members = [member("m1", "range", "sticky"), member("m2", "range", "sticky"), member("m3", "sticky")]
    assert selected_protocol(members) == "sticky"


def test_most_first_choices_win_and_javas_order_breaks_a_tie() -> None:
    ranges, stickies = member("m1", "range", "sticky"), member("m2", "sticky", "range")
    assert selected_protocol([ranges, stickies]) == "sticky"
    assert selected_protocol([stickies, ranges]) == "sticky"
    assert selected_protocol([ranges, stickies, member("m3", "range", "sticky")]) == "range"


def test_the_topics_of_all_members_are_read() -> None:
    members = [member("m1", "range", metadata=subscription("t")), member("m2", "range", metadata=subscription("u"))]
    assert read_subscriptions("g", "consumer", "range", members) == frozenset({"t", "u"})
    assert read_subscriptions("g", "consumer", None, []) == frozenset()
    assert read_subscriptions("g", "connect", "range", members) is None
    assert read_subscriptions("g", "consumer", None, members) is None


def test_subscriptions_that_cannot_be_read_are_logged_with_their_group(caplog: pytest.LogCaptureFixture) -> None:
    assert read_subscriptions("g", "consumer", "range", [member("m1", "range", metadata=b"x")]) is None
    assert "Group g" in caplog.text
