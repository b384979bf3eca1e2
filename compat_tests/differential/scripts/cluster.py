"""The cluster, its quorum and features, and the answers of a node without quotas, credentials or ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compat_tests.differential.session import Session
from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker_wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pykbroker_wire.messages.describe_acls import DescribeAclsRequest
from pykbroker_wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from pykbroker_wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from pykbroker_wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from pykbroker_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.list_config_resources import ListConfigResourcesRequest
from pykbroker_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from pykbroker_wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from pykbroker_wire.messages.unregister_broker import UnregisterBrokerRequest
from pykbroker_wire.messages.unregister_controller import UnregisterControllerRequest
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


def describe_cluster(s: Session) -> None:
    """DescribeCluster: brokers, controllers, endpoint types, authorised operations."""
    s.each("plain", lambda v: DescribeClusterRequest())
    s.each("operations", lambda v: DescribeClusterRequest(include_cluster_authorized_operations=True))
    for endpoint_type in (2, 0, 3, -1):
        s.each(
            f"endpoint type {endpoint_type}",
            lambda v, kind=endpoint_type: DescribeClusterRequest(endpoint_type=kind),  # type: ignore[misc]
        )
    s.each("fenced too", lambda v: DescribeClusterRequest(include_fenced_brokers=True))
    s.each("fenced controllers", lambda v: DescribeClusterRequest(include_fenced_brokers=True, endpoint_type=2))


def describe_quorum(s: Session) -> None:
    """DescribeQuorum: the metadata partition, and partitions that are none of the quorum's."""

    def ask(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
        return DescribeQuorumRequest(
            topics=[
                RequestTopicData(
                    topic_name=name, partitions=[RequestPartitionData(partition_index=i) for i in partitions]
                )
                for name, partitions in topics
            ]
        )

    s.each("the quorum", lambda v: ask(("__cluster_metadata", [0])))
    s.each("another partition", lambda v: ask(("__cluster_metadata", [1])))
    s.each("two partitions", lambda v: ask(("__cluster_metadata", [0, 1])))
    s.each("the same partition twice", lambda v: ask(("__cluster_metadata", [0, 0])))
    s.each("another topic", lambda v: ask(("no-such-topic", [0])))
    s.each("two topics", lambda v: ask(("__cluster_metadata", [0]), ("other", [0])))
    s.each("no topics", lambda v: ask())
    s.each("no partitions", lambda v: ask(("__cluster_metadata", [])))


def update_features(s: Session) -> None:
    """UpdateFeatures: nothing that changes a feature, everything that is refused."""

    def ask(*updates: FeatureUpdateKey, validate_only: bool = False) -> UpdateFeaturesRequest:
        return UpdateFeaturesRequest(timeout_ms=10000, feature_updates=list(updates), validate_only=validate_only)

    s.each("nothing", lambda v: ask())
    s.each("nothing, validated", lambda v: ask(validate_only=True))
    s.each("unknown feature", lambda v: ask(FeatureUpdateKey(feature="no.such.feature", max_version_level=1)))
    s.each("unknown feature to 0", lambda v: ask(FeatureUpdateKey(feature="no.such.feature", max_version_level=0)))
    s.each("empty name", lambda v: ask(FeatureUpdateKey(feature="", max_version_level=1)))
    for level in (30, 34, 99, 0, -1, 6):
        s.each(
            f"metadata.version {level}",
            lambda v, level=level: ask(
                FeatureUpdateKey(feature="metadata.version", max_version_level=level), validate_only=v > 0
            ),  # type: ignore[misc]
            [0, 1, 2] if level not in (0, -1) else [1, 2],
        )
    for kind in (0, 1, 2, 3, 9):
        s.each(
            f"metadata.version down, upgrade type {kind}",
            lambda v, kind=kind: ask(  # type: ignore[misc]
                FeatureUpdateKey(feature="metadata.version", max_version_level=20, upgrade_type=kind),
                validate_only=True,
            ),
        )
    s.each(
        "metadata.version down, allowed the old way",
        lambda v: ask(FeatureUpdateKey(feature="metadata.version", max_version_level=34, allow_downgrade=True)),
    )
    s.each(
        "kraft.version as it is",
        lambda v: ask(FeatureUpdateKey(feature="kraft.version", max_version_level=1), validate_only=v > 0),
    )
    s.each(
        "kraft.version 2",
        lambda v: ask(FeatureUpdateKey(feature="kraft.version", max_version_level=2), validate_only=v > 0),
    )
    s.each(
        "kraft.version down",
        lambda v: ask(
            FeatureUpdateKey(feature="kraft.version", max_version_level=0, upgrade_type=3), validate_only=v > 0
        ),
    )
    s.each(
        "one good, one bad",
        lambda v: ask(
            FeatureUpdateKey(feature="metadata.version", max_version_level=30),
            FeatureUpdateKey(feature="no.such.feature", max_version_level=1),
            validate_only=v > 0,
        ),
    )
    s.each(
        "the same feature twice",
        lambda v: ask(
            FeatureUpdateKey(feature="metadata.version", max_version_level=30),
            FeatureUpdateKey(feature="metadata.version", max_version_level=29),
            validate_only=v > 0,
        ),
    )


def other_features(s: Session) -> None:
    """UpdateFeatures of transaction.version and group.version: up, down, and the answers to clients afterwards."""

    def ask(name: str, level: int, kind: int = 1, *, validate_only: bool = False) -> UpdateFeaturesRequest:
        update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        return UpdateFeaturesRequest(timeout_ms=10000, feature_updates=[update], validate_only=validate_only)

    for name, highest in (("transaction.version", 2), ("group.version", 1)):
        for level in (highest, highest + 1, -1, 100):
            for kind in (1, 2, 3):
                s.call(f"{name} {level}, kind {kind}", ask(name, level, kind, validate_only=True), 1)
        s.call(f"{name} down as an upgrade", ask(name, 0))
        for level, kind in ((highest - 1, 2), (highest, 3), (0, 3), (0, 2), (highest, 1)):
            s.call(f"{name} to {level}, kind {kind}", ask(name, level, kind), 2)
            s.until_published()
            found = s.ask(ApiVersionsRequest(client_software_name="differential", client_software_version="1"), 4)
            s.note(
                f"finalised after {name} {level}",
                sorted([one.name, one.max_version_level, one.min_version_level] for one in found.finalized_features),
            )
    both = [
        FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=1),
        FeatureUpdateKey(feature="transaction.version", max_version_level=3, upgrade_type=1),
    ]
    s.each("one good, one bad", lambda v: UpdateFeaturesRequest(timeout_ms=10000, feature_updates=both))


def elect_leaders(s: Session) -> None:
    """ElectLeaders: elections that are not needed, not possible, or not elections."""
    topic = s.make_topic(partitions=2)

    def ask(kind: int, *topics: tuple[str, list[int]]) -> ElectLeadersRequest:
        return ElectLeadersRequest(
            election_type=kind,
            timeout_ms=10000,
            topic_partitions=[TopicPartitions(topic=name, partitions=list(ps)) for name, ps in topics],
        )

    s.each("preferred, not needed", lambda v: ask(0, (topic, [0, 1])))
    s.each("unclean, not needed", lambda v: ask(1, (topic, [0])), [1, 2])
    s.each("election type 7", lambda v: ask(7, (topic, [0])), [1, 2])
    s.each("unknown partition", lambda v: ask(0, (topic, [5])))
    s.each("unknown topic", lambda v: ask(0, ("no-such-topic", [0])))
    s.each("negative partition", lambda v: ask(0, (topic, [-1])))
    s.each("bad name", lambda v: ask(0, ("a/b", [0])))
    s.each("the same partition twice", lambda v: ask(0, (topic, [0, 0])))
    s.each("no partitions", lambda v: ask(0, (topic, [])))
    s.each("no topics", lambda v: ask(0))
    for version in range(3):
        s.call("all", ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10000), version)
        s.only_mine()


def list_reassignments(s: Session) -> None:
    """ListPartitionReassignments of a cluster that reassigns nothing."""
    topic = s.make_topic(partitions=2)

    def ask(*topics: tuple[str, list[int]]) -> ListPartitionReassignmentsRequest:
        return ListPartitionReassignmentsRequest(
            timeout_ms=10000,
            topics=[ListPartitionReassignmentsTopics(name=name, partition_indexes=list(ps)) for name, ps in topics],
        )

    s.call("all", ListPartitionReassignmentsRequest(timeout_ms=10000, topics=None))
    s.call("none", ask())
    s.call("a topic", ask((topic, [0, 1])))
    s.call("a topic without partitions", ask((topic, [])))
    s.call("unknown", ask(("no-such-topic", [0]), (topic, [9, -1])))
    s.call("bad name", ask(("a/b", [0])))
    s.call("no time", ListPartitionReassignmentsRequest(timeout_ms=0, topics=None))


def alter_reassignments(s: Session) -> None:
    """AlterPartitionReassignments that change nothing, cannot be, or cancel what is not under way."""
    topic = s.make_topic(partitions=2)

    def ask(
        *topics: tuple[str, list[tuple[int, list[int] | None]]], may_change_factor: bool = True
    ) -> AlterPartitionReassignmentsRequest:
        return AlterPartitionReassignmentsRequest(
            timeout_ms=10000,
            allow_replication_factor_change=may_change_factor,
            topics=[
                ReassignableTopic(
                    name=name,
                    partitions=[ReassignablePartition(partition_index=i, replicas=replicas) for i, replicas in wanted],
                )
                for name, wanted in topics
            ],
        )

    s.each("as it is", lambda v: ask((topic, [(0, [1]), (1, [1])])))
    s.each("cancel nothing", lambda v: ask((topic, [(0, None)])))
    s.each("no replicas", lambda v: ask((topic, [(0, [])])))
    s.each("a replica twice", lambda v: ask((topic, [(0, [1, 1])])))
    s.each("an unknown broker", lambda v: ask((topic, [(0, [1, 77])])))
    s.each("a negative broker", lambda v: ask((topic, [(0, [-1])])))
    s.each("a partition twice", lambda v: ask((topic, [(0, [1]), (0, [])])))
    s.each("unknown partitions", lambda v: ask((topic, [(9, [1]), (-1, None)])))
    s.each("unknown topics", lambda v: ask(("no-such-topic", [(0, [1])]), ("a/b", [(0, None)])))
    s.each("no partitions", lambda v: ask((topic, [])))
    s.each("no topics", lambda v: ask())
    s.each("as many", lambda v: ask((topic, [(0, [1])]), may_change_factor=False), [1])
    s.each("not as many", lambda v: ask((topic, [(0, [])]), (topic, [(1, [1, 77])]), may_change_factor=False), [1])


def unregister(s: Session) -> None:
    """UnregisterBroker of brokers that are not there, and UnregisterController, for which the level is too low."""
    for node_id in (77, -1):
        s.each(f"broker {node_id}", lambda v, wanted=node_id: UnregisterBrokerRequest(broker_id=wanted))  # type: ignore[misc]
        asked = UnregisterControllerRequest(controller_id=node_id)
        s.each(f"controller {node_id}", lambda v, asked=asked: asked)  # type: ignore[misc]


def add_and_remove_voter(s: Session) -> None:
    """AddRaftVoter and RemoveRaftVoter of another cluster: refused before anything is done."""
    none = bytes(16)
    s.each(
        "add a voter",
        lambda v: AddRaftVoterRequest(cluster_id="another", timeout_ms=1_000, voter_id=77, voter_directory_id=none),
    )
    s.each(
        "remove a voter",
        lambda v: RemoveRaftVoterRequest(cluster_id="another", voter_id=77, voter_directory_id=none),
    )


def client_quotas(s: Session) -> None:
    """DescribeClientQuotas where there are none."""

    def ask(*components: ComponentData, strict: bool = False) -> DescribeClientQuotasRequest:
        return DescribeClientQuotasRequest(components=list(components), strict=strict)

    s.each("all", lambda v: ask())
    s.each("all, strict", lambda v: ask(strict=True))
    for entity in ("user", "client-id", "ip", "", "group"):
        s.each(f"{entity!r} exactly", lambda v, e=entity: ask(ComponentData(entity_type=e, match_type=0, match="x")))  # type: ignore[misc]
        s.each(f"{entity!r} default", lambda v, e=entity: ask(ComponentData(entity_type=e, match_type=1)))  # type: ignore[misc]
        s.each(f"{entity!r} any", lambda v, e=entity: ask(ComponentData(entity_type=e, match_type=2), strict=True))  # type: ignore[misc]
    s.each("exactly null", lambda v: ask(ComponentData(entity_type="user", match_type=0)))
    s.each("default with a name", lambda v: ask(ComponentData(entity_type="user", match_type=1, match="x")))
    s.each("match type 3", lambda v: ask(ComponentData(entity_type="user", match_type=3, match="x")))
    s.each("the same type twice", lambda v: ask(*[ComponentData(entity_type="user", match_type=2)] * 2))
    s.each("user and ip", lambda v: ask(*[ComponentData(entity_type=kind, match_type=2) for kind in ("user", "ip")]))
    s.each(
        "user and client-id",
        lambda v: ask(*[ComponentData(entity_type=kind, match_type=2) for kind in ("user", "client-id")]),
    )


def scram_credentials(s: Session) -> None:
    """DescribeUserScramCredentials where there are none, then AlterUserScramCredentials: refused, done and undone."""

    def ask(*names: str) -> DescribeUserScramCredentialsRequest:
        return DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])

    s.call("all", DescribeUserScramCredentialsRequest(users=None))
    s.call("none named", ask())
    s.call("unknown", ask("alice"))
    s.call("two unknown", ask("alice", "bob"))
    s.call("the same twice", ask("alice", "alice"))
    s.call("the same three times and another", ask("alice", "bob", "alice", "alice"))
    s.call("empty name", ask(""))

    def put(name: str, mechanism: int, iterations: int = 4096) -> ScramCredentialUpsertion:
        return ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=bytes(16), salted_password=bytes(32)
        )

    def change(*upsertions: ScramCredentialUpsertion, without: Sequence[int] = ()) -> AlterUserScramCredentialsRequest:
        deletions = [ScramCredentialDeletion(name="carol", mechanism=mechanism) for mechanism in without]
        return AlterUserScramCredentialsRequest(deletions=deletions, upsertions=list(upsertions))

    s.call("nothing", change())
    s.call("delete one that is not there", change(without=[1]))
    s.call("delete two that are not there", change(without=[1, 2]))
    s.call("delete by mechanism 3", change(without=[3]))
    s.call("too few iterations", change(put("carol", 1, 4095)))
    s.call("too many iterations", change(put("carol", 1, 16_385)))
    s.call("mechanism 0", change(put("carol", 0)))
    s.call("without a name", change(put("", 1)))
    s.call("both mechanisms at once", change(put("carol", 1), put("carol", 2)))
    s.call("deleted and put", change(put("carol", 1), without=[1]))
    s.call("put", change(put("carol", 1)))
    s.call("put again", change(put("carol", 1, 8192)))
    s.call("put and another deleted", change(put("carol", 2), without=[1]))
    s.call("delete", change(without=[1]))
    s.call("delete again", change(without=[1]))


UNKNOWN = 0  # in an ACL: Kafka throws while it reads the request, and closes the connection


def acls(s: Session) -> None:
    """The ACL requests of a cluster without an authorizer."""
    describe: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    s.each("describe all", lambda v: DescribeAclsRequest(**describe, pattern_type_filter=3 if v == 0 else 1))
    s.each("describe literal", lambda v: DescribeAclsRequest(**describe))
    for field, value in (
        ("resource_type_filter", 99),
        ("operation", 99),
        ("permission_type", 99),
        ("resource_type_filter", 0),
        ("pattern_type_filter", 99),
        ("pattern_type_filter", 0),
        ("operation", 0),
        ("permission_type", 0),
    ):
        s.each(
            f"describe {field} {value}",
            lambda v, f=field, n=value: DescribeAclsRequest(**{**describe, f: n}),  # type: ignore[misc]
            closes=value == UNKNOWN,
        )
    acl: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "x",
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    s.each("create", lambda v: CreateAclsRequest(creations=[AclCreation(**acl)]))
    s.each(
        "create two",
        lambda v: CreateAclsRequest(creations=[AclCreation(**acl), AclCreation(**{**acl, "operation": 4})]),
    )
    s.each("create none", lambda v: CreateAclsRequest())
    for field, wrong in (
        ("principal", "alice"),
        ("operation", 99),
        ("operation", 1),
        ("permission_type", 1),
        ("resource_type", 1),
        ("resource_name", ""),
        ("operation", 0),
        ("permission_type", 0),
        ("resource_type", 0),
        ("resource_pattern_type", 0),
    ):
        s.each(
            f"create {field} {wrong!r}",
            lambda v, f=field, n=wrong: CreateAclsRequest(creations=[AclCreation(**{**acl, f: n})]),  # type: ignore[misc]
            closes=wrong == UNKNOWN,
        )
    s.each("create prefixed", lambda v: CreateAclsRequest(creations=[AclCreation(**acl, resource_pattern_type=4)]))
    s.each("create pattern any", lambda v: CreateAclsRequest(creations=[AclCreation(**acl, resource_pattern_type=1)]))
    s.each("delete", lambda v: DeleteAclsRequest(filters=[DeleteAclsFilter(**describe)]))
    s.each("delete two", lambda v: DeleteAclsRequest(filters=[DeleteAclsFilter(**describe)] * 2))
    s.each("delete none", lambda v: DeleteAclsRequest())
    for field in ("operation", "permission_type", "resource_type_filter", "pattern_type_filter"):
        s.each(
            f"delete {field} 0",
            lambda v, f=field: DeleteAclsRequest(filters=[DeleteAclsFilter(**{**describe, f: UNKNOWN})]),  # type: ignore[misc]
            closes=True,
        )
    s.each(
        "delete operation 99", lambda v: DeleteAclsRequest(filters=[DeleteAclsFilter(**{**describe, "operation": 99})])
    )


def log_dirs(s: Session) -> None:
    """DescribeLogDirs: sizes, unknown topics and partitions."""
    topic = s.make_topic(partitions=2)
    s.make_records(topic, [b"a" * 100, b"b" * 200])

    def ask(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
        return DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=name, partitions=list(ps)) for name, ps in topics]
        )

    s.each("a partition", lambda v: ask((topic, [0])))
    s.each("two partitions", lambda v: ask((topic, [0, 1])))
    s.each("unknown", lambda v: ask((topic, [7]), ("no-such-topic", [0])))
    s.each("no partitions", lambda v: ask((topic, [])))
    s.each("none", lambda v: ask())
    s.each("the same twice", lambda v: ask((topic, [0, 0]), (topic, [0])))


def config_resources(s: Session) -> None:
    """ListConfigResources: every type, also those that cannot be listed."""
    s.make_topic()
    for types in ([], [2], [4], [8], [16], [32], [2, 4], [2, 2], [0], [1], [3], [99], [-1], [2, 99]):
        request = ListConfigResourcesRequest(resource_types=types)
        for version in (0, 1):
            if version == 0 and types:
                continue
            s.call(f"types {types}", request, version)
            s.only_mine()


def producer_ids(s: Session) -> None:
    """InitProducerId without a transactional id, and with one that cannot be."""
    first = InitProducerIdRequest(transactional_id=None)
    s.until(lambda: s.ask(first).error_code == 0, "producer ids are there")
    s.each("idempotent", lambda v: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
    s.each("idempotent, timeout -1", lambda v: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1))
    s.each(
        "idempotent, timeout max",
        lambda v: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1),
    )
    s.each("empty id", lambda v: InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60000))
    s.each(
        "id without epoch",
        lambda v: InitProducerIdRequest(transactional_id=None, producer_id=777_000, producer_epoch=-1),
        [3, 4, 5],
    )
    s.each(
        "epoch without id",
        lambda v: InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=7),
        [3, 4, 5],
    )
    s.each(
        "id and epoch",
        lambda v: InitProducerIdRequest(transactional_id=None, producer_id=777_000, producer_epoch=7),
        [3, 4, 5],
    )


SCRIPTS = (
    describe_cluster,
    describe_quorum,
    update_features,
    other_features,
    elect_leaders,
    list_reassignments,
    alter_reassignments,
    unregister,
    add_and_remove_voter,
    client_quotas,
    scram_credentials,
    acls,
    log_dirs,
    config_resources,
    producer_ids,
)
