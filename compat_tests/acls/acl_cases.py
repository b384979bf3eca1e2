"""The matrix: for each API a valid request, and the kinds of resources on which it asks the authorizer.

Each request names resources that are `mine`, to which the rules of a client apply, and those that are `other`, to which
they do not apply. Its answer is the same however often it is sent. A request with an effect either changes nothing
(validate_only, things that do not exist, old epochs), or both nodes change alike. An API that asks for a permission
only in some cases has a row for each case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from compat_tests.differential.session import NOW_MS
from pykbroker.dispatch.rows import On
from pykbroker.security.authorizer import Resource
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.records.batch import build_batch

TOPIC, GROUP, CLUSTER, TXN = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER, Resource.TRANSACTIONAL_ID
MINE, OTHER, MISSING = "mine", "other", "mine.missing"
#: Records are written to these, and the topics that are read stay as they are.
MINE_WRITTEN, OTHER_WRITTEN = "mine.written", "other.written"
#: Deleted by clients with the permission, and created again.
DOOMED = "mine.doomed"
TOPICS: Final = (MINE, OTHER, MINE_WRITTEN, OTHER_WRITTEN)
#: A group of the consumer protocol with one member, subscribed to MINE and OTHER.
MINE_NEW = "mine.consumers"
#: A share group with one member, subscribed to MINE and OTHER.
MINE_SHARED = "mine.sharers"
#: A share group with offsets of MINE and OTHER, and without members.
MINE_EMPTY = "mine.emptied"
METADATA_LOG = "__cluster_metadata"
METADATA_ID = bytes(15) + b"\x01"
ELSEWHERE = "AAAAAAAAAAAAAAAAAAAAAA"
#: The time in all rows, the same on both nodes.
TIME_MS = NOW_MS
RECORDS = build_batch([(b"k", b"v", [], TIME_MS)])
IDEMPOTENT = build_batch([(b"k", b"v", [], TIME_MS)], producer_id=7_000_000, producer_epoch=0, base_sequence=0)
TRANSACTIONAL = build_batch(
    [(b"k", b"v", [], TIME_MS)], producer_id=7_000_000, producer_epoch=0, base_sequence=0, transactional=True
)
#: Stands in a request for the name of the client (a topic of its own).
CLIENT = "‹client›"
#: Prefix in a request for a uuid: that of a topic, by its name.
ID = "id:"

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """`resources`: the kinds on which rules change the answer; if empty, the API asks for no permission. `on`:
    listeners; by default all that serve the API. `from_version`: the first version that has the subject of the row.
    `doomed`: DOOMED exists each time. `alone`: on a connection that is not used again. `own_records`: a read of the
    metadata log, for which the test compares only whether it succeeded. `kafka_fails`: the reason why Apache Kafka
    4.3.1 answers UNKNOWN_SERVER_ERROR to clients with permission; pykbroker has an answer for them. `before`: a request
    of the same client that is sent each time before, in the same version, and not compared."""

    key: ApiKey
    values: Values
    resources: tuple[Resource, ...] = ()
    what: str = ""
    on: On = On.BOTH
    from_version: int = 0
    doomed: bool = False
    alone: bool = False
    own_records: bool = False
    kafka_fails: str = ""
    before: tuple[ApiKey, Values] | None = None

    @property
    def name(self) -> str:
        return f"{self.key.name.lower()}{'-' if self.what else ''}{self.what.replace(' ', '-')}"


def _written(records: bytes, transactional_id: str | None = None) -> Values:
    partition = [{"index": 0, "records": records}]
    topics = [{"name": name, "topic_id": f"id:{name}", "partition_data": partition} for name in TOPICS[2:]]
    return {"transactional_id": transactional_id, "acks": 1, "timeout_ms": 10_000, "topic_data": topics}


def _fetched(topic: str, topic_id: str | bytes, **more: Any) -> Values:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {"topic": topic, "topic_id": topic_id, "partitions": [{**partition, **more}]}


_COMMITTED = [
    {
        "name": name,
        "topic_id": f"id:{name}",
        "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
    }
    for name in (MINE, OTHER)
]
_OLD_OFFSETS = [{"name": name, "partition_indexes": [0]} for name in (MINE, OTHER)]
_OFFSETS = [{"name": name, "topic_id": f"id:{name}", "partition_indexes": [0]} for name in (MINE, OTHER)]
_QUORUM = {"partition_index": 0, "leader_id": 1, "leader_epoch": 1}
_ADDED = [{"name": name, "partitions": [0]} for name in (MINE, OTHER)]
_SUBSCRIBED = {"group_id": MINE, "member_id": "gone", "generation_id": 1}
_MEMBER = {"group_id": MINE_NEW, "member_id": "gone", "member_epoch": 1, "rebalance_timeout_ms": 1000}
_SHARER = {"group_id": MINE_SHARED, "member_id": "gone", "member_epoch": 1}
_SHARED = [{"topic_name": name, "partitions": [0]} for name in (MINE, OTHER)]
_PRODUCER = {"transactional_id": MINE, "producer_id": 7_000_000, "producer_epoch": 0}
_TWO = [{"name": MINE}, {"name": OTHER}, {"name": MISSING}]
_ACL = {"resource_type": TOPIC, "resource_pattern_type": 3, "host": "*", "operation": 3, "permission_type": 3}
_ACLS = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def _configs(kind: int, *names: str, **config: str | int) -> Values:
    """Return configs by their names; without an operation, the value is set."""
    resources = [{"resource_type": kind, "resource_name": name, "configs": [config]} for name in names]
    return {"resources": resources, "validate_only": True}


def _described(kind: int, *names: str, key: str) -> Values:
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": [key]} for name in names]
    return {"resources": resources, "include_synonyms": False, "include_documentation": False}


K = ApiKey
CASES: Final[tuple[Case, ...]] = (
    # Records.
    Case(
        K.FETCH,
        {"max_bytes": 1 << 20, "topics": [_fetched(n, f"id:{n}") for n in (MINE, OTHER)]},
        (TOPIC,),
        on=On.BROKER,
    ),
    Case(
        K.FETCH,
        {"max_bytes": 1 << 20, "topics": [_fetched(METADATA_LOG, METADATA_ID)]},
        (TOPIC,),
        "metadata log",
        on=On.BROKER,
    ),
    Case(
        K.FETCH,
        {
            "max_bytes": 1 << 20,
            "replica_id": 1,
            "replica_state": {"replica_id": 1},
            "topics": [_fetched(MINE, "id:mine", current_leader_epoch=7)],
        },
        (CLUSTER,),
        "as a follower",
        on=On.BROKER,
    ),
    Case(
        K.FETCH,
        {"max_bytes": 1 << 20, "topics": [_fetched(METADATA_LOG, METADATA_ID)]},
        (CLUSTER,),
        "metadata log",
        on=On.CONTROLLER,
        own_records=True,
    ),
    Case(
        K.FETCH,
        {"cluster_id": ELSEWHERE, "topics": [_fetched(METADATA_LOG, METADATA_ID)]},
        (CLUSTER,),
        "metadata log of another cluster",
        on=On.CONTROLLER,
        own_records=True,
    ),
    Case(
        K.FETCH_SNAPSHOT,
        {
            "topics": [
                {
                    "name": METADATA_LOG,
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": 0,
                            "snapshot_id": {"end_offset": 1_000_000, "epoch": 1},
                        }
                    ],
                }
            ]
        },
        (CLUSTER,),
        kafka_fails="it cannot encode the error of a partition (NullPointerException: unalignedRecords)",
    ),
    Case(
        K.FETCH_SNAPSHOT,
        {"cluster_id": ELSEWHERE, "topics": [{"name": METADATA_LOG, "partitions": [{"partition": 0}]}]},
        (CLUSTER,),
        "of another cluster",
    ),
    Case(
        K.LIST_OFFSETS,
        {
            "replica_id": -1,
            "topics": [
                {"name": n, "partitions": [{"partition_index": 0, "timestamp": -1}]} for n in (MINE, OTHER, MISSING)
            ],
        },
        (TOPIC,),
    ),
    Case(
        K.OFFSET_FOR_LEADER_EPOCH,
        {
            "replica_id": -1,
            "topics": [
                {"topic": n, "partitions": [{"partition": 0, "leader_epoch": 0}]} for n in (MINE, OTHER, MISSING)
            ],
        },
        (TOPIC, CLUSTER),
    ),
    Case(
        K.DELETE_RECORDS,
        {
            "timeout_ms": 10_000,
            "topics": [
                {"name": n, "partitions": [{"partition_index": 0, "offset": 0}]} for n in (MINE, OTHER, MISSING)
            ],
        },
        (TOPIC,),
    ),
    Case(
        K.DESCRIBE_PRODUCERS,
        {"topics": [{"name": n, "partition_indexes": [0]} for n in (MINE, OTHER, MISSING)]},
        (TOPIC,),
    ),
    # Topics.
    Case(
        K.METADATA,
        {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        },
        (TOPIC, CLUSTER),
        "all",
        from_version=1,
    ),
    Case(K.METADATA, {"topics": _TWO[:2], "allow_auto_topic_creation": False}, (TOPIC,)),
    Case(K.METADATA, {"topics": _TWO, "allow_auto_topic_creation": False}, (TOPIC,), "missing", from_version=4),
    Case(
        K.METADATA,
        {
            "topics": [{"name": None, "topic_id": f"id:{n}"} for n in (MINE, OTHER)],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
        (TOPIC,),
        "by id",
        from_version=12,
    ),
    Case(K.DESCRIBE_TOPIC_PARTITIONS, {"topics": _TWO}, (TOPIC,)),
    Case(K.DESCRIBE_TOPIC_PARTITIONS, {"topics": []}, (TOPIC,), "all"),
    Case(
        K.CREATE_TOPICS,
        {
            "validate_only": True,
            "topics": [
                {"name": n, "num_partitions": 1, "replication_factor": 1} for n in (MINE, MISSING, "other.missing")
            ],
        },
        (TOPIC, CLUSTER),
    ),
    Case(
        K.DELETE_TOPICS,
        {
            "timeout_ms": 10_000,
            "topic_names": [MISSING, "other.missing"],
            "topics": [{"name": MISSING}, {"name": "other.missing"}],
        },
        (TOPIC,),
        "missing",
    ),
    Case(
        K.DELETE_TOPICS,
        {"timeout_ms": 10_000, "topic_names": [DOOMED], "topics": [{"name": DOOMED}]},
        (TOPIC,),
        doomed=True,
    ),
    Case(
        K.DELETE_TOPICS,
        {"timeout_ms": 10_000, "topics": [{"name": None, "topic_id": f"id:{DOOMED}"}]},
        (TOPIC,),
        "by id",
        from_version=6,
        doomed=True,
    ),
    Case(
        K.CREATE_PARTITIONS,
        {
            "validate_only": True,
            "timeout_ms": 10_000,
            "topics": [{"name": n, "count": 2, "assignments": None} for n in (MINE, OTHER, MISSING)],
        },
        (TOPIC,),
    ),
    Case(K.ELECT_LEADERS, {"topic_partitions": [{"topic": n, "partitions": [0]} for n in (MINE, OTHER)]}, (CLUSTER,)),
    Case(
        K.ALTER_PARTITION_REASSIGNMENTS,
        {"topics": [{"name": n, "partitions": [{"partition_index": 0, "replicas": None}]} for n in (MINE, OTHER)]},
        (CLUSTER,),
    ),
    Case(K.LIST_PARTITION_REASSIGNMENTS, {"topics": None}, (CLUSTER,)),
    # Configuration.
    Case(K.DESCRIBE_CONFIGS, _described(2, MINE, OTHER, MISSING, key="retention.ms"), (TOPIC,)),
    Case(K.DESCRIBE_CONFIGS, _described(4, "1", key="log.retention.ms"), (CLUSTER,), "of a broker"),
    Case(K.DESCRIBE_CONFIGS, _described(32, MINE, OTHER, key="consumer.session.timeout.ms"), (GROUP,), "of groups"),
    Case(K.DESCRIBE_CONFIGS, _described(16, "metrics", key="interval.ms"), (CLUSTER,), "of client metrics"),
    Case(K.ALTER_CONFIGS, _configs(2, MINE, OTHER, MISSING, name="retention.ms", value="1000"), (TOPIC,)),
    Case(K.ALTER_CONFIGS, _configs(4, "1", name="log.retention.ms", value="1000"), (CLUSTER,), "of a broker"),
    Case(K.INCREMENTAL_ALTER_CONFIGS, _configs(2, MINE, OTHER, MISSING, name="retention.ms", value="1000"), (TOPIC,)),
    Case(
        K.INCREMENTAL_ALTER_CONFIGS, _configs(4, "1", name="log.retention.ms", value="1000"), (CLUSTER,), "of a broker"
    ),
    Case(K.INCREMENTAL_ALTER_CONFIGS, _configs(8, "1", name="kafka.none", value="INFO"), (CLUSTER,), "of loggers"),
    Case(
        K.INCREMENTAL_ALTER_CONFIGS,
        _configs(32, MINE, OTHER, name="consumer.session.timeout.ms", value="50000"),
        (GROUP,),
        "of groups",
    ),
    Case(K.LIST_CONFIG_RESOURCES, {"resource_types": []}, (CLUSTER,)),
    # Groups.
    Case(K.FIND_COORDINATOR, {"key": MINE, "coordinator_keys": [MINE, OTHER], "key_type": 0}, (GROUP,)),
    Case(
        K.FIND_COORDINATOR,
        {"key": MINE, "coordinator_keys": [MINE, OTHER], "key_type": 1},
        (TXN,),
        "of transactions",
        from_version=1,
    ),
    Case(
        K.JOIN_GROUP,
        {
            "group_id": MINE,
            "member_id": "gone",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        (GROUP,),
    ),
    Case(K.SYNC_GROUP, {**_SUBSCRIBED, "protocol_type": "consumer", "protocol_name": "range"}, (GROUP,)),
    Case(K.HEARTBEAT, _SUBSCRIBED, (GROUP,)),
    Case(K.LEAVE_GROUP, {"group_id": MINE, "member_id": "gone", "members": [{"member_id": "gone"}]}, (GROUP,)),
    Case(K.OFFSET_COMMIT, {"group_id": MINE, "topics": _COMMITTED}, (GROUP, TOPIC)),
    Case(
        K.OFFSET_FETCH,
        {
            "group_id": MINE,
            "topics": _OLD_OFFSETS,
            "groups": [{"group_id": g, "topics": _OFFSETS} for g in (MINE, OTHER)],
        },
        (GROUP, TOPIC),
    ),
    Case(
        K.OFFSET_FETCH,
        {"group_id": MINE, "topics": None, "groups": [{"group_id": g, "topics": None} for g in (MINE, OTHER)]},
        (GROUP, TOPIC),
        "all",
        from_version=2,
    ),
    Case(
        K.OFFSET_DELETE,
        {"group_id": MINE, "topics": [{"name": n, "partitions": [{"partition_index": 7}]} for n in (MINE, OTHER)]},
        (GROUP, TOPIC),
    ),
    Case(K.DESCRIBE_GROUPS, {"groups": [MINE, OTHER], "include_authorized_operations": True}, (GROUP,)),
    Case(K.LIST_GROUPS, {}, (GROUP, CLUSTER)),
    Case(K.DELETE_GROUPS, {"groups_names": [MISSING, "other.missing"]}, (GROUP,)),
    Case(
        K.CONSUMER_GROUP_HEARTBEAT,
        {**_MEMBER, "subscribed_topic_names": [MINE, OTHER], "topic_partitions": []},
        (GROUP, TOPIC),
    ),
    Case(
        K.CONSUMER_GROUP_HEARTBEAT,
        {**_MEMBER, "subscribed_topic_names": [MINE], "topic_partitions": []},
        (GROUP, TOPIC),
        "of one topic",
    ),
    Case(
        K.CONSUMER_GROUP_DESCRIBE,
        {"group_ids": [MINE_NEW, OTHER], "include_authorized_operations": True},
        (GROUP, TOPIC),
    ),
    # Share groups. No offsets are altered or deleted, because the partitions and topics do not exist.
    Case(K.SHARE_GROUP_HEARTBEAT, {**_SHARER, "subscribed_topic_names": [MINE, OTHER]}, (GROUP, TOPIC)),
    Case(K.SHARE_GROUP_HEARTBEAT, {**_SHARER, "subscribed_topic_names": [MINE]}, (GROUP, TOPIC), "of one topic"),
    Case(
        K.SHARE_GROUP_DESCRIBE,
        {"group_ids": [MINE_SHARED, OTHER], "include_authorized_operations": True},
        (GROUP, TOPIC),
    ),
    Case(
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        {"groups": [{"group_id": name, "topics": _SHARED} for name in (MINE_EMPTY, OTHER)]},
        (GROUP, TOPIC),
    ),
    Case(
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        {"groups": [{"group_id": name, "topics": None} for name in (MINE_EMPTY, OTHER)]},
        (GROUP, TOPIC),
        "of all topics",
    ),
    Case(
        K.ALTER_SHARE_GROUP_OFFSETS,
        {
            "group_id": MINE_EMPTY,
            "topics": [
                {"topic_name": name, "partitions": [{"partition_index": 7, "start_offset": 0}]}
                for name in (MINE, OTHER)
            ],
        },
        (GROUP, TOPIC),
    ),
    Case(
        K.DELETE_SHARE_GROUP_OFFSETS,
        {"group_id": MINE_EMPTY, "topics": [{"topic_name": name} for name in (MISSING, "other.missing")]},
        (GROUP, TOPIC),
    ),
    # Producers and transactions.
    Case(K.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": 60_000}, (CLUSTER, TOPIC)),
    Case(K.INIT_PRODUCER_ID, {"transactional_id": MINE, "transaction_timeout_ms": 60_000}, (TXN,), "of a transaction"),
    Case(
        K.ADD_PARTITIONS_TO_TXN,
        {
            "transactions": [{**_PRODUCER, "topics": _ADDED}],
            "v3_and_below_transactional_id": MINE,
            "v3_and_below_producer_id": 7_000_000,
            "v3_and_below_topics": _ADDED,
        },
        (TXN, TOPIC, CLUSTER),
    ),
    Case(K.ADD_OFFSETS_TO_TXN, {**_PRODUCER, "group_id": MINE}, (TXN, GROUP)),
    Case(K.END_TXN, _PRODUCER, (TXN,)),
    Case(
        K.TXN_OFFSET_COMMIT,
        {**_PRODUCER, "group_id": MINE, "generation_id_or_member_epoch": 1, "member_id": "gone", "topics": _COMMITTED},
        (TXN, GROUP, TOPIC),
    ),
    Case(
        K.WRITE_TXN_MARKERS,
        {"markers": [{"producer_id": 7_000_000, "topics": [{"name": MINE, "partition_indexes": [7]}]}]},
        (CLUSTER,),
    ),
    Case(K.DESCRIBE_TRANSACTIONS, {"transactional_ids": [MINE, OTHER, MISSING]}, (TXN,)),
    Case(K.LIST_TRANSACTIONS, {}, (TXN,)),
    # Members of share groups. No coordinator knows these share partitions, so nothing is acquired.
    Case(
        K.SHARE_FETCH,
        {
            "group_id": MINE,
            "member_id": "gone",
            "max_wait_ms": 300,
            "max_bytes": 1 << 20,
            "max_records": 10,
            "batch_size": 10,
            "topics": [{"topic_id": f"id:{name}", "partitions": [{"partition_index": 0}]} for name in (MINE, OTHER)],
        },
        (GROUP, TOPIC),
    ),
    Case(
        K.SHARE_ACKNOWLEDGE,
        {
            "group_id": MINE,
            "member_id": "never",
            "share_session_epoch": 1,
            "topics": [{"topic_id": "id:mine", "partitions": [{"partition_index": 0}]}],
        },
        (GROUP,),
        "without a session",
    ),
    Case(
        K.SHARE_ACKNOWLEDGE,
        {
            "group_id": MINE,
            "member_id": CLIENT,
            "share_session_epoch": 1,
            "topics": [
                {
                    "topic_id": f"id:{name}",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "acknowledgement_batches": [
                                {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
                            ],
                        }
                    ],
                }
                for name in (MINE, OTHER)
            ],
        },
        (GROUP, TOPIC),
        "in a session",
        before=(K.SHARE_FETCH, {"group_id": MINE, "member_id": CLIENT, "topics": []}),
    ),
    # The states of share groups, which brokers keep at share coordinators.
    *(
        Case(key, {"group_id": MINE, "topics": [{"topic_id": "id:mine", "partitions": [{"partition": 0}]}]}, (CLUSTER,))
        for key in (
            K.INITIALIZE_SHARE_GROUP_STATE,
            K.READ_SHARE_GROUP_STATE,
            K.WRITE_SHARE_GROUP_STATE,
            K.DELETE_SHARE_GROUP_STATE,
            K.READ_SHARE_GROUP_STATE_SUMMARY,
        )
    ),
    # The cluster.
    Case(
        K.DESCRIBE_CLUSTER,
        {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        (CLUSTER,),
        on=On.BROKER,
    ),
    Case(
        K.DESCRIBE_CLUSTER,
        {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        (CLUSTER,),
        what="of brokers",
        on=On.CONTROLLER,
    ),
    Case(
        K.DESCRIBE_CLUSTER,
        {"include_cluster_authorized_operations": True, "endpoint_type": 2},
        (CLUSTER,),
        "of controllers",
        on=On.CONTROLLER,
        from_version=1,
    ),
    Case(
        K.DESCRIBE_CLUSTER,
        {"include_cluster_authorized_operations": True, "endpoint_type": 2},
        what="of controllers",
        on=On.BROKER,
        from_version=1,
    ),
    Case(K.DESCRIBE_LOG_DIRS, {"topics": [{"topic": n, "partitions": [0]} for n in (MINE, OTHER)]}, (CLUSTER,)),
    Case(
        K.ALTER_REPLICA_LOG_DIRS,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": MINE, "partitions": [0]}]}]},
        (CLUSTER,),
    ),
    Case(
        K.DESCRIBE_QUORUM,
        {"topics": [{"topic_name": METADATA_LOG, "partitions": [{"partition_index": 0}]}]},
        (CLUSTER,),
    ),
    Case(
        K.UPDATE_FEATURES,
        {"validate_only": True, "feature_updates": [{"feature": "none.such", "max_version_level": 1}]},
        (CLUSTER,),
    ),
    Case(K.UNREGISTER_BROKER, {"broker_id": 77}, (CLUSTER,)),
    Case(K.UNREGISTER_CONTROLLER, {"controller_id": 77}, (CLUSTER,)),
    Case(K.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False}, (CLUSTER,)),
    Case(K.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": "nobody"}]}, (CLUSTER,), on=On.BROKER),
    Case(
        K.DESCRIBE_USER_SCRAM_CREDENTIALS,
        {"users": [{"name": "nobody"}]},
        (CLUSTER,),
        on=On.CONTROLLER,
        kafka_fails="its controllers advertise this API and do not serve it",
    ),
    Case(K.ALTER_USER_SCRAM_CREDENTIALS, {"deletions": [{"name": "nobody", "mechanism": 1}]}, (CLUSTER,)),
    Case(K.DESCRIBE_ACLS, {**_ACLS, "principal_filter": "User:described"}, (CLUSTER,)),
    Case(
        K.CREATE_ACLS,
        {
            "creations": [
                {**_ACL, "resource_name": "made", "principal": "User:described"},
                {**_ACL, "resource_name": "", "principal": "User:described"},
            ]
        },
        (CLUSTER,),
    ),
    Case(K.DELETE_ACLS, {"filters": [{**_ACLS, "principal_filter": "User:none.such"}]}, (CLUSTER,)),
    # Without permissions.
    Case(K.API_VERSIONS, {"client_software_name": "matrix", "client_software_version": "1"}),
    Case(K.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, alone=True),
    Case(K.SASL_AUTHENTICATE, {"auth_bytes": b""}, alone=True),
    # Between nodes, on the listener of controllers.
    Case(
        K.VOTE,
        {
            "cluster_id": ELSEWHERE,
            "topics": [{"topic_name": METADATA_LOG, "partitions": [{"replica_id": 9, "replica_epoch": 1}]}],
        },
        (CLUSTER,),
    ),
    Case(
        K.BEGIN_QUORUM_EPOCH,
        {"cluster_id": ELSEWHERE, "topics": [{"topic_name": METADATA_LOG, "partitions": [_QUORUM]}]},
        (CLUSTER,),
    ),
    Case(
        K.END_QUORUM_EPOCH,
        {"cluster_id": ELSEWHERE, "topics": [{"topic_name": METADATA_LOG, "partitions": [_QUORUM]}]},
        (CLUSTER,),
    ),
    Case(
        K.ALTER_PARTITION,
        {"broker_id": 1, "broker_epoch": 1_000_000, "topics": [{"topic_id": "id:mine", "partitions": []}]},
        (CLUSTER,),
    ),
    Case(
        K.ENVELOPE, {"request_data": b"", "request_principal": None, "client_host_address": b"\x7f\0\0\1"}, (CLUSTER,)
    ),
    Case(
        K.BROKER_REGISTRATION,
        {"broker_id": 77, "cluster_id": ELSEWHERE, "incarnation_id": bytes(16), "rack": None},
        (CLUSTER,),
    ),
    Case(K.BROKER_HEARTBEAT, {"broker_id": 77, "broker_epoch": 5}, (CLUSTER,)),
    Case(K.ALLOCATE_PRODUCER_IDS, {"broker_id": 1, "broker_epoch": 1_000_000}, (CLUSTER,)),
    Case(
        K.CONTROLLER_REGISTRATION,
        {
            "controller_id": 77,
            "incarnation_id": b"i" * 16,
            # So that features may still be updated while it is registered.
            "features": [{"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 99}],
        },
        (CLUSTER,),
    ),
    Case(K.ASSIGN_REPLICAS_TO_DIRS, {"broker_id": 1, "broker_epoch": 1_000_000}, (CLUSTER,)),
    Case(
        K.ADD_RAFT_VOTER,
        {"cluster_id": ELSEWHERE, "voter_id": 77, "voter_directory_id": b"d" * 16, "timeout_ms": 1000},
        (CLUSTER,),
    ),
    Case(K.REMOVE_RAFT_VOTER, {"cluster_id": ELSEWHERE, "voter_id": 77, "voter_directory_id": b"d" * 16}, (CLUSTER,)),
    Case(
        K.UPDATE_RAFT_VOTER,
        {
            "cluster_id": ELSEWHERE,
            "voter_id": 77,
            "voter_directory_id": b"d" * 16,
            "kraft_version_feature": {"max_supported_version": 1},
        },
        (CLUSTER,),
    ),
    # Requests with an effect come last.
    Case(K.PRODUCE, _written(RECORDS), (TOPIC,)),
    Case(K.PRODUCE, _written(IDEMPOTENT), (TOPIC,), "idempotent"),
    Case(K.PRODUCE, _written(TRANSACTIONAL, MINE), (TOPIC, TXN), "transactional"),
    Case(
        K.METADATA,
        {
            "topics": [{"name": f"mine.auto.{CLIENT}"}, {"name": f"other.auto.{CLIENT}"}],
            "allow_auto_topic_creation": True,
        },
        (TOPIC, CLUSTER),
        "creating",
        from_version=4,
    ),
)
