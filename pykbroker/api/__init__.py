"""The served APIs: one module per API, and this one explicit table.

ApiVersions and the table of APIs in the docs derive from TABLE. An API that is not here is neither
served nor advertised. Versions are those of the generated messages.
"""

from __future__ import annotations

from importlib import import_module

from pykbroker.dispatch.rows import On, Row, Rows, ServedApi
from pykbroker.metrics.registry import Metrics
from pykbroker_wire.apis import ApiKey

TABLE: tuple[ServedApi, ...] = (
    # Old librdkafka switches features off if Produce does not begin at 0; versions below 3 are still refused (KIP-896).
    ServedApi(ApiKey.PRODUCE, On.BROKER, advertised_min=0),
    ServedApi(ApiKey.FETCH, On.BOTH),
    ServedApi(ApiKey.LIST_OFFSETS, On.BROKER),
    ServedApi(ApiKey.METADATA, On.BROKER),
    ServedApi(ApiKey.OFFSET_COMMIT, On.BROKER),
    ServedApi(ApiKey.OFFSET_FETCH, On.BROKER),
    ServedApi(ApiKey.FIND_COORDINATOR, On.BROKER),
    ServedApi(ApiKey.JOIN_GROUP, On.BROKER),
    ServedApi(ApiKey.HEARTBEAT, On.BROKER),
    ServedApi(ApiKey.LEAVE_GROUP, On.BROKER),
    ServedApi(ApiKey.SYNC_GROUP, On.BROKER),
    ServedApi(ApiKey.DESCRIBE_GROUPS, On.BROKER),
    ServedApi(ApiKey.LIST_GROUPS, On.BROKER),
    ServedApi(ApiKey.SASL_HANDSHAKE, On.BOTH),
    ServedApi(ApiKey.API_VERSIONS, On.BOTH),
    ServedApi(ApiKey.CREATE_TOPICS, On.BOTH, forward=True),
    ServedApi(ApiKey.DELETE_TOPICS, On.BOTH, forward=True),
    ServedApi(ApiKey.DELETE_RECORDS, On.BROKER),
    ServedApi(ApiKey.INIT_PRODUCER_ID, On.BROKER),
    ServedApi(ApiKey.OFFSET_FOR_LEADER_EPOCH, On.BROKER),
    ServedApi(ApiKey.ADD_PARTITIONS_TO_TXN, On.BROKER),
    ServedApi(ApiKey.ADD_OFFSETS_TO_TXN, On.BROKER),
    ServedApi(ApiKey.END_TXN, On.BROKER),
    ServedApi(ApiKey.WRITE_TXN_MARKERS, On.BROKER),
    ServedApi(ApiKey.TXN_OFFSET_COMMIT, On.BROKER),
    ServedApi(ApiKey.DESCRIBE_ACLS, On.BOTH),
    ServedApi(ApiKey.CREATE_ACLS, On.BOTH, forward=True),
    ServedApi(ApiKey.DELETE_ACLS, On.BOTH, forward=True),
    ServedApi(ApiKey.DESCRIBE_CONFIGS, On.BOTH),
    ServedApi(ApiKey.ALTER_CONFIGS, On.BOTH, forward=True),
    ServedApi(ApiKey.ALTER_REPLICA_LOG_DIRS, On.BROKER),
    ServedApi(ApiKey.DESCRIBE_LOG_DIRS, On.BROKER),
    ServedApi(ApiKey.SASL_AUTHENTICATE, On.BOTH),
    ServedApi(ApiKey.CREATE_PARTITIONS, On.BOTH, forward=True),
    ServedApi(ApiKey.DELETE_GROUPS, On.BROKER),
    ServedApi(ApiKey.ELECT_LEADERS, On.BOTH, forward=True),
    ServedApi(ApiKey.INCREMENTAL_ALTER_CONFIGS, On.BOTH, forward=True),
    ServedApi(ApiKey.ALTER_PARTITION_REASSIGNMENTS, On.BOTH, forward=True),
    ServedApi(ApiKey.LIST_PARTITION_REASSIGNMENTS, On.BOTH, forward=True),
    ServedApi(ApiKey.OFFSET_DELETE, On.BROKER),
    ServedApi(ApiKey.DESCRIBE_CLIENT_QUOTAS, On.BROKER),
    ServedApi(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, On.BOTH),
    ServedApi(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, On.BOTH, forward=True),
    ServedApi(ApiKey.VOTE, On.CONTROLLER),
    ServedApi(ApiKey.BEGIN_QUORUM_EPOCH, On.CONTROLLER),
    ServedApi(ApiKey.END_QUORUM_EPOCH, On.CONTROLLER),
    ServedApi(ApiKey.DESCRIBE_QUORUM, On.BOTH, forward=True),
    ServedApi(ApiKey.ALTER_PARTITION, On.CONTROLLER),
    ServedApi(ApiKey.UPDATE_FEATURES, On.BOTH, forward=True),
    ServedApi(ApiKey.ENVELOPE, On.CONTROLLER),
    ServedApi(ApiKey.FETCH_SNAPSHOT, On.CONTROLLER),
    ServedApi(ApiKey.DESCRIBE_CLUSTER, On.BOTH),
    ServedApi(ApiKey.DESCRIBE_PRODUCERS, On.BROKER),
    ServedApi(ApiKey.BROKER_REGISTRATION, On.CONTROLLER),
    ServedApi(ApiKey.BROKER_HEARTBEAT, On.CONTROLLER),
    ServedApi(ApiKey.UNREGISTER_BROKER, On.BOTH, forward=True),
    ServedApi(ApiKey.ALLOCATE_PRODUCER_IDS, On.CONTROLLER),
    ServedApi(ApiKey.CONTROLLER_REGISTRATION, On.CONTROLLER),
    ServedApi(ApiKey.ASSIGN_REPLICAS_TO_DIRS, On.CONTROLLER),
    ServedApi(ApiKey.DESCRIBE_TRANSACTIONS, On.BROKER),
    ServedApi(ApiKey.LIST_TRANSACTIONS, On.BROKER),
    ServedApi(ApiKey.LIST_CONFIG_RESOURCES, On.BROKER),
    ServedApi(ApiKey.CONSUMER_GROUP_HEARTBEAT, On.BROKER),
    ServedApi(ApiKey.CONSUMER_GROUP_DESCRIBE, On.BROKER),
    ServedApi(ApiKey.DESCRIBE_TOPIC_PARTITIONS, On.BROKER),
    ServedApi(ApiKey.SHARE_FETCH, On.BROKER),
    ServedApi(ApiKey.SHARE_ACKNOWLEDGE, On.BROKER),
    ServedApi(ApiKey.ADD_RAFT_VOTER, On.BOTH, forward=True),
    ServedApi(ApiKey.REMOVE_RAFT_VOTER, On.BOTH, forward=True),
    ServedApi(ApiKey.UPDATE_RAFT_VOTER, On.CONTROLLER),
    ServedApi(ApiKey.SHARE_GROUP_HEARTBEAT, On.BROKER),
    ServedApi(ApiKey.SHARE_GROUP_DESCRIBE, On.BROKER),
    ServedApi(ApiKey.INITIALIZE_SHARE_GROUP_STATE, On.BROKER),
    ServedApi(ApiKey.READ_SHARE_GROUP_STATE, On.BROKER),
    ServedApi(ApiKey.WRITE_SHARE_GROUP_STATE, On.BROKER),
    ServedApi(ApiKey.DELETE_SHARE_GROUP_STATE, On.BROKER),
    ServedApi(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, On.BROKER),
    ServedApi(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, On.BROKER),
    ServedApi(ApiKey.ALTER_SHARE_GROUP_OFFSETS, On.BROKER),
    ServedApi(ApiKey.DELETE_SHARE_GROUP_OFFSETS, On.BROKER),
    ServedApi(ApiKey.UNREGISTER_CONTROLLER, On.BOTH, forward=True),
)


def rows(side: On, metrics: Metrics) -> Rows:
    """Return the rows of TABLE that a kind of listener serves, and create their counters. A row imports its module at
    the first use of the row."""
    served = [api for api in TABLE if api.on & side]
    for api in served:
        api.counters(metrics)
    return Rows(
        served,
        lambda api: Row(api, import_module(f"pykbroker.api.{api.module}").HANDLERS, metrics),
    )
