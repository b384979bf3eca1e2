"""The output and the arguments of the tools about nodes and partitions."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from pykbroker.tools.cluster.asked_cluster import ClusterNode
from pykbroker.tools.cluster.failure import failed
from pykbroker.tools.cluster.json_input import partitions_of, read_json, repeated
from pykbroker.tools.cluster.quorum_replicas import DescribedQuorum, QuorumReplica
from pykbroker.tools.cluster.replicas_on_disk import DescribedLogDir, ReplicaOnDisk
from pykbroker.tools.kafka import cluster
from pykbroker.tools.kafka.broker_api_versions import versions_text
from pykbroker.tools.kafka.cluster import endpoints_text
from pykbroker.tools.kafka.get_offsets import OPTIONS, filter_of, timestamp_of
from pykbroker.tools.kafka.leader_election import say_outcome
from pykbroker.tools.kafka.log_dirs import log_dirs_json
from pykbroker.tools.kafka.metadata_quorum import replication_text, status_text
from pykbroker_wire.errors import ErrorCode

NODES = [ClusterNode(1, "h", 9092), ClusterNode(2, "a.long.host", 9092, "r", fenced=True)]


def test_versions_say_what_is_served_and_what_is_usable() -> None:
    lines = versions_text(NODES[0], {0: (3, 99), 1: (4, 4), 2: (90, 99), 999: (0, 1)}).split("\n")
    assert lines[0] == "h:9092 (id: 1 rack: null isFenced: false) -> ("
    assert lines[1] == "\tProduce(0): 3 to 99 [usable: 13],"
    assert lines[2] == "\tFetch(1): 4 [usable: 4],"
    assert lines[3] == "\tListOffsets(2): 90 to 99 [unusable: node too new],"
    assert lines[4] == "\tMetadata(3): UNSUPPORTED,"
    assert lines[-2:] == ["\tUNKNOWN(999): 0 to 1", ")"]


def test_versions_of_a_controller_have_the_requests_between_nodes() -> None:
    of_broker, of_controller = (versions_text(NODES[0], ranges) for ranges in ({}, {52: (0, 2), 78: (0, 0)}))
    assert "Vote(52)" not in of_broker
    assert "\tVote(52): 0 to 2 [usable: 2],\n" in of_controller
    assert "\tShareFetch(78): 0 [unusable: node too old],\n" in of_controller


def test_endpoints() -> None:
    header, first, second = endpoints_text(NODES, of_controllers=False).splitlines()
    assert header == "ID         HOST        PORT       RACK STATE      ENDPOINT_TYPE  "
    assert endpoints_text(NODES[:1], of_controllers=False).splitlines() == [
        "ID         HOST PORT       RACK       STATE      ENDPOINT_TYPE  ",
        "1          h 9092       null       unfenced   broker         ",
    ]
    assert first.split() == ["1", "h", "9092", "null", "unfenced", "broker"]
    assert second.split() == ["2", "a.long.host", "9092", "r", "fenced", "broker"]
    assert endpoints_text(NODES, of_controllers=True).splitlines()[1].split() == [
        "1",
        "h",
        "9092",
        "null",
        "controller",
    ]


def test_options_of_kafka_cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given: list[argparse.Namespace] = []

    def note(options: argparse.Namespace, work: object) -> int:
        given.append(options)
        return 0

    monkeypatch.setattr(cluster, "with_cluster", note)
    assert cluster.run(["cluster-id", "-b", "h:1", "-c", "file"]) == 0
    assert cluster.run(["list-endpoints", "-C", "h:2", "--config", "old"]) == 0
    assert [(one.bootstrap_server, one.bootstrap_controller, one.command_config) for one in given] == [
        ("h:1", None, "file"),
        (None, "h:2", "old"),
    ]
    assert capsys.readouterr().out.startswith("Option --config has been deprecated")
    assert cluster.run(["cluster-id", "-b", "h:1", "--config", "a", "--command-config", "b"]) == 1
    assert capsys.readouterr().err == "--config and --command-config cannot be specified together.\n"


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_cluster_without_a_request_to_unregister(role: str, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(number: int) -> None:
        raise failed(ErrorCode.UNSUPPORTED_VERSION)

    assert cluster._forget(refuse, 3, role) == 0
    assert capsys.readouterr().out == f"The target cluster does not support the {role} unregistration API.\n"


def quorum() -> DescribedQuorum:
    return DescribedQuorum(
        1, 7, 90,
        (QuorumReplica(1, "d1", 100, 50, 60, ("C://h:1",)), QuorumReplica(2, None, 95, 40, 45)),
        (QuorumReplica(3, "d3", 80, -1, -1),),
    )  # fmt: skip


def test_the_status_of_a_quorum() -> None:
    lines = dict(line.split(": ", 1) for line in status_text("id", quorum()).splitlines())
    assert {name: text.strip() for name, text in lines.items()} == {
        "ClusterId": "id",
        "LeaderId": "1",
        "LeaderEpoch": "7",
        "HighWatermark": "90",
        "MaxFollowerLag": "5",
        "MaxFollowerLagTimeMs": "15",
        "CurrentVoters": '[{"id": 1, "directoryId": "d1", "endpoints": ["C://h:1"]}, {"id": 2, "directoryId": null}]',
        "CurrentObservers": '[{"id": 3, "directoryId": "d3"}]',
    }


def test_the_replicas_of_a_quorum() -> None:
    rows = [[cell.strip() for cell in line.split("\t")[:-1]] for line in replication_text(quorum(), 100).splitlines()]
    assert [row[0] for row in rows] == ["NodeId", "1", "2", "3"]
    assert rows[1][2:] == ["100", "0", "50 ms ago", "40 ms ago", "Leader"]
    assert rows[2][1:] == ["AAAAAAAAAAAAAAAAAAAAAA", "95", "5", "60 ms ago", "55 ms ago", "Follower"]
    assert rows[3][3:] == ["20", "-1", "-1", "Observer"]


def test_which_partitions_are_wanted() -> None:
    def wanted(*words: str) -> list[tuple[str, int]]:
        wants = filter_of(OPTIONS.parse(words))
        return [(topic, number) for topic in ("a", "ab") for number in range(4) if wants(topic, number)]

    assert wanted("--topic", "a") == [("a", number) for number in range(4)]
    assert wanted("--topic", "a.*", "--partitions", "1,3") == [("a", 1), ("a", 3), ("ab", 1), ("ab", 3)]
    assert wanted("--topic-partitions", "a:1-3,ab:0") == [("a", 1), ("a", 2), ("ab", 0)]
    assert wanted("--topic-partitions", "a:2-") == [("a", 2), ("a", 3)]
    assert wanted("--topic-partitions", ":-1") == [("a", 0), ("ab", 0)]
    for words in (["--topic-partitions", "a", "--topic", "a"], ["--partitions", "x"], ["--topic-partitions", "a:1-x"]):
        with pytest.raises(ValueError):
            wanted(*words)


def test_times() -> None:
    assert [timestamp_of(text) for text in ("latest", "earliest", "-3", "1700")] == [-1, -2, -3, 1700]
    with pytest.raises(ValueError, match=r"^Malformed time argument x\. Please use -1 or latest"):
        timestamp_of("x")


def test_json_files(tmp_path: Path) -> None:
    value = {"partitions": [{"topic": "a", "partition": 1, "offset": 5}] * 2}
    entries = partitions_of(value, "offset")
    assert [(topic, number, entry["offset"]) for topic, number, entry in entries] == [("a", 1, 5)] * 2
    assert repeated([("a", 1), ("b", 1), ("a", 1)]) == ["a-1"]
    with pytest.raises(ValueError, match=r"^Missing offset field$"):
        partitions_of({"partitions": [{"topic": "a", "partition": 1}]}, "offset")
    with pytest.raises(ValueError, match=r"^Missing partitions field$"):
        partitions_of({})
    with pytest.raises(ValueError, match=r"^Not supported version field value 2$"):
        partitions_of({"version": 2, "partitions": []})
    (tmp_path / "bad").write_text("{")
    with pytest.raises(ValueError, match=r"^The input string is not a valid JSON$"):
        read_json(str(tmp_path / "bad"))
    with pytest.raises(ValueError, match=r"^Unable to read file .*none$"):
        read_json(str(tmp_path / "none"))


def test_log_dirs() -> None:
    replica = ReplicaOnDisk("t", 0, 9, 1, is_future=True)
    found = {
        1: [DescribedLogDir("/d", None, (replica,)), DescribedLogDir("/e", failed(ErrorCode.KAFKA_STORAGE_ERROR), ())]
    }
    told = json.loads(log_dirs_json(found))
    assert told["version"] == 1
    assert told["brokers"][0]["logDirs"] == [
        {
            "partitions": [{"partition": "t-0", "size": 9, "offsetLag": 1, "isFuture": True}],
            "error": None,
            "logDir": "/d",
        },
        {"partitions": [], "error": "org.apache.kafka.common.errors.KafkaStorageException", "logDir": "/e"},
    ]


def test_what_came_of_an_election(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = {
        ("a", 0): None,
        ("a", 1): failed(ErrorCode.ELECTION_NOT_NEEDED),
        ("b", 0): failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "none"),
    }
    assert say_outcome("UNCLEAN", outcome) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "Successfully completed leader election (UNCLEAN) for partitions a-0",
        "Valid replica already elected for partitions a-1",
        "Error completing leader election (UNCLEAN) for partition: b-0: "
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: none",
    ]
    assert err == "1 replica(s) could not be elected\n"
    assert say_outcome("PREFERRED", {("a", 0): None}) == 0
