"""Consumer groups of KIP-848: the requests and answers of heartbeats, step by step."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.scripts.consumers import (
    LEAVE,
    LEAVE_STATIC,
    Member,
    assignable,
    beat,
    describe,
    join,
    set_group_config,
    settle,
)
from compat_tests.differential.session import Session
from pykbroker_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.list_groups import ListGroupsRequest

ZERO_ID = bytes(16)
# Members of one group: "three" would share its slot of a Java hash map with "two", and the order within a slot depends
# on the history of the map, which only Kafka has.
TRIO = ("one", "two", "third")


def bad_heartbeats(s: Session) -> None:
    """ConsumerGroupHeartbeat: everything that is refused, with its order."""
    s.until_coordinator()
    topic = assignable(s)
    topic_id = s.topic_id(topic)
    group = s.name("g")
    none = s.name("none")
    for version in (0, 1):

        def ask(label: str, request: Any, at: int = version) -> Any:
            return s.call(label, request, at)

        ask("empty group", join("", "m", [topic]))
        ask("a group of blanks", join("  ", "m", [topic]))
        ask("empty member" if version else "empty member, which gets an id", join(s.name(f"e{version}"), "", [topic]))
        ask("empty member and epoch", beat(group, "", 1))
        ask("empty member leaves", beat(group, "", LEAVE))
        ask("a member of blanks", join(group, " ", [topic]))
        ask("empty instance", join(group, "m", [topic], instance_id=""))
        ask("empty rack", join(group, "m", [topic], rack_id=""))
        ask("a long member", join(group, "m" * 40, [topic], rebalance_timeout_ms=-1))
        ask("no rebalance timeout", join(group, "m", [topic], rebalance_timeout_ms=-1))
        ask("rebalance timeout 0", join(s.name("zero"), f"m{version}", [topic], rebalance_timeout_ms=0))
        ask("rebalance timeout -5", join(group, "m", [topic], rebalance_timeout_ms=-5))
        ask("owned null", join(group, "m", [topic], topic_partitions=None))
        ask(
            "owned something",
            beat(group, "m", 0, [(topic_id, [0])], subscribed_topic_names=[topic], rebalance_timeout_ms=9),
        )
        ask("no topics", join(group, "m", None))
        ask("empty topics", join(s.name(f"empty-{version}"), "m", []))
        ask("epoch -3", beat(group, "m", -3))
        ask("leaves as static, without an instance", beat(group, "m", LEAVE_STATIC))
        ask("unknown assignor", join(group, "m", [topic], server_assignor="sticky"))
        ask("empty assignor", join(group, "m", [topic], server_assignor=""))
        ask("assignor in capitals", join(group, "m", [topic], server_assignor="Uniform"))
        ask("a bad topic name", join(s.name(f"bad-{version}"), "m", ["a b", ""]))
        ask("the same topic twice", join(s.name(f"twice-{version}"), "m", [topic, topic]))
        ask("unknown group", beat(none, "m", 1))
        ask("unknown group, leaves", beat(none, "m", LEAVE))
        ask("unknown group, leaves as static", beat(none, "m", LEAVE_STATIC, instance_id="i"))
        ask("unknown group, everything wrong", beat(none, "m", 5, [(topic_id, [7])], server_assignor="x"))
        one = Member(s, group, f"one-{version}", version)
        one.join([topic])
        ask("unknown member", beat(group, "ghost", 1))
        ask("unknown member leaves", beat(group, "ghost", LEAVE))
        ask("unknown instance leaves", beat(group, "ghost", LEAVE_STATIC, instance_id="i"))
        ask("unknown instance beats", beat(group, "ghost", 1, instance_id="i"))
        ask("unknown assignor in a beat", beat(group, one.name, one.epoch, server_assignor="sticky"))
        ask("empty rack in a beat", beat(group, one.name, one.epoch, rack_id=""))
        ask("rebalance timeout 0 in a beat", beat(group, one.name, one.epoch, rebalance_timeout_ms=0))
        ask("owns what is not there", beat(group, one.name, one.epoch, [(ZERO_ID, [0]), (topic_id, [9])]))
        ask("owns the same twice", beat(group, one.name, one.epoch, [(topic_id, [0, 0]), (topic_id, [0])]))
        describe(s, "described", group)
        one.leave()
        one.leave(label=" again")
        describe(s, "described, empty", group)


def fenced_epochs(s: Session) -> None:
    """Epochs of members: older, newer, lost answers, and joining again."""
    s.until_coordinator()
    topic = assignable(s, partitions=4)
    topic_id = s.topic_id(topic)
    for version in (0, 1):
        group = s.name(f"g{version}")
        one, two = Member(s, group, "one", version), Member(s, group, "two", version)
        one.join([topic])
        s.call("newer epoch", beat(group, "one", one.epoch + 1), version)
        s.call("older epoch, nothing owned said", beat(group, "one", one.epoch - 1), version)
        one.comply()
        two.join([topic])
        one.beat()
        one.comply()
        one.comply(" again")
        two.comply()
        older = one.epoch - 1
        s.call("the last epoch, nothing said", beat(group, "one", older), version)
        s.call("the last epoch, owns part", beat(group, "one", older, [(topic_id, [0])]), version)
        s.call("the last epoch, owns nothing", beat(group, "one", older, []), version)
        s.call("the last epoch, owns too much", beat(group, "one", older, [(topic_id, [0, 1, 2, 3])]), version)
        s.call("two epochs back", beat(group, "one", older - 1, [(topic_id, [0])]), version)
        s.call("newer epoch again", beat(group, "one", one.epoch + 1, []), version)
        one.beat(" after all that")
        one.join([topic], " again")
        one.join([topic], " once more, with another timeout", rebalance_timeout_ms=45_000)
        settle(one, two)
        describe(s, "described", group, version=version)
        one.leave()
        one.beat(" after leaving")
        settle(two)
        one.join([topic], " after leaving")
        settle(one, two)
        describe(s, "described at last", group, version=version)
        for each in (one, two):
            each.leave()


def one_member(s: Session) -> None:
    """One member from joining to leaving: fields set and left out, subscriptions, assignors, describing it."""
    s.until_coordinator()
    topic, other = assignable(s, "a", partitions=3), assignable(s, "b", partitions=2)
    for version in (0, 1):
        for assignor in (None, "uniform", "range"):
            group = s.name(f"g-{version}-{assignor}")
            one = Member(s, group, "one", version, server_assignor=assignor, rack_id="rack")
            one.join([topic])
            describe(s, "described, joined", group, version=version)
            one.beat()
            one.comply()
            one.beat(" in full", subscribed_topic_names=[topic], rebalance_timeout_ms=60_000)
            one.comply(" in full")
            describe(s, "described, complied", group, version=version)
            one.beat(", another subscription", subscribed_topic_names=[other])
            one.comply()
            one.comply(" again")
            one.beat(", both", subscribed_topic_names=[other, topic])
            settle(one)
            describe(s, "described, both", group, version=version)
            one.beat(", nothing", subscribed_topic_names=[])
            settle(one)
            describe(s, "described, nothing", group, version=version)
            one.beat(", what is not there", subscribed_topic_names=["no-such-topic"])
            one.beat(", another rack", rack_id="other")
            one.beat(", the other assignor", server_assignor="range" if assignor != "range" else "uniform")
            one.beat(", another timeout", rebalance_timeout_ms=12_345)
            describe(s, "described, changed", group, version=version)
            one.leave()
            describe(s, "described, left", group, version=version)
            one.join([topic], " again")
            one.leave()
            s.call("delete", DeleteGroupsRequest(groups_names=[group]))
            describe(s, "described, deleted", group, version=version)


def _revoking(s: Session, assignor: str) -> None:
    s.until_coordinator()
    topic, other = assignable(s, "a", partitions=6), assignable(s, "b", partitions=3)
    group = s.name("g")
    one, two, three = (Member(s, group, name, 1, server_assignor=assignor) for name in TRIO)
    one.join([topic])
    one.comply()
    two.join([topic])
    describe(s, "described, two has joined", group)
    two.beat(", too early")
    one.beat(", is told")
    describe(s, "described, one revokes", group)
    one.beat(", has not revoked yet")
    two.beat(", still waits")
    one.comply(", has revoked")
    describe(s, "described, one has revoked", group)
    two.beat(", is told")
    two.comply()
    describe(s, "described, both", group)
    three.join([topic, other])
    settle(one, two, three)
    describe(s, "described, three", group)
    one.beat(", subscribes to both", subscribed_topic_names=[topic, other])
    settle(one, two, three)
    two.beat(", subscribes to both", subscribed_topic_names=[topic, other])
    settle(one, two, three)
    describe(s, "described, all of both", group)
    two.leave()
    describe(s, "described, two has left", group)
    settle(one, three)
    # One member joins while another leaves.
    two.join([other], " for the other")
    one.leave()
    settle(two, three)
    describe(s, "described at last", group)
    for each in (two, three):
        each.leave()
    describe(s, "described, empty", group)


def revocation_uniform(s: Session) -> None:
    """Two and three members of the uniform assignor: the assignment that each gets, and when."""
    _revoking(s, "uniform")


def revocation_range(s: Session) -> None:
    """Two and three members of the range assignor: the assignment that each gets, and when."""
    _revoking(s, "range")


def mixed_assignors(s: Session) -> None:
    """Members that wish for different assignors: the majority has it."""
    s.until_coordinator()
    topic = assignable(s, partitions=5)
    group = s.name("g")
    members = [Member(s, group, name) for name in TRIO]
    members[0].join([topic], " for range", server_assignor="range")
    describe(s, "described, range", group)
    members[1].join([topic], " for uniform", server_assignor="uniform")
    describe(s, "described, one each", group)
    members[2].join([topic], " for uniform", server_assignor="uniform")
    describe(s, "described, the majority", group)
    settle(*members)
    describe(s, "described at last", group)
    for each in members:
        each.leave()


def static_consumers(s: Session) -> None:
    """Members with an instance id: away and back, replaced, fenced, leaving for good."""
    s.until_coordinator()
    topic = assignable(s, partitions=4)
    for version in (0, 1):
        group = s.name(f"g{version}")
        one = Member(s, group, "one", version, instance_id="i")
        two = Member(s, group, "two", version)
        one.join([topic])
        one.comply()
        two.join([topic])
        settle(one, two)
        thief = Member(s, group, "thief", version, instance_id="i")
        thief.join([topic], " for an instance that is there")
        s.call("an older life beats", beat(group, "ghost", one.epoch, instance_id="i"), version)
        s.call("an unknown instance beats", beat(group, "one", one.epoch, instance_id="j"), version)
        s.call("beats without its instance", beat(group, "one", one.epoch), version)
        s.call("another leaves for it", beat(group, "two", LEAVE_STATIC, instance_id="i"), version)
        one.leave(LEAVE_STATIC)
        describe(s, "described, away", group, version=version)
        s.call("beats while away", beat(group, "one", one.epoch, instance_id="i"), version)
        two.beat()
        thief.join([topic], " in its place")
        describe(s, "described, back", group, version=version)
        one.beat(" after it", instance_id="i")
        thief.comply()
        settle(two)
        thief.leave(LEAVE_STATIC, " again")
        thief.join([topic], " under the same id")
        thief.leave(LEAVE_STATIC, " for another subscription")
        thief.join([], " with another subscription")
        settle(thief, two)
        thief.leave(LEAVE, " for good")
        describe(s, "described, gone", group, version=version)
        settle(two)
        two.leave()


def regular_expressions(s: Session) -> None:
    """Subscriptions by a regular expression: resolved, changed, invalid; topics that come."""
    s.until_coordinator()
    topic = assignable(s, "x-1", partitions=2)
    assignable(s, "y-1", partitions=1)
    group = s.name("g")
    for pattern in ("[", "(", "*", "a{2,1}", "(?<name>x)", "\\1", "(?=x)", "x" * 2000 + "["):
        s.call(f"invalid {pattern[:12]}", join(s.name("invalid"), "m", None, subscribed_topic_regex=pattern))
    s.call("empty", join(s.name("empty"), "m", None, subscribed_topic_regex=""))
    s.call("version 0 cannot say it", join(s.name("v0"), "m", None), 0)
    one = Member(s, group, "one")
    one.join(None, " by pattern", subscribed_topic_regex=s.name("x-.*"))

    def assigned() -> bool:
        answer = s.ask(beat(group, one.name, one.epoch), on="")
        if answer.error_code == 0:
            one.epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                one.told = [(each.topic_id, list(each.partitions)) for each in answer.assignment.topic_partitions]
                return True
        return False

    s.until(assigned, "the pattern is resolved")
    s.note("told", [partitions for _, partitions in one.told or []])
    describe(s, "described", group)
    one.comply()
    one.beat(", the same pattern", subscribed_topic_regex=s.name("x-.*"))
    one.beat(", an invalid pattern", subscribed_topic_regex="[")
    one.beat(" after it")
    one.beat(", a name beside it", subscribed_topic_names=[topic])
    describe(s, "described, both", group)
    one.beat(", no pattern", subscribed_topic_regex="", subscribed_topic_names=[topic])
    settle(one)
    describe(s, "described, only names", group)
    one.leave()
    describe(s, "described, left", group)


def names_beside_patterns(s: Session) -> None:
    """Members that subscribe to the same topic, one by a pattern and the others by its name, or missing another one."""
    s.until_coordinator()
    topic = assignable(s, "z-1", partitions=7)
    by_name = Member(s, s.name("g"), "by-name")
    by_name.join([topic])
    by_name.comply()
    by_pattern = Member(s, s.name("g"), "by-pattern")
    by_pattern.join(None, " by pattern", subscribed_topic_regex=s.name("z-.*"))

    def resolved() -> bool:
        answer = s.ask(beat(s.name("g"), by_pattern.name, by_pattern.epoch), on="")
        known, by_pattern.epoch = by_pattern.epoch, answer.member_epoch
        return bool(answer.member_epoch > known)

    s.until(resolved, "the pattern is resolved")
    for _ in range(4):
        by_name.beat("")
        by_name.comply()
        by_pattern.beat("")
        by_pattern.comply()
    other = Member(s, s.name("g"), "other")
    other.join([topic, s.name("missing")])
    for _ in range(4):
        for member in (by_name, by_pattern, other):
            member.beat("")
            member.comply()
    describe(s, "described", s.name("g"))
    for member in (by_name, by_pattern, other):
        member.leave()
    first, second, third = (Member(s, s.name("h"), name) for name in ("first", "second", "third"))
    for member, topics in ((first, [topic]), (second, [topic, s.name("missing")]), (third, [topic])):
        member.join(topics)
    for _ in range(4):
        for member in (first, second, third):
            member.beat("")
            member.comply()
    describe(s, "described, with a name of nothing", s.name("h"))


def topics_under_way(s: Session) -> None:
    """Topics that come, grow and go while a member subscribes to them."""
    s.until_coordinator()
    here, later = assignable(s, "here", partitions=1), s.name("later")
    group = s.name("g")
    one = Member(s, group, "one")
    one.join([here, later])
    one.comply()
    describe(s, "described before", group)

    def until_epoch(what: str) -> None:
        """Asked without being compared: the time at which a node sees a change is its own, only the result is
        compared."""
        before = one.epoch

        def moved() -> bool:
            answer = s.ask(beat(group, "one", one.epoch), on="")
            one.epoch = answer.member_epoch
            if answer.assignment is not None:
                one.told = [(each.topic_id, list(each.partitions)) for each in answer.assignment.topic_partitions]
            return bool(one.epoch != before or answer.assignment is not None)

        s.until(moved, what)

    s.make_topic("later", partitions=2)
    until_epoch("the new topic is assigned")
    s.note("told of it", sorted(partitions for _, partitions in one.told or []))
    settle(one)
    describe(s, "described with it", group)
    s.ask(
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=here, count=3, assignments=None)], timeout_ms=20_000)
    )
    s.until_partitions(here, 3)
    until_epoch("the new partitions are assigned")
    settle(one)
    describe(s, "described, grown", group)
    s.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=later)], timeout_ms=20_000))
    s.until_gone(later)
    until_epoch("the deleted topic is gone")
    settle(one)
    describe(s, "described, deleted", group)
    one.leave()


def timeouts_of_consumers(s: Session) -> None:
    """A member that is silent leaves; one that does not give up its partitions is fenced."""
    s.until_coordinator()
    topic = assignable(s, partitions=2)
    group = s.name("silent")
    set_group_config(s, group, consumer_session_timeout_ms="1000", consumer_heartbeat_interval_ms="250")
    one = Member(s, group, "one")
    one.join([topic])
    one.comply()

    def members(name: str, count: int) -> bool:
        found = s.ask(ConsumerGroupDescribeRequest(group_ids=[name])).groups[0]
        return len(found.members) == count

    s.until(lambda: members(group, 0), "the silent member is gone")
    one.beat(" too late")
    describe(s, "described, silent", group)
    stubborn = s.name("stubborn")
    first, second = Member(s, stubborn, "first"), Member(s, stubborn, "second")
    first.join([topic], rebalance_timeout_ms=700)
    first.comply()
    second.join([topic])
    first.beat(", is told")
    second.beat(", waits")
    s.until(lambda: members(stubborn, 1), "the stubborn member is gone")
    first.beat(" too late")
    describe(s, "described, stubborn", stubborn)
    settle(second)
    second.leave()


def assignment_interval(s: Session) -> None:
    """consumer.assignment.interval.ms: members that come in between share one assignment."""
    s.until_coordinator()
    topic = assignable(s, partitions=4)
    group = s.name("g")
    set_group_config(s, group, consumer_assignment_interval_ms="1500")
    one, two, three = (Member(s, group, name) for name in TRIO)
    one.join([topic])
    two.join([topic], " at once")
    three.join([topic], " at once")
    describe(s, "described, at once", group)
    one.comply()
    two.beat()

    def assigned() -> bool:
        found = s.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups[0]
        for each in (one, two, three):
            s.ask(beat(group, each.name, each.epoch), on="")
        return bool(found.assignment_epoch == found.group_epoch)

    s.until(assigned, "the group is assigned")
    describe(s, "described, assigned", group)
    for each in (one, two, three):
        each.leave()


def full_group(s: Session) -> None:
    """group.consumer.max.size: members that come too late."""
    s.until_coordinator()
    topic = assignable(s, partitions=1)
    group = s.name("g")
    members = [Member(s, group, f"m{number}") for number in range(7)]
    for each in members:
        each.join([topic])
    members[2].join([topic], " again")
    members[0].leave()
    members[6].join([topic], " then")
    for each in members[1:]:
        each.leave()


def described_consumer_groups(s: Session) -> None:
    """ConsumerGroupDescribe, ListGroups and DescribeGroups of groups of both kinds."""
    s.until_coordinator()
    topic = assignable(s, partitions=2)
    empty, stable, busy = s.name("a-empty"), s.name("b-stable"), s.name("c-busy")
    for group in (empty, stable, busy):
        one = Member(s, group, "one")
        one.join([topic])
        one.comply()
        if group == empty:
            one.leave()
        if group == busy:
            two = Member(s, group, "two")
            two.join([topic])
            one.beat()
    groups = (empty, stable, busy, s.name("none"), "")
    for version in (0, 1):
        for group in groups:
            describe(s, f"consumer {group!r}", group, version=version)
        s.call("consumer, several", ConsumerGroupDescribeRequest(group_ids=[busy, empty, s.name("none")]), version)
        s.call("consumer, none", ConsumerGroupDescribeRequest(group_ids=[]), version)
        s.call(
            "consumer, with operations",
            ConsumerGroupDescribeRequest(group_ids=[stable, s.name("none")], include_authorized_operations=True),
            version,
        )
    for group in groups[:4]:
        s.each(f"classic {group!r}", lambda v, n=group: DescribeGroupsRequest(groups=[n]))  # type: ignore[misc]

    def listed(label: str, version: int, states: list[str] | None = None, types: list[str] | None = None) -> None:
        s.call(label, ListGroupsRequest(states_filter=states or [], types_filter=types or []), version)
        s.only_mine()

    for version in range(6):
        listed("all", version)
    for states in (["Empty"], ["stable"], ["Reconciling"], ["Assigning"], ["PreparingRebalance"], ["Dead"]):
        listed(f"states {states}", 4, states)
        listed(f"states {states}", 5, states)
    for types in (["consumer"], ["Consumer"], ["classic"], ["classic", "consumer"], ["share"]):
        listed(f"types {types}", 5, None, types)
    listed("state and type", 5, ["Stable"], ["consumer"])
    for group in groups[:3]:
        s.call("delete", DeleteGroupsRequest(groups_names=[group]))
    listed("after deleting", 5)


SCRIPTS = (
    bad_heartbeats,
    fenced_epochs,
    one_member,
    revocation_uniform,
    revocation_range,
    mixed_assignors,
    static_consumers,
    regular_expressions,
    names_beside_patterns,
    topics_under_way,
    timeouts_of_consumers,
    assignment_interval,
    full_group,
    described_consumer_groups,
)
