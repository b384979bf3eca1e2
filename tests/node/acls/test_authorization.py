"""With an authorizer that denies everything, each API returns the error of Apache Kafka, so every handler asks for
authorization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pykbroker.api import TABLE
from pykbroker.dispatch.rows import On
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    consumer_group_describe,
    consumer_group_heartbeat,
    controller_registration,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_quorum_epoch,
    end_txn,
    envelope,
    fetch,
    fetch_snapshot,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    read_share_group_state,
    read_share_group_state_summary,
    remove_raft_voter,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    unregister_controller,
    update_features,
    update_raft_voter,
    vote,
    write_share_group_state,
    write_txn_markers,
)
from pykbroker_wire.primitives import uuid_to_str
from pykbroker_wire.records.batch import build_batch
from testkit.nodes.sim import Sim
from tests.deny_all import DenyAll

TOPIC, GROUP, CLUSTER = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


#: These are never authorized: a client begins with them, or they are refused for another reason.
NOT_ASKED = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
RECORDS = build_batch([(None, b"x", (), 0)])


def requests(topic_id: bytes, cluster_id: str) -> Iterator[tuple[Any, int | None, ErrorCode | None]]:
    """Yield (request, version, error); no error means an empty response, and no version the newest one."""
    metadata_log = "__cluster_metadata"
    yield (
        produce.ProduceRequest(
            acks=1,
            timeout_ms=100,
            topic_data=[
                produce.TopicProduceData(
                    topic_id=topic_id, partition_data=[produce.PartitionProduceData(records=RECORDS)]
                )
            ],
        ),
        None,
        TOPIC,
    )
    yield (
        produce.ProduceRequest(
            acks=1,
            timeout_ms=100,
            topic_data=[
                produce.TopicProduceData(name="t", partition_data=[produce.PartitionProduceData(records=RECORDS)])
            ],
        ),
        12,
        TOPIC,
    )
    transactional = build_batch(
        [(None, b"x", (), 0)], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )
    yield (
        produce.ProduceRequest(
            transactional_id="x",
            acks=-1,
            timeout_ms=100,
            topic_data=[
                produce.TopicProduceData(name="t", partition_data=[produce.PartitionProduceData(records=transactional)])
            ],
        ),
        12,
        TRANSACTION,
    )
    partitions = [fetch.FetchPartition(current_leader_epoch=-1, partition_max_bytes=100)]
    yield (
        fetch.FetchRequest(topics=[fetch.FetchTopic(topic_id=topic_id, partitions=partitions)], session_epoch=-1),
        None,
        TOPIC,
    )
    yield fetch.FetchRequest(topics=[fetch.FetchTopic(topic="t", partitions=partitions)], session_epoch=-1), 12, TOPIC
    yield fetch.FetchRequest(replica_id=1, topics=[fetch.FetchTopic(topic="t", partitions=partitions)]), 12, TOPIC
    yield (
        list_offsets.ListOffsetsRequest(
            topics=[
                list_offsets.ListOffsetsTopic(name="t", partitions=[list_offsets.ListOffsetsPartition(timestamp=-1)])
            ]
        ),
        None,
        TOPIC,
    )
    yield metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")]), None, TOPIC
    yield (
        metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="new")], allow_auto_topic_creation=True),
        None,
        TOPIC,
    )
    yield metadata.MetadataRequest(topics=None), None, None
    committed = [offset_commit.OffsetCommitRequestPartition()]
    yield (
        offset_commit.OffsetCommitRequest(
            group_id="g", topics=[offset_commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=committed)]
        ),
        None,
        GROUP,
    )
    yield (
        offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)]),
        None,
        GROUP,
    )
    yield find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), None, GROUP
    yield find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), None, TRANSACTION
    share_key = f"g:{uuid_to_str(topic_id)}:0"
    yield find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=[share_key]), None, CLUSTER
    protocols = [join_group.JoinGroupRequestProtocol(name="range")]
    yield (
        join_group.JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols
        ),
        None,
        GROUP,
    )
    yield heartbeat.HeartbeatRequest(group_id="g"), None, GROUP
    yield consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m"), None, GROUP
    yield consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["g"]), None, GROUP
    yield share_group_heartbeat.ShareGroupHeartbeatRequest(group_id="g", member_id="m"), None, GROUP
    yield share_group_describe.ShareGroupDescribeRequest(group_ids=["g"]), None, GROUP
    yield share_fetch.ShareFetchRequest(group_id="g", member_id="m"), None, GROUP
    yield share_acknowledge.ShareAcknowledgeRequest(group_id="g", member_id="m"), None, GROUP
    described = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id="g")
    yield describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[described]), None, GROUP
    yield alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id="g"), None, GROUP
    yield delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group_id="g"), None, GROUP
    yield leave_group.LeaveGroupRequest(group_id="g", members=[leave_group.MemberIdentity(member_id="m")]), None, GROUP
    yield sync_group.SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range"), None, GROUP
    yield describe_groups.DescribeGroupsRequest(groups=["g"]), None, GROUP
    yield list_groups.ListGroupsRequest(), None, None
    yield (
        create_topics.CreateTopicsRequest(
            topics=[create_topics.CreatableTopic(name="n", num_partitions=1, replication_factor=1)], timeout_ms=100
        ),
        None,
        TOPIC,
    )
    yield (
        delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name="t")], timeout_ms=100),
        None,
        TOPIC,
    )
    yield (
        delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=100
        ),
        None,
        TOPIC,
    )
    yield (
        describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name="t", partition_indexes=[0])]
        ),
        None,
        TOPIC,
    )
    yield (
        delete_records.DeleteRecordsRequest(
            topics=[delete_records.DeleteRecordsTopic(name="t", partitions=[delete_records.DeleteRecordsPartition()])]
        ),
        None,
        TOPIC,
    )
    yield init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=100), None, CLUSTER
    yield init_producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=100), None, TRANSACTION
    added = [add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    yield (
        add_partitions_to_txn.AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=added),
        3,
        TRANSACTION,
    )
    transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(transactional_id="x", topics=added)
    yield add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction]), None, CLUSTER
    yield add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id="x", group_id="g"), None, TRANSACTION
    yield end_txn.EndTxnRequest(transactional_id="x"), None, TRANSACTION
    marked = [write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    markers = [write_txn_markers.WritableTxnMarker(producer_id=1, topics=marked)]
    yield write_txn_markers.WriteTxnMarkersRequest(markers=markers), None, CLUSTER
    pending = txn_offset_commit.TxnOffsetCommitRequestTopic(
        name="t", partitions=[txn_offset_commit.TxnOffsetCommitRequestPartition()]
    )
    yield (
        txn_offset_commit.TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=[pending]),
        None,
        TRANSACTION,
    )
    yield describe_transactions.DescribeTransactionsRequest(transactional_ids=["x"]), None, TRANSACTION
    yield list_transactions.ListTransactionsRequest(), None, None
    initial = initialize_share_group_state.InitializeStateData(
        topic_id=topic_id, partitions=[initialize_share_group_state.PartitionData()]
    )
    yield (
        initialize_share_group_state.InitializeShareGroupStateRequest(group_id="g", topics=[initial]),
        None,
        CLUSTER,
    )
    read = read_share_group_state.ReadStateData(
        topic_id=topic_id, partitions=[read_share_group_state.PartitionData(leader_epoch=-1)]
    )
    yield read_share_group_state.ReadShareGroupStateRequest(group_id="g", topics=[read]), None, CLUSTER
    written = write_share_group_state.WriteStateData(
        topic_id=topic_id, partitions=[write_share_group_state.PartitionData()]
    )
    yield write_share_group_state.WriteShareGroupStateRequest(group_id="g", topics=[written]), None, CLUSTER
    gone = delete_share_group_state.DeleteStateData(
        topic_id=topic_id, partitions=[delete_share_group_state.PartitionData()]
    )
    yield delete_share_group_state.DeleteShareGroupStateRequest(group_id="g", topics=[gone]), None, CLUSTER
    short = read_share_group_state_summary.ReadStateSummaryData(
        topic_id=topic_id, partitions=[read_share_group_state_summary.PartitionData()]
    )
    yield (
        read_share_group_state_summary.ReadShareGroupStateSummaryRequest(group_id="g", topics=[short]),
        None,
        CLUSTER,
    )
    yield (
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic="t", partitions=[offset_for_leader_epoch.OffsetForLeaderPartition(current_leader_epoch=-1)]
                )
            ],
        ),
        None,
        TOPIC,
    )
    yield (
        describe_acls.DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        ),
        None,
        CLUSTER,
    )
    yield (
        create_acls.CreateAclsRequest(
            creations=[
                create_acls.AclCreation(
                    resource_type=2,
                    resource_name="t",
                    resource_pattern_type=3,
                    principal="User:u",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        None,
        CLUSTER,
    )
    yield (
        delete_acls.DeleteAclsRequest(
            filters=[
                delete_acls.DeleteAclsFilter(
                    resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
                )
            ]
        ),
        None,
        CLUSTER,
    )
    for resource, name, code in ((2, "t", TOPIC), (4, "1", CLUSTER), (32, "g", GROUP)):
        yield (
            describe_configs.DescribeConfigsRequest(
                resources=[describe_configs.DescribeConfigsResource(resource_type=resource, resource_name=name)]
            ),
            None,
            code,
        )
        yield (
            alter_configs.AlterConfigsRequest(
                resources=[alter_configs.AlterConfigsResource(resource_type=resource, resource_name=name)]
            ),
            None,
            code,
        )
        yield (
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=[incremental_alter_configs.AlterConfigsResource(resource_type=resource, resource_name=name)]
            ),
            None,
            code,
        )
    wanted = alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=[0])
    moved = alter_replica_log_dirs.AlterReplicaLogDir(path="/elsewhere", topics=[wanted])
    yield alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[moved]), None, CLUSTER
    yield describe_log_dirs.DescribeLogDirsRequest(topics=None), None, CLUSTER
    yield (
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="t", count=5, assignments=None)], timeout_ms=100
        ),
        None,
        TOPIC,
    )
    yield delete_groups.DeleteGroupsRequest(groups_names=["g"]), None, GROUP
    yield elect_leaders.ElectLeadersRequest(topic_partitions=None, timeout_ms=100), None, CLUSTER
    moving = alter_partition_reassignments.ReassignablePartition(replicas=[1])
    yield (
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[alter_partition_reassignments.ReassignableTopic(name="t", partitions=[moving])]
        ),
        None,
        CLUSTER,
    )
    yield unregister_broker.UnregisterBrokerRequest(broker_id=1), None, CLUSTER
    yield unregister_controller.UnregisterControllerRequest(controller_id=1), None, CLUSTER
    yield list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None), None, CLUSTER
    yield offset_delete.OffsetDeleteRequest(group_id="g"), None, GROUP
    yield describe_client_quotas.DescribeClientQuotasRequest(), None, CLUSTER
    yield describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None), None, CLUSTER
    removed = alter_user_scram_credentials.ScramCredentialDeletion(name="u", mechanism=1)
    yield alter_user_scram_credentials.AlterUserScramCredentialsRequest(deletions=[removed]), None, CLUSTER
    yield (
        describe_quorum.DescribeQuorumRequest(
            topics=[
                describe_quorum.RequestTopicData(
                    topic_name=metadata_log, partitions=[describe_quorum.RequestPartitionData()]
                )
            ]
        ),
        None,
        CLUSTER,
    )
    yield update_features.UpdateFeaturesRequest(timeout_ms=100), None, CLUSTER
    yield describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True), None, None
    yield list_config_resources.ListConfigResourcesRequest(), None, CLUSTER
    yield (
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name="t")], response_partition_limit=10
        ),
        None,
        TOPIC,
    )
    # Requests between nodes.
    yield vote.VoteRequest(cluster_id=cluster_id), None, CLUSTER
    yield begin_quorum_epoch.BeginQuorumEpochRequest(cluster_id=cluster_id), None, CLUSTER
    yield end_quorum_epoch.EndQuorumEpochRequest(cluster_id=cluster_id), None, CLUSTER
    yield alter_partition.AlterPartitionRequest(broker_id=1), None, CLUSTER
    yield (
        envelope.EnvelopeRequest(request_data=b"", request_principal=b"", client_host_address=b"\x7f\0\0\1"),
        None,
        CLUSTER,
    )
    yield fetch_snapshot.FetchSnapshotRequest(), None, CLUSTER
    yield broker_registration.BrokerRegistrationRequest(broker_id=2), None, CLUSTER
    yield broker_heartbeat.BrokerHeartbeatRequest(broker_id=1), None, CLUSTER
    yield allocate_producer_ids.AllocateProducerIdsRequest(broker_id=1), None, CLUSTER
    yield controller_registration.ControllerRegistrationRequest(controller_id=2), None, CLUSTER
    yield assign_replicas_to_dirs.AssignReplicasToDirsRequest(broker_id=1), None, CLUSTER
    yield add_raft_voter.AddRaftVoterRequest(cluster_id=cluster_id), None, CLUSTER
    yield remove_raft_voter.RemoveRaftVoterRequest(cluster_id=cluster_id), None, CLUSTER
    yield update_raft_voter.UpdateRaftVoterRequest(cluster_id=cluster_id), None, CLUSTER


def codes(value: Any) -> Iterator[int]:
    """Yield every error code anywhere in a response that is not 0."""
    if isinstance(value, list):
        for item in value:
            yield from codes(item)
    elif hasattr(value, "__slots__"):
        for name in value.__slots__:
            found = getattr(value, name)
            if name in ("error_code", "partition_error_code"):
                if found:
                    yield found
            else:
                yield from codes(found)


@pytest.fixture(scope="module")
def denied() -> Iterator[dict[str, Any]]:
    """Return every request above with its response."""
    from pykbroker.net.client import BrokerConnection

    sim = Sim()

    async def play(sim: Sim) -> dict[str, Any]:
        await sim.create("t", partitions=1)
        topic_id = await sim.topic_id("t")
        node = sim.node
        node.services.authorizer = DenyAll()
        # The broker of the same node still reaches its controller; otherwise no request would be forwarded.
        node.controller.services.authorizer = DenyAll()
        controller = BrokerConnection(sim._runtime, "localhost", 9093, "test")
        sides = {int(row.key): row.on for row in TABLE}
        found: dict[str, Any] = {}
        for number, (request, version, expected) in enumerate(requests(topic_id, node.services.cluster_id)):
            for side, connection in ((On.BROKER, sim._connection), (On.CONTROLLER, controller)):
                if not sides[request.API_KEY] & side:
                    continue
                try:
                    answer = await connection.send(request, 3_000, version)
                except (ConnectionError, TimeoutError) as error:
                    answer = error
                # A controller reads only the metadata log, and describes the cluster only to a client that may alter
                # it.
                apart = side is On.CONTROLLER and request.API_KEY in (ApiKey.FETCH, ApiKey.DESCRIBE_CLUSTER)
                wanted = CLUSTER if apart else expected
                found[f"{number} {type(request).__name__} {side.name}"] = (request, answer, wanted)
        return found

    yield sim.run(play)
    sim.close()


def test_every_api_is_tried(denied: dict[str, Any]) -> None:
    tried = {request.API_KEY for request, _, _ in denied.values()}
    assert tried == {int(row.key) for row in TABLE} - NOT_ASKED


def test_each_answers_kafkas_error(denied: dict[str, Any]) -> None:
    wrong = []
    for name, (_, answer, expected) in denied.items():
        found = set(codes(answer)) if not isinstance(answer, Exception) else {repr(answer)}
        if found != (set() if expected is None else {int(expected)}):
            wrong.append(f"{name}: {found}, not {expected!r}")
    assert not wrong, "\n".join(wrong)


def test_what_has_no_error_shows_nothing(denied: dict[str, Any]) -> None:
    answers = {type(request): answer for request, answer, expected in denied.values() if expected is None}
    assert len(answers) == 4
    assert answers[list_transactions.ListTransactionsRequest].transaction_states == []
    assert answers[metadata.MetadataRequest].topics == []
    assert answers[list_groups.ListGroupsRequest].groups == []
    assert answers[describe_cluster.DescribeClusterRequest].cluster_authorized_operations == 0
