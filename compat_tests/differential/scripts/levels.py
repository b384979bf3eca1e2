"""The effects of transaction.version, group.version and the policy of migrations; levels change while the node runs."""

from __future__ import annotations

from collections.abc import Callable

from compat_tests.differential.scripts import requests
from compat_tests.differential.scripts.asking import (
    add_for,
    add_offsets,
    add_partitions,
    batch,
    commit_offsets,
    end,
    init,
    producer,
    until_added,
    until_coordinator,
    until_ended,
    until_state,
    until_written,
    write,
)
from compat_tests.differential.scripts.consumers import Member, assignable, describe, join, until_assignable
from compat_tests.differential.scripts.migration import NAMING, Classic, assignment, subscription
from compat_tests.differential.session import Session
from compat_tests.differential.stored import OFFSETS, TRANSACTIONS, Stored
from pykbroker.metadata.features import METADATA_VERSION
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.list_groups import ListGroupsRequest
from pykbroker_wire.messages.unregister_controller import UnregisterControllerRequest
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


def _set_level(s: Session, name: str, level: int, upgrade_type: int = 1) -> None:
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    s.call(f"{name} {level}", UpdateFeaturesRequest(timeout_ms=20_000, feature_updates=[update]))

    def seen() -> bool:
        found = s.ask(ApiVersionsRequest(client_software_name="d", client_software_version="1"), 3)
        levels = {each.name: each.max_version_level for each in found.finalized_features}
        return bool(levels.get(name, 0) == level)

    s.until(seen, f"{name} is {level}")
    s.call("features", ApiVersionsRequest(client_software_name="d", client_software_version="1"), 3)


def transaction_levels(s: Session) -> None:
    """The same transactions at transaction.version 0, 1 and 2: what is verified, which epochs, which records."""
    s.until_coordinator()
    until_coordinator(s)
    topic = s.make_topic(partitions=3)
    for number, level in enumerate((0, 1, 2, 1)):
        if number:
            _set_level(s, "transaction.version", level, upgrade_type=2 if number == 3 else 1)
        _at_level(s, topic, f"{level}{' again' if number == 3 else ''}", level)


def _at_level(s: Session, topic: str, at: str, level: int) -> None:
    states, offsets = Stored(s, TRANSACTIONS), Stored(s, OFFSETS)
    name = f"at-{at.replace(' ', '-')}"
    # Requests that report version 2. Each has its own producer, because Kafka never ends a transaction that it cannot
    # write.
    for version in (11, 12, 13):
        p = producer(s, f"{name}-produce-{version}")
        s.call(f"{at}: not added", write(s, p, topic, (0, batch(p))), version)
        s.call(f"{at}: described", DescribeTransactionsRequest(transactional_ids=[p.name]))
        if level and s.ask(end(p, commit=False), 4).error_code == 0:
            until_state(s, p.name, "CompleteAbort")
    p = producer(s, f"{name}-offsets")
    s.call(f"{at}: offsets not added", commit_offsets(p, s.name(name), (topic, [(0, 1)])), 4)
    s.call(f"{at}: offsets not added, version 5", commit_offsets(p, s.name(name), (topic, [(0, 1)])), 5)
    if level and s.ask(end(p, commit=False), 4).error_code == 0:
        until_state(s, p.name, "CompleteAbort")
    p = producer(s, f"{name}-ends")
    until_added(s, p, (topic, [0]))
    answer = s.call(f"{at}: commit, version 5", end(p), 5)
    if answer is not None and answer.error_code == 0:
        until_state(s, p.name, "CompleteCommit")
        s.call(f"{at}: commit again", end(p), 5)
        p.take(answer)
        s.call(f"{at}: abort of nothing", end(p, commit=False), 5)
        until_state(s, p.name, "CompleteCommit", "CompleteAbort")
    s.call(f"{at}: described, version 5", DescribeTransactionsRequest(transactional_ids=[p.name]))
    # And requests that do not.
    p = producer(s, name)
    until_added(s, p, (topic, [1, 2]))
    until_written(s, p, topic, (1, batch(p)), (2, batch(p)), version=11)
    for version in (4, 5):
        s.call(f"{at}: verify", add_for((p, [(topic, [1])], True)), version)
        s.call(f"{at}: verify what is not there", add_for((p, [(topic, [0])], True)), version)
    s.call(f"{at}: add offsets", add_offsets(p, s.name(name)), 4)
    s.call(f"{at}: offsets", commit_offsets(p, s.name(name), (topic, [(0, 1)])), 4)
    s.call(f"{at}: an older epoch ends", end(p.older()), 4)
    s.call(f"{at}: commit", end(p), 4)
    until_state(s, p.name, "CompleteCommit")
    s.call(f"{at}: described, ended", DescribeTransactionsRequest(transactional_ids=[p.name]))
    s.call(f"{at}: asks who it is", init(p.name, producer_id=p.id, producer_epoch=p.epoch))
    s.call(f"{at}: an older one adds", add_partitions(p, (topic, [0])), 3)
    p = producer(s, name)
    until_added(s, p, (topic, [2]))
    until_written(s, p, topic, (2, batch(p)), version=11)
    until_ended(s, p, commit=False, version=4)
    states.note(f"{at}: states")
    offsets.note(f"{at}: offsets", markers=True)


def group_levels(s: Session) -> None:
    """group.version 0 and 1: who may join how. The policy of migrations is `disabled`."""
    s.until_coordinator()
    topic = s.make_topic(partitions=2)
    group, classic = s.name("g"), s.name("classic")
    joined = requests.joined(s, "a classic member joins", classic, protocols=[("range", subscription([topic]))])
    members = {joined.member_id: assignment([(topic, [0, 1])])}
    s.call("and syncs", requests.sync(classic, joined.generation_id, joined.member_id, members, **NAMING))
    for version in (0, 1):
        s.call("0: heartbeat", join(group, "m", [topic]), version)
        s.call("0: bad heartbeat", join("", "m", [topic]), version)
        s.call("0: describe", ConsumerGroupDescribeRequest(group_ids=[group, classic]), version)
    _set_level(s, "group.version", 1)
    until_assignable(s, topic)
    one = Member(s, group, "one")
    one.join([topic])
    one.comply()
    describe(s, "1: described", group)
    s.call("1: a classic member joins", requests.join(group, protocols=[("range", subscription([topic]))]), 9)
    Member(s, classic, "two").join([topic], " a classic group")
    s.call("1: listed", ListGroupsRequest())
    s.only_mine()
    s.call(
        "1: commit",
        requests.commit(group, (topic, [(0, 1, "")]), member_id="one", generation_id_or_member_epoch=one.epoch),
        9,
    )
    _set_level(s, "group.version", 0, upgrade_type=2)
    one.beat(" at level 0 again")
    one.leave(label=" at level 0 again")
    _set_level(s, "group.version", 1)
    one.beat(" at level 1 again")
    one.leave()


def metadata_levels(s: Session) -> None:
    """metadata.version 31 to 33: up, down, and UnregisterController, which needs 33."""
    for level in (31, 32, 33):
        _set_level(s, METADATA_VERSION, level)
        for node_id in (77, -1):
            s.call(f"{level}: controller {node_id}", UnregisterControllerRequest(controller_id=node_id))
    for level in (34, 32, 31, 30):
        for kind in (1, 2, 3):
            update = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level, upgrade_type=kind)
            request = UpdateFeaturesRequest(timeout_ms=20_000, feature_updates=[update], validate_only=True)
            s.call(f"to {level}, kind {kind}", request)
    node_id = s.ask(DescribeClusterRequest()).brokers[0].broker_id
    s.call("the active controller", UnregisterControllerRequest(controller_id=node_id))


def _migrate(s: Session) -> None:
    s.until_coordinator()
    topic = assignable(s, partitions=2)
    one = s.name("classic-first")
    classic = Classic(s, one, "classic", [topic])
    classic.join()
    classic.sync({classic.member: assignment([(topic, [0, 1])])})
    modern = Member(s, one, "modern")
    modern.join([topic], " a classic group")
    describe(s, "joined a classic group", one)
    classic.beat(" beside it")
    if modern.epoch:
        modern.leave()
        describe(s, "left it", one)
        classic.beat(" alone")
    two = s.name("consumer-first")
    modern = Member(s, two, "modern")
    modern.join([topic])
    classic = Classic(s, two, "other", [topic])
    requests.join(" a consumer group")
    describe(s, "joined by a classic one", two)
    modern.leave()
    describe(s, "left by the modern one", two)
    s.call("listed", ListGroupsRequest())
    s.only_mine()


def policy_upgrade(s: Session) -> None:
    """group.consumer.migration.policy=upgrade: a group may go one way only."""
    _migrate(s)


def policy_downgrade(s: Session) -> None:
    """group.consumer.migration.policy=downgrade: a group may go the other way only."""
    _migrate(s)


SCRIPTS = (transaction_levels, group_levels, metadata_levels)
POLICY_SCRIPTS: dict[str, tuple[Callable[[Session], None], ...]] = {
    "upgrade": (policy_upgrade,),
    "downgrade": (policy_downgrade,),
}
