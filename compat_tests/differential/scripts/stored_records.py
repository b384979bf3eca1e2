"""The records in __consumer_offsets and __transaction_state, one by one."""

from __future__ import annotations

from compat_tests.differential.scripts import requests
from compat_tests.differential.scripts.asking import (
    add_offsets,
    add_partitions,
    batch,
    commit_offsets,
    end,
    init,
    producer,
    until_coordinator,
    until_ended,
    until_state,
    until_written,
    write,
)
from compat_tests.differential.scripts.consumers import LEAVE, LEAVE_STATIC, assignable, beat, join, set_group_config
from compat_tests.differential.scripts.migration import NAMING, Classic, assignment
from compat_tests.differential.session import Session
from compat_tests.differential.stored import OFFSETS, TRANSACTIONS, Stored
from pykbroker_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


def records_of_transactions(s: Session) -> None:
    """__transaction_state: each state of transactions of version 1 and 2, aborted, fenced, timed out."""
    until_coordinator(s)
    topic = s.make_topic(partitions=3)
    name = s.name("t")
    log = Stored(s, TRANSACTIONS)
    first = s.call("new", init(name))
    s.know("producer", first.producer_id)
    log.note("new")
    p = producer(s)
    log.note("again")
    s.call("add one", add_partitions(p, (topic, [1])), 3)
    log.note("add one")
    s.call("add it again", add_partitions(p, (topic, [1])), 3)
    log.note("add it again")
    s.call("add another", add_partitions(p, (topic, [0])), 3)
    log.note("add another")
    s.call("commit, version 1", end(p), 4)
    until_state(s, name, "CompleteCommit")
    log.note("commit, version 1")
    until_written(s, p, topic, (2, batch(p)), version=12)
    log.note("add by producing")
    s.call("write more", write(s, p, topic, (2, batch(p, 1))), 12)
    log.note("write more")
    p.take(s.call("commit, version 2", end(p), 5))
    until_state(s, name, "CompleteCommit")
    log.note("commit, version 2")
    p.take(s.call("abort of nothing, version 2", end(p, commit=False), 5))
    until_state(s, name, "CompleteAbort")
    log.note("abort of nothing, version 2")
    until_written(s, p, topic, (0, batch(p)))
    until_ended(s, p, commit=False)
    log.note("abort, version 2")
    until_written(s, p, topic, (0, batch(p)))
    s.call("fenced", init(name))
    until_state(s, name, "CompleteAbort")
    log.note("fenced")
    s.call("the next", init(name, timeout_ms=300))
    log.note("the next")
    p = producer(s, timeout_ms=300)
    until_written(s, p, topic, (0, batch(p)))
    until_state(s, name, "CompleteAbort")
    log.note("timed out")
    p = producer(s)
    s.call("add offsets", add_offsets(p, s.name("g")), 3)
    log.note("add offsets")
    until_ended(s, p, commit=False, version=4)
    log.note("abort, version 1")


def records_of_offsets(s: Session) -> None:
    """__consumer_offsets: commits in each version, in transactions with their markers, deletions."""
    s.until_coordinator()
    until_coordinator(s)
    topic = s.make_topic(partitions=2)
    ids = {topic: s.topic_id(topic)}
    group = s.name("g")
    log = Stored(s, OFFSETS)
    for version in (2, 5, 9, 10):
        s.call("commit", requests.commit(group, (topic, [(0, version, "m"), (1, 1, None)]), ids=ids), version)
        log.note(f"commit, version {version}")
    s.call("commit that expires", requests.commit(group, (topic, [(0, 5, "")]), retention_time_ms=1_000_000), 4)
    log.note("commit that expires")
    for version, commit in ((3, True), (5, False), (5, True), (6, True)):
        p = producer(s, f"t-{version}-{commit}")
        if version == 3:
            s.ask(add_offsets(p, group), 3)
        s.call("in a transaction", commit_offsets(p, group, (topic, [(1, 20), (0, 21)]), ids=ids), version)
        log.note(f"in a transaction, version {version}")
        until_ended(s, p, commit=commit, version=4 if version == 3 else 5)
        s.until(
            lambda: all(
                each.error_code == 0
                for each in s.ask(requests.fetch(group, (topic, [0, 1]), version=8, require_stable=True), 8)
                .groups[0]
                .topics[0]
                .partitions
            ),
            "the marker has come",
        )
        log.note(f"{'committed' if commit else 'aborted'}, version {version}", markers=True)
    s.call(
        "delete one",
        OffsetDeleteRequest(
            group_id=group,
            topics=[OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        ),
    )
    log.note("delete one")
    s.call("delete the group", DeleteGroupsRequest(groups_names=[group]))
    log.note("delete the group")


def records_of_classic_groups(s: Session) -> None:
    """__consumer_offsets: a classic group with one member, with a static one, deleted."""
    s.until_coordinator()
    group = s.name("g")
    log = Stored(s, OFFSETS)
    one = s.call("join", requests.join(group, "", 3), 3)
    log.note("join")
    s.call("sync", requests.sync(group, one.generation_id, one.member_id, {one.member_id: b"mine"}), 3)
    log.note("sync")
    s.call("join again", requests.join(group, one.member_id, 3), 3)
    log.note("join again, unchanged")
    s.call("join changed", requests.join(group, one.member_id, 3, protocols=[("range", b"other"), ("sticky", b"")]), 3)
    log.note("join changed")
    two = s.call("leave", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=one.member_id)]), 3)
    log.note("leave")
    two = s.call("a static member joins", requests.join(group, group_instance_id="i"))
    s.call(
        "it syncs",
        requests.sync(group, two.generation_id, two.member_id, {two.member_id: b"A"}, group_instance_id="i", **NAMING),
    )
    log.note("a static member")
    s.call("it is replaced", requests.join(group, group_instance_id="i"))
    log.note("replaced")
    leaving = MemberIdentity(member_id="", group_instance_id="i")
    s.call("it leaves", LeaveGroupRequest(group_id=group, members=[leaving]))
    log.note("it leaves")
    s.call("delete", DeleteGroupsRequest(groups_names=[group]))
    log.note("delete")


def records_of_consumer_groups(s: Session) -> None:
    """__consumer_offsets: the records of KIP-848 at every step of a group's life."""
    s.until_coordinator()
    topic, other = assignable(s, "a", partitions=4), assignable(s, "b", partitions=1)
    ids = s.topic_id(topic)
    group = s.name("g")
    log = Stored(s, OFFSETS)

    def told(label: str, member: str, epoch: int, owned: list[int] | None = None, **fields: object) -> int:
        request = beat(group, member, epoch, None if owned is None else [(ids, owned)], **fields)
        answer = s.call(label, request)
        log.note(label)
        return int(answer.member_epoch)

    one = s.call("one joins", join(group, "one", [topic], rack_id="r")).member_epoch
    log.note("one joins")
    one = told("one owns", "one", one, [0, 1, 2, 3])
    two = s.call("two joins", join(group, "two", [topic], instance_id="i", server_assignor="uniform")).member_epoch
    log.note("two joins")
    one = told("one is told to revoke", "one", one, [0, 1, 2, 3])
    one = told("one has revoked", "one", one, [0, 1])
    two = told("two is told", "two", two, [])
    two = told("two owns", "two", two, [2, 3])
    one = told("one subscribes to more", "one", one, subscribed_topic_names=[topic, other])
    one = told("one has another timeout", "one", one, rebalance_timeout_ms=12_345)
    one = told("one has another rack", "one", one, rack_id="q")
    one = told("one wishes for range", "one", one, server_assignor="range")
    told("two goes away", "two", LEAVE_STATIC, instance_id="i")
    two = s.call("another comes for it", join(group, "three", [topic], instance_id="i")).member_epoch
    log.note("another comes for it")
    told("it leaves", "three", LEAVE, instance_id="i")
    told("one leaves", "one", LEAVE)
    s.call("commit", requests.commit(group, (topic, [(0, 1, "")])), 8)
    log.note("commit")
    s.call("delete", DeleteGroupsRequest(groups_names=[group]))
    log.note("delete")


def records_of_patterns(s: Session) -> None:
    """__consumer_offsets: a subscription by a regular expression, resolved and given up; a member that is silent."""
    s.until_coordinator()
    assignable(s, "x-1", partitions=2)
    group = s.name("g")
    set_group_config(s, group, consumer_session_timeout_ms="1000", consumer_heartbeat_interval_ms="250")
    log = Stored(s, OFFSETS)
    epoch = s.call("join", join(group, "one", None, subscribed_topic_regex=s.name("x-.*"))).member_epoch

    def assigned() -> bool:
        nonlocal epoch
        answer = s.ask(beat(group, "one", epoch))
        epoch = answer.member_epoch
        return bool(answer.assignment is not None and answer.assignment.topic_partitions)

    s.until(assigned, "the pattern is resolved")
    log.note("resolved")

    def gone() -> bool:
        return not s.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups[0].members

    s.until(gone, "the silent member is gone")
    log.note("silent")


def records_of_migrations(s: Session) -> None:
    """__consumer_offsets: a classic group becomes a consumer group and a classic one again."""
    s.until_coordinator()
    topic = assignable(s, partitions=2)
    ids = s.topic_id(topic)
    group = s.name("g")
    log = Stored(s, OFFSETS)
    classic = Classic(s, group, "classic", [topic])
    classic.join()
    classic.sync({classic.member: assignment([(topic, [0, 1])])})
    log.note("classic")
    modern = s.call("modern joins", join(group, "modern", [topic])).member_epoch
    log.note("upgraded")
    classic.beat()
    requests.join(" again")
    log.note("the classic one joins again")
    classic.sync(label=" again")
    log.note("the classic one syncs")
    requests.join(" without the other half")
    classic.sync(label=" without the other half")
    log.note("the classic one has revoked")
    s.call("modern beats", beat(group, "modern", modern, [(ids, [])]))
    log.note("modern is told")
    s.call("modern leaves", beat(group, "modern", LEAVE))
    log.note("downgraded")
    requests.join(" alone")
    log.note("the classic one joins alone")
    classic.sync({classic.member: assignment([(topic, [0, 1])])}, " alone")
    log.note("the classic one syncs alone")
    classic.leave()
    log.note("empty")
    s.call("modern takes it over", join(group, "modern", [topic]))
    log.note("taken over")
    s.call("modern leaves again", beat(group, "modern", LEAVE))
    classic = Classic(s, group, "another", [topic])
    classic.join()
    log.note("taken over by a classic one")


SCRIPTS = (
    records_of_transactions,
    records_of_offsets,
    records_of_classic_groups,
    records_of_consumer_groups,
    records_of_patterns,
    records_of_migrations,
)
