"""Regular expressions of consumer groups (KIP-848): when they are resolved, and the effect of that."""

from __future__ import annotations

from pykbroker.coordinator.group.consumer.consumer_member import MemberState
from pykbroker_wire.errors import ErrorCode
from tests.coordinator.group.consumers import (
    ALL,
    ConsumerBench,
    given,
    refused,
    settings,
)


def test_a_regular_expression_is_resolved_after_the_answer(bench: ConsumerBench) -> None:
    bench.create("tea", "sugar", partitions=1)
    first = bench.enter("m1", topics=None, regex="t.*")
    assert (first.member_epoch, given(first)) == (1, set())
    bench.advance(0)
    assert bench.group().subscriptions.resolved["t.*"].topics == {"t", "tea"}
    assert given(bench.beat("m1", 1)) == ALL | {("tea", 0)}
    assert bench.restart().group().subscriptions.resolved == bench.group().subscriptions.resolved


def test_a_regular_expression_does_not_find_what_may_not_be_seen(bench: ConsumerBench) -> None:
    bench.create("tea", partitions=1)
    bench.enter("m1", topics=None, regex="t.*", may_describe=lambda topic: topic != "tea")
    bench.advance(0)
    assert bench.group().subscriptions.resolved["t.*"].topics == {"t"}


def test_regular_expressions_see_new_topics_but_not_at_every_heartbeat() -> None:
    bench = ConsumerBench(settings(consumer_regex_refresh_interval_ms=60_000))
    bench.create("t", partitions=1)
    bench.enter("m1", topics=None, regex="t.*")
    bench.advance(0)
    bench.create("tea", partitions=1)
    bench.advance(10_000)
    bench.beat("m1", 1)
    bench.advance(0)
    assert bench.group().subscriptions.resolved["t.*"].topics == {"t"}
    bench.advance(1)
    bench.beat("m1", 2)
    bench.advance(0)
    assert bench.group().subscriptions.resolved["t.*"].topics == {"t", "tea"}
    # Nothing is new, but permissions may have changed.
    for _ in range(2):
        bench.advance(30_000)
        bench.beat("m1", 2)
        bench.beat("m1", 3)
    bench.beat("m1", 3, may_describe=lambda topic: topic == "tea")
    bench.advance(1)
    bench.beat("m1", 3, may_describe=lambda topic: topic == "tea")
    bench.advance(0)
    assert bench.group().subscriptions.resolved["t.*"].topics == {"tea"}


def test_a_bad_regular_expression(bench: ConsumerBench) -> None:
    answer = bench.beat("m1", 0, regex="(", owned=set(), rebalance_ms=1)
    refused(bench, answer, ErrorCode.INVALID_REGULAR_EXPRESSION, "SubscribedTopicRegex `(` is not a valid")
    assert bench.log == []


def test_a_refused_heartbeat_does_not_keep_others_from_resolving(bench: ConsumerBench) -> None:
    bench.enter("m1")
    group = bench.group()
    # A record that another broker wrote may have this state.
    group.update_member(group.members["m1"]._replace(state=MemberState.UNKNOWN))
    refused(bench, bench.beat("m1", 2, regex="t.*"), ErrorCode.FENCED_MEMBER_EPOCH)
    assert not group.resolving
    bench.enter("m2", regex="t.*")
    bench.advance(0)
    assert group.subscriptions.resolved["t.*"].topics == {"t"}


def test_the_last_member_takes_its_regular_expression_along(bench: ConsumerBench) -> None:
    bench.enter("m1", topics=None, regex="t")
    bench.enter("m2", topics=["t"], regex="t")
    bench.advance(0)
    bench.beat("m1", -1)
    assert set(bench.group().subscriptions.resolved) == {"t"}
    bench.beat("m2", 2, regex="")
    assert bench.group().subscriptions.resolved == {}
    assert bench.group().subscriptions.subscribers == {"t": (1, 0)}
