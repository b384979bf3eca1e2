"""The counts that follow from the members of a consumer group."""

from __future__ import annotations

from pykbroker.coordinator.group.consumer.consumer_member import ClassicMetadata, ConsumerMember, ResolvedRegex
from pykbroker.coordinator.group.consumer.subscriptions import Subscriptions


def member(name: str, *topics: str, regex: str | None = "", assignor: str | None = None) -> ConsumerMember:
    return ConsumerMember(name, topics=frozenset(topics), regex=regex, assignor=assignor)


def test_a_topic_is_counted_by_name_and_by_regular_expression() -> None:
    counts = Subscriptions()
    counts.replace(None, member("m1", "t", "u"))
    counts.replace(None, member("m2", "t", regex="u.*"))
    counts.set_resolved("u.*", ResolvedRegex(frozenset({"u", "ur"}), 1, 0))
    assert counts.subscribers == {"t": (2, 0), "u": (1, 1), "ur": (0, 1)}
    assert "ur" in counts
    counts.set_resolved("u.*", ResolvedRegex(frozenset({"u"}), 2, 0))
    assert counts.subscribers == {"t": (2, 0), "u": (1, 1)}
    assert "ur" not in counts


def test_nothing_is_left_of_members_that_have_gone() -> None:
    counts = Subscriptions()
    one = member("m1", "t", regex="u.*", assignor="range")._replace(classic=ClassicMetadata(1, (("range", b""),)))
    counts.replace(None, one)
    counts.set_resolved("u.*", ResolvedRegex(frozenset({"u"}), 1, 0))
    assert (counts.regexes, counts.assignors, counts.classic_protocols) == ({"u.*": 1}, {"range": 1}, {"range": 1})
    counts.replace(one, None)
    counts.set_resolved("u.*", None)
    assert (counts.regexes, counts.assignors, counts.classic_protocols) == ({}, {}, {})
    assert (counts.subscribers, counts.resolved, counts.classic_count) == ({}, {}, 0)


def test_a_change_that_is_only_asked_about_changes_nothing() -> None:
    counts = Subscriptions()
    old = member("m1", "t", regex="u.*")
    counts.replace(None, old)
    counts.set_resolved("u.*", ResolvedRegex(frozenset({"u"}), 1, 0))
    assert counts.after(old, member("m1", "v")) == {"v": (1, 0)}
    assert counts.without([old], ["u.*"]) == {}
    assert counts.subscribers == {"t": (1, 0), "u": (0, 1)}


def test_classic_members_decide_which_protocols_are_supported() -> None:
    counts = Subscriptions()
    for name, protocols in (("m1", ("range", "sticky")), ("m2", ("sticky",))):
        metadata = ClassicMetadata(1, tuple((each, b"") for each in protocols))
        counts.replace(None, member(name)._replace(classic=metadata))
    assert not counts.supports_classic(["range"])
    assert counts.supports_classic(["range", "sticky"])
