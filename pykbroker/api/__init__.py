"""The wire surface: one module per API, and this one explicit table.

ApiVersions, the reference in the docs and the compatibility rows derive from TABLE: what is not here is not served and
not advertised. Versions are those of the generated messages.
"""

from __future__ import annotations

from importlib import import_module

from pykbroker.metrics.registry import Metrics
from pykbroker.serving.rows import Api, On, Row
from pykbroker_wire.apis import ApiKey

TABLE: tuple[Api, ...] = (
    # Old librdkafka switches features off when Produce does not begin at 0; versions below 3 are still refused
    # (KIP-896).
    Api(ApiKey.PRODUCE, On.BROKER, advertised_min=0),
    Api(ApiKey.FETCH, On.BOTH),
    Api(ApiKey.LIST_OFFSETS, On.BROKER),
    Api(ApiKey.METADATA, On.BROKER),
    Api(ApiKey.OFFSET_COMMIT, On.BROKER),
    Api(ApiKey.OFFSET_FETCH, On.BROKER),
    Api(ApiKey.FIND_COORDINATOR, On.BROKER),
    Api(ApiKey.JOIN_GROUP, On.BROKER),
    Api(ApiKey.HEARTBEAT, On.BROKER),
    Api(ApiKey.LEAVE_GROUP, On.BROKER),
    Api(ApiKey.SYNC_GROUP, On.BROKER),
    Api(ApiKey.DESCRIBE_GROUPS, On.BROKER),
    Api(ApiKey.LIST_GROUPS, On.BROKER),
    Api(ApiKey.SASL_HANDSHAKE, On.BOTH),
    Api(ApiKey.API_VERSIONS, On.BOTH),
    Api(ApiKey.CREATE_TOPICS, On.BOTH, forward=True),
    Api(ApiKey.DELETE_TOPICS, On.BOTH, forward=True),
    Api(ApiKey.DELETE_RECORDS, On.BROKER),
    Api(ApiKey.INIT_PRODUCER_ID, On.BROKER),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, On.BROKER),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, On.BROKER),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, On.BROKER),
    Api(ApiKey.END_TXN, On.BROKER),
    Api(ApiKey.WRITE_TXN_MARKERS, On.BROKER),
    Api(ApiKey.TXN_OFFSET_COMMIT, On.BROKER),
    Api(ApiKey.DESCRIBE_ACLS, On.BOTH),
    Api(ApiKey.CREATE_ACLS, On.BOTH, forward=True),
    Api(ApiKey.DELETE_ACLS, On.BOTH, forward=True),
    Api(ApiKey.DESCRIBE_CONFIGS, On.BOTH),
    Api(ApiKey.ALTER_CONFIGS, On.BOTH, forward=True),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, On.BROKER),
    Api(ApiKey.DESCRIBE_LOG_DIRS, On.BROKER),
    Api(ApiKey.SASL_AUTHENTICATE, On.BOTH),
    Api(ApiKey.CREATE_PARTITIONS, On.BOTH, forward=True),
    Api(ApiKey.DELETE_GROUPS, On.BROKER),
    Api(ApiKey.ELECT_LEADERS, On.BOTH, forward=True),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, On.BOTH, forward=True),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, On.BOTH, forward=True),
    Api(ApiKey.OFFSET_DELETE, On.BROKER),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, On.BROKER),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, On.BOTH),
    Api(ApiKey.VOTE, On.CONTROLLER),
    Api(ApiKey.BEGIN_QUORUM_EPOCH, On.CONTROLLER),
    Api(ApiKey.END_QUORUM_EPOCH, On.CONTROLLER),
    Api(ApiKey.DESCRIBE_QUORUM, On.BOTH, forward=True),
    Api(ApiKey.ALTER_PARTITION, On.CONTROLLER),
    Api(ApiKey.UPDATE_FEATURES, On.BOTH, forward=True),
    Api(ApiKey.ENVELOPE, On.CONTROLLER),
    Api(ApiKey.FETCH_SNAPSHOT, On.CONTROLLER),
    Api(ApiKey.DESCRIBE_CLUSTER, On.BOTH),
    Api(ApiKey.DESCRIBE_PRODUCERS, On.BROKER),
    Api(ApiKey.BROKER_REGISTRATION, On.CONTROLLER),
    Api(ApiKey.BROKER_HEARTBEAT, On.CONTROLLER),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, On.CONTROLLER),
    Api(ApiKey.CONTROLLER_REGISTRATION, On.CONTROLLER),
    Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, On.CONTROLLER),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, On.BROKER),
    Api(ApiKey.LIST_TRANSACTIONS, On.BROKER),
    Api(ApiKey.LIST_CONFIG_RESOURCES, On.BROKER),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, On.BROKER),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, On.BROKER),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, On.BROKER),
    Api(ApiKey.UPDATE_RAFT_VOTER, On.CONTROLLER),
)


def rows(side: On, metrics: Metrics) -> dict[int, Row]:
    """The rows of TABLE that a kind of listener serves, by API key and in its order. Imports their modules."""
    return {
        int(api.key): Row(api, import_module(f"pykbroker.api.{api.module}"), metrics)
        for api in sorted(TABLE, key=lambda api: api.key)
        if api.on & side
    }
