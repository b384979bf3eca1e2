"""The tools' output about the node itself: versions, quorum, features, cluster id, reassignments, elections, ACLs."""

from __future__ import annotations

import json
import re

from compat_tests.kafka_tools.conftest import Tools, table
from compat_tests.node import Node

# The APIs that stock clients need, with the newest version that Apache Kafka 4.3 clients use.
NEEDED = {
    "Produce": 13, "Fetch": 18, "ListOffsets": 11, "Metadata": 13, "OffsetCommit": 10, "OffsetFetch": 10,
    "FindCoordinator": 6, "JoinGroup": 9, "Heartbeat": 4, "LeaveGroup": 5, "SyncGroup": 5, "DescribeGroups": 6,
    "ListGroups": 5, "ApiVersions": 4, "CreateTopics": 7, "DeleteTopics": 6, "DeleteRecords": 2, "InitProducerId": 5,
    "OffsetForLeaderEpoch": 4, "DescribeConfigs": 4, "AlterConfigs": 2, "DescribeLogDirs": 5, "CreatePartitions": 3,
    "DeleteGroups": 2, "ElectLeaders": 2, "IncrementalAlterConfigs": 1, "ListPartitionReassignments": 0,
    "AlterPartitionReassignments": 1, "UnregisterBroker": 0,
    "OffsetDelete": 0, "DescribeClientQuotas": 1, "DescribeUserScramCredentials": 0, "DescribeQuorum": 2,
    "UpdateFeatures": 2, "DescribeCluster": 2, "ListConfigResources": 1, "DescribeTopicPartitions": 0,
}  # fmt: skip


def test_api_versions_offer_what_stock_clients_use(tools: Tools, broker: Node) -> None:
    said = tools.run("BrokerApiVersionsCommand")
    assert said.startswith(broker.bootstrap)
    usable = {name: int(version) for name, version in re.findall(r"\t(\w+)\(\d+\): .*\[usable: (\d+)\]", said)}
    assert {name: usable.get(name) for name in NEEDED} == NEEDED


def test_the_quorum_is_this_node(tools: Tools) -> None:
    status = dict(re.findall(r"^(\w+):\s+(.*?)\s*$", tools.run("MetadataQuorumCommand", "describe", "--status"), re.M))
    (voter,) = json.loads(status["CurrentVoters"])
    assert str(voter["id"]) == status["LeaderId"]
    assert status["CurrentObservers"] == "[]"
    assert int(status["HighWatermark"]) > 0
    (row,) = table(tools.run("MetadataQuorumCommand", "describe", "--replication"))
    assert (row["NodeId"], row["Lag"], row["Status"]) == (status["LeaderId"], "0", "Leader")
    assert row["DirectoryId"] == voter["directoryId"]


def test_features_are_described(tools: Tools) -> None:
    found = {
        name: (least, most, final)
        for name, least, most, final in re.findall(
            r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+"
            r"SupportedMaxVersion: ((?:UNKNOWN )?\S+)\s+FinalizedVersionLevel: (\S+)",
            tools.run("FeatureCommand", "describe"),
        )
    }
    assert found["metadata.version"][2] == "4.3-IV0"
    assert found["kraft.version"][2] == "1"


def test_features_go_down_and_up_while_the_node_runs(tools: Tools) -> None:
    said = tools.run(
        "FeatureCommand", "downgrade", "--feature", "transaction.version=1", "--feature", "group.version=0"
    )
    assert "transaction.version was downgraded to 1." in said
    assert "group.version was downgraded to 0." in said
    refused = tools.fail(
        "FeatureCommand", "upgrade", "--feature", "transaction.version=3", "--feature", "group.version=1"
    )
    assert "Invalid update version 3 for feature transaction.version." in refused
    described = tools.run("FeatureCommand", "describe")
    assert re.search(r"transaction.version\s.*FinalizedVersionLevel: 1\s", described)
    assert re.search(r"group.version\s.*FinalizedVersionLevel: 0\s", described)
    dry = tools.run("FeatureCommand", "upgrade", "--dry-run", "--feature", "transaction.version=2")
    assert "transaction.version can be upgraded to 2." in dry
    said = tools.run("FeatureCommand", "upgrade", "--feature", "transaction.version=2", "--feature", "group.version=1")
    assert "transaction.version was upgraded to 2." in said
    assert "group.version was upgraded to 1." in said


def test_the_cluster_has_one_id_everywhere(tools: Tools, broker: Node) -> None:
    said = re.search(r"^Cluster ID: ([A-Za-z0-9_-]{22})$", tools.run("ClusterTool", "cluster-id"), re.M)
    assert said is not None
    assert said[1] in tools.run("MetadataQuorumCommand", "describe", "--status")
    meta = next(broker.data_dir.rglob("meta.properties")).read_text()
    assert f"cluster.id={said[1]}" in meta
    (endpoint,) = table(tools.run("ClusterTool", "list-endpoints"))
    assert f"{endpoint['HOST']}:{endpoint['PORT']}" == broker.bootstrap


def test_there_are_no_reassignments_and_elections_find_nothing_to_do(tools: Tools, topic: str) -> None:
    said = tools.run("reassign.ReassignPartitionsCommand", "--list")
    assert "No partition reassignments found." in said
    said = tools.run("LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected for partitions" in said


def test_acls_are_refused_without_an_authorizer(tools: Tools) -> None:
    assert "No Authorizer is configured" in tools.fail("AclCommand", "--list")
    add = ["--add", "--allow-principal", "User:somebody", "--operation", "Read", "--topic", "any"]
    assert "No Authorizer is configured" in tools.fail("AclCommand", *add)
