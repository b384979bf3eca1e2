"""`pykbroker cluster` and `pykbroker quorum`."""

from __future__ import annotations

import pytest

from compat_tests.command_line.asked import CommandLine


def test_the_nodes(line: CommandLine) -> None:
    (cluster,) = line.json("cluster", "id").values()
    assert line("cluster", "id").out == f"{cluster}\n"
    (broker,) = line.json("cluster", "brokers")
    host, _, port = line.bootstrap.rpartition(":")
    assert broker == {"id": 1, "host": host, "port": int(port), "rack": None, "fenced": False}
    (controller,) = line.json("cluster", "controllers")
    assert list(controller) == ["id", "role", "endpoints", "directory_id"]
    assert (controller["id"], controller["role"]) == (1, "leader")
    assert controller["endpoints"][0].startswith("CONTROLLER://")
    titles, row = line("cluster", "brokers").out.splitlines()
    assert titles.split() == ["ID", "HOST", "PORT", "RACK", "FENCED"]
    assert row.split() == ["1", host, port, "-", "no"]


def test_the_features(line: CommandLine) -> None:
    features = {row["feature"]: row for row in line.json("cluster", "features")}
    metadata_version = features["metadata.version"]
    # Apache Kafka 4.3.1 supports levels up to 30, and the node under test those of 4.4.
    assert metadata_version.pop("supported_max") >= 30
    assert metadata_version == {"feature": "metadata.version", "level": 30, "supported_min": 7}
    assert features["transaction.version"]["level"] == 2


def test_the_quorum(line: CommandLine) -> None:
    told = line.json("quorum", "describe")
    assert list(told) == ["cluster_id", "leader", "leader_epoch", "high_watermark", "replicas"]
    assert told["cluster_id"] == line.json("cluster", "id")["cluster_id"]
    assert told["leader"] == 1
    (replica,) = told["replicas"]
    (controller,) = line.json("cluster", "controllers")
    assert {key: replica[key] for key in controller} == controller
    assert replica["lag"] == 0
    assert replica["end_offset"] >= told["high_watermark"] > 0
    heading, titles, row = line("quorum", "describe").out.splitlines()
    assert heading.startswith(
        f"Cluster {told['cluster_id']}, leader 1 in epoch {told['leader_epoch']}, committed up to"
    )
    assert titles.split("  ")[:2] == ["ID", "ROLE"]
    assert row.split()[:2] == ["1", "leader"]


def test_controllers_are_asked_themselves(line: CommandLine) -> None:
    (controller,) = line.json("cluster", "controllers")
    address = controller["endpoints"][0].partition("://")[2]
    at_controller = CommandLine(address, "--bootstrap-controller")
    assert at_controller.json("cluster", "id") == line.json("cluster", "id")
    assert at_controller.json("cluster", "controllers") == [controller]
    assert at_controller.json("quorum", "describe")["leader"] == 1


def test_what_is_refused_is_one_line(line: CommandLine) -> None:
    assert "(BROKER_ID_NOT_REGISTERED)" in line("cluster", "unregister", "77").failure
    assert line("quorum", "remove", "77").failure == (
        "The quorum has no voter 77 with a directory id: its voters are 1"
    )
    endpoint = ("--endpoint", "CONTROLLER://localhost:1")
    assert line("quorum", "add", "77", *endpoint).failure.startswith("The quorum has no observer 77 with a directory")
    (controller,) = line.json("cluster", "controllers")
    same = ("--directory-id", controller["directory_id"])
    assert "(DUPLICATE_VOTER)" in line("quorum", "add", "1", *endpoint, *same).failure


def test_a_controller_in_the_place_of_a_broker_is_named(line: CommandLine) -> None:
    (controller,) = line.json("cluster", "controllers")
    address = controller["endpoints"][0].partition("://")[2]
    for words in (("topics", "list"), ("consume", "t"), ("produce", "t")):
        said = CommandLine(address)(*words)
        assert (said.status, said.failure.partition(". ")[0]) == (1, f"{address} answers no request of a client")
        assert "A controller of the quorum listens there" in said.failure
        assert "--bootstrap-controller" in said.failure


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cluster", "unregister"), "Missing argument 'ID'."),
        (("cluster", "unregister", "x"), "Invalid value for 'ID': 'x' is not a valid integer range."),
        (("cluster", "broker"), "No such command 'broker'. Did you mean 'brokers'?"),
        (("quorum", "add", "4"), "Missing option '--endpoint'."),
        (("quorum", "add", "4", "--endpoint", "h:1"), "--endpoint 'h:1' is not LISTENER://HOST:PORT."),
        (("quorum", "remove", "4", "--directory-id", "?"), "'?' is not the id of a directory."),
        (
            ("quorum", "describe", "--bootstrap-controller", "x:y"),
            "Invalid value for '--bootstrap-controller': 'x:y' is",
        ),
    ],
)
def test_wrong_words_are_one_line(line: CommandLine, words: tuple[str, ...], said: str) -> None:
    assert line(*words).failure.startswith(said)
