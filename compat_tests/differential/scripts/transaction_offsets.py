"""Offsets in transactions: AddOffsetsToTxn, TxnOffsetCommit, and the answers of OffsetFetch during them."""

from __future__ import annotations

from functools import partial
from typing import Any

from compat_tests.differential.scripts import requests
from compat_tests.differential.scripts.asking import (
    NOBODYS_ID,
    Producer,
    add_offsets,
    commit_offsets,
    end,
    producer,
    until_coordinator,
    until_ended,
    until_state,
)
from compat_tests.differential.scripts.groups import NO_SUCH_ID
from compat_tests.differential.session import Session
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.list_groups import ListGroupsRequest
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

UNSTABLE_OFFSET_COMMIT = 88


def _described(s: Session, what: str, p: Producer) -> None:
    s.call(what, DescribeTransactionsRequest(transactional_ids=[p.name]))


def _fetched(s: Session, what: str, group: str, *topics: tuple[str, list[int]], stable: bool | None = None) -> None:
    """Compare the committed offsets for readers that require stable offsets, and for those that do not."""
    for require in (False, True) if stable is None else (stable,):
        asked = requests.fetch(group, *topics, version=8, require_stable=require, everything=not topics)
        s.call(f"{what}, stable {require}", asked, 8)


def _until_offset(s: Session, group: str, topic: str) -> None:
    """Prepare: wait until no offset is pending."""

    def stable() -> bool:
        found = s.ask(requests.fetch(group, (topic, [0]), version=8, require_stable=True), 8).groups[0]
        return all(each.error_code != UNSTABLE_OFFSET_COMMIT for each in found.topics[0].partitions)

    s.until(stable, f"{group} has no pending offsets")


def add_offsets_to_transaction(s: Session) -> None:
    """AddOffsetsToTxn: identities right and wrong, groups known and not."""
    s.until_coordinator()
    until_coordinator(s)
    for version in range(5):
        p = producer(s, f"t-{version}")
        group = s.name(f"g-{version}")
        s.call("older epoch", add_offsets(p.older(), group), version)
        s.call("newer epoch", add_offsets(p.newer(), group), version)
        s.call("another producer", add_offsets(Producer(p.name, p.id + NOBODYS_ID, p.epoch), group), version)
        s.call("unknown id", add_offsets(Producer(s.name("none"), p.id, p.epoch), group), version)
        s.call("empty id", add_offsets(Producer("", p.id, p.epoch), group), version)
        s.call("add", add_offsets(p, group), version)
        s.call("add again", add_offsets(p, group), version)
        _described(s, "described", p)
        until_ended(s, p, version=1)
        s.call("empty group", add_offsets(p, ""), version)
        _described(s, "described, the empty group", p)


def commit_offsets_in_transaction(s: Session) -> None:
    """TxnOffsetCommit: registered and not, committed, aborted; pending offsets in OffsetFetch."""
    s.until_coordinator()
    until_coordinator(s)
    topic = s.make_topic(partitions=3)
    commit = partial(commit_offsets, ids={topic: s.topic_id(topic)})
    for version in range(7):
        p = producer(s, f"t-{version}")
        group = s.name(f"g-{version}")
        s.call("not added", commit(p, group, (topic, [(0, 10)])), version)
        _described(s, "described, not added", p)
        _fetched(s, "fetch, not added", group, (topic, [0]))
        s.ask(add_offsets(p, group), 3)
        s.call("commit", commit(p, group, (topic, [(0, 10), (1, 11)])), version)
        _fetched(s, "fetch, pending", group, (topic, [0, 1, 2]))
        _fetched(s, "fetch all, pending", group)
        s.call("commit again", commit(p, group, (topic, [(0, 12)])), version)
        s.call("committed", end(p), 5 if version >= 5 else 3)
        until_state(s, p.name, "CompleteCommit")
        _until_offset(s, group, topic)
        _fetched(s, "fetch, committed", group, (topic, [0, 1, 2]))
        # A further transaction, which is aborted: the offsets from before are still returned.
        p = producer(s, f"t-{version}")
        s.ask(add_offsets(p, group), 3)
        s.call("commit what is aborted", commit(p, group, (topic, [(0, 20), (2, 22)])), version)
        _fetched(s, "fetch, pending again", group, (topic, [0, 1, 2]))
        s.call("a plain commit beside it", requests.commit(group, (topic, [(1, 99, "")])), 8)
        _fetched(s, "fetch, pending and plain", group, (topic, [0, 1, 2]))
        s.call("aborted", end(p, commit=False), 5 if version >= 5 else 3)
        until_state(s, p.name, "CompleteAbort")
        _until_offset(s, group, topic)
        _fetched(s, "fetch, aborted", group, (topic, [0, 1, 2]))
    s.each(
        "stable in each version",
        lambda v: requests.fetch(group, (topic, [0]), version=v, require_stable=True),
        range(7, 10),
    )


def bad_offset_commits(s: Session) -> None:
    """TxnOffsetCommit: what is refused."""
    s.until_coordinator()
    until_coordinator(s)
    topic = s.make_topic(partitions=2)
    commit = partial(commit_offsets, ids={topic: s.topic_id(topic), "no-such-topic": NO_SUCH_ID})
    for version in range(7):
        p = producer(s, f"t-{version}")
        group = s.name(f"g-{version}")
        s.ask(add_offsets(p, group), 3)
        one = (topic, [(0, 1)])
        s.call("older epoch", commit(p.older(), group, one), version)
        s.call("newer epoch", commit(p.newer(), group, one), version)
        s.call("another producer", commit(Producer(p.name, p.id + NOBODYS_ID, 0), group, one), version)
        s.call("nobody", commit(Producer(p.name, -1, -1), group, one), version)
        s.call("unknown id", commit(Producer(s.name("none"), p.id, p.epoch), group, one), version)
        s.call("empty id", commit(Producer("", p.id, p.epoch), group, one), version)
        s.call("empty group", commit(p, "", one), version)
        s.call("another group", commit(p, s.name(f"other-{version}"), one), version)
        s.call("unknown topic", commit(p, group, ("no-such-topic", [(0, 1)]), one), version)
        s.call("unknown partition", commit(p, group, (topic, [(7, 1), (0, 1), (-1, 1)])), version)
        s.call("no topics", commit(p, group), version)
        s.call("no partitions", commit(p, group, (topic, [])), version)
        s.call("twice", commit(p, group, (topic, [(0, 1), (0, 2)]), (topic, [(0, 3)])), version)
        s.call("offset -5", commit(p, group, (topic, [(1, -5)])), version)
        s.call("no metadata", commit(p, group, one, metadata=None), version)
        s.call("metadata of 4097", commit(p, group, one, metadata="x" * 4097), version)
        if version >= 3:
            for what, fields in (
                ("a generation", {"generation_id_or_member_epoch": 7}),
                ("a member", {"member_id": "ghost"}),
                ("both", {"generation_id_or_member_epoch": 7, "member_id": "ghost"}),
                ("an instance", {"group_instance_id": "i"}),
                (
                    "an instance and a member",
                    {"group_instance_id": "i", "member_id": "ghost", "generation_id_or_member_epoch": 7},
                ),
            ):
                s.call(f"{what}, nobody there", commit(p, group, one, **fields), version)
        until_ended(s, p, version=1)
        _until_offset(s, group, topic)
        _fetched(s, "what is committed", group, (topic, [0, 1]), stable=True)


def commit_offsets_of_members(s: Session) -> None:
    """TxnOffsetCommit of a group with a member: right and wrong generations, members, instances."""
    s.until_coordinator()
    until_coordinator(s)
    topic = s.make_topic()
    commit = partial(commit_offsets, ids={topic: s.topic_id(topic)})
    for version in (2, 3, 4, 5, 6):
        p = producer(s, f"t-{version}")
        group = s.name(f"g-{version}")
        joined = requests.joined(s, "join", group, group_instance_id="i")
        member, generation = joined.member_id, joined.generation_id
        naming = {"protocol_type": "consumer", "protocol_name": "range", "group_instance_id": "i"}
        s.ask(add_offsets(p, group), 3)
        one = (topic, [(0, version)])
        me: dict[str, Any] = {
            "generation_id_or_member_epoch": generation,
            "member_id": member,
            "group_instance_id": "i",
        }
        cases: list[tuple[str, dict[str, Any]]] = [
            ("right", me),
            ("right, without the instance", {**me, "group_instance_id": None}),
            ("older generation", {**me, "generation_id_or_member_epoch": generation - 1}),
            ("newer generation", {**me, "generation_id_or_member_epoch": generation + 1}),
            ("no generation", {**me, "generation_id_or_member_epoch": -1}),
            ("a ghost", {**me, "member_id": "ghost"}),
            ("a ghost, no instance", {**me, "member_id": "ghost", "group_instance_id": None}),
            ("an unknown instance", {**me, "group_instance_id": "j"}),
            ("nobody", {}),
        ]
        if version < 3:
            cases = [("nobody", {})]
        s.call("before sync", commit(p, group, one, **(me if version >= 3 else {})), version)
        s.call("sync", requests.sync(group, generation, member, {member: b"x"}, **naming))
        for what, fields in cases:
            s.call(what, commit(p, group, one, **fields), version)
        s.call("the group cannot be deleted", DeleteGroupsRequest(groups_names=[group]))
        leaving = MemberIdentity(member_id=member, group_instance_id="i")
        s.call("leave", LeaveGroupRequest(group_id=group, members=[leaving]))
        s.call("the group with pending offsets", DeleteGroupsRequest(groups_names=[group]))
        _fetched(s, "after it", group, (topic, [0]))
        until_ended(s, p, version=1)
        _fetched(s, "after the end", group, (topic, [0]), stable=True)


def groups_of_transactions(s: Session) -> None:
    """A group that only a transaction has made: listed, described, deleted, its offsets deleted."""
    s.until_coordinator()
    until_coordinator(s)
    topic = s.make_topic(partitions=2)
    p = producer(s)
    group = s.name("g")

    def delete(*partitions: int) -> OffsetDeleteRequest:
        wanted = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
        return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=wanted)])

    def looked_at(when: str) -> None:
        s.call(f"listed {when}", ListGroupsRequest())
        s.only_mine()
        s.call(f"described {when}", DescribeGroupsRequest(groups=[group]), 6)

    s.ask(add_offsets(p, group), 3)
    looked_at("added")
    s.call("commit", commit_offsets(p, group, (topic, [(0, 1), (1, 2)])), 3)
    looked_at("pending")
    s.call("delete a pending offset", delete(0))
    _fetched(s, "after it", group, (topic, [0, 1]))
    s.call("end", end(p), 3)
    until_state(s, p.name, "CompleteCommit")
    _until_offset(s, group, topic)
    looked_at("committed")
    _fetched(s, "committed", group, (topic, [0, 1]), stable=True)
    s.call("delete an offset", delete(1))
    s.call("delete the group", DeleteGroupsRequest(groups_names=[group]))
    looked_at("deleted")
    # Two transactions over one group, each with its own pending offsets.
    one, two = producer(s, "one"), producer(s, "two")
    for each in (one, two):
        s.ask(add_offsets(each, group), 3)
    s.call("one commits", commit_offsets(one, group, (topic, [(0, 100)])), 3)
    s.call("two commits the same", commit_offsets(two, group, (topic, [(0, 200), (1, 201)])), 3)
    s.call("two ends", end(two), 3)
    until_state(s, two.name, "CompleteCommit")
    _fetched(s, "one is pending", group, (topic, [0, 1]))
    s.call("one ends", end(one), 3)
    until_state(s, one.name, "CompleteCommit")
    _until_offset(s, group, topic)
    _fetched(s, "both are committed", group, (topic, [0, 1]))


SCRIPTS = (
    add_offsets_to_transaction,
    commit_offsets_in_transaction,
    bad_offset_commits,
    commit_offsets_of_members,
    groups_of_transactions,
)
