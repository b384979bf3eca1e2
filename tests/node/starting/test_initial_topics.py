"""Topics that a node creates when it starts, and Kafka's own topics on a node that is alone."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import load
from pykbroker.config.topics_to_create import InitialTopic, parse_initial_topics
from pykbroker.config.typed_config import Config
from pykbroker.topic_creation.auto_create import internal_number
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.acting import acts
from testkit.nodes.nodes import eventually
from testkit.nodes.processes import Process, format_combined
from testkit.nodes.sim import Play, Sim
from testkit.nodes.wire import Wire

KEY = "pykbroker.create.topics"
RUNNING = "[BrokerLifecycleManager id=1] The broker has been unfenced. Transitioning from RECOVERY to RUNNING."
LINES = (RUNNING, "[KafkaServer id=1] started", "[KafkaRaftServer nodeId=1] Kafka Server started")


def test_the_notation() -> None:
    entries = ("a", "b:2", "c:3:1", "d.e_f-g:4:2:compact")
    assert list(parse_initial_topics(entries)) == [
        InitialTopic("a", -1, -1, {}),
        InitialTopic("b", 2, -1, {}),
        InitialTopic("c", 3, 1, {}),
        InitialTopic("d.e_f-g", 4, 2, {"cleanup.policy": "compact"}),
    ]


@pytest.mark.parametrize(
    "entry", ["a:", "a:0", "a:x", "a:1:0", "a:1:10000", "a:1:1:both", "a b", "..", ":1", "a:1:1:compact:x"]
)
def test_what_is_no_topic_stops_the_start(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"topic\[:partitions\[:replicas"):
        _config(**{KEY: f"fine,{entry}"})


@acts(broker=("pykbroker.create.topics",))
def test_topics_are_there_when_the_node_says_that_it_serves(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def partitions(sim: Sim) -> dict[str, int]:
        topics = (await sim.call(MetadataRequest(topics=None))).topics
        assert [message for message in caplog.messages if message in LINES] == list(LINES)
        return {topic.name: len(topic.partitions) for topic in topics}

    assert play(partitions, {}) == {}
    caplog.clear()
    assert play(partitions, {KEY: "orders:3:1,events", "num.partitions": "2"}) == {"orders": 3, "events": 2}


def test_what_needs_more_brokers_waits_and_holds_nothing_up(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def names(sim: Sim) -> set[str]:
        await asyncio.sleep(60)
        return {topic.name for topic in (await sim.call(MetadataRequest(topics=None))).topics}

    assert play(names, {KEY: "orders:1:3,events:1:1"}) == {"events"}
    waits = [message for message in caplog.messages if KEY in message]
    assert len(waits) == 1
    assert waits[0].startswith(f"Topics of {KEY} that cannot be created yet: orders: ")


def test_a_topic_that_cannot_be_is_one_line(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def names(sim: Sim) -> set[str]:
        await asyncio.sleep(60)
        return {topic.name for topic in (await sim.call(MetadataRequest(topics=None))).topics}

    assert play(names, {KEY: "huge:200000:1"}) == set()
    failures = [message for message in caplog.messages if KEY in message]
    assert len(failures) == 1
    assert failures[0].startswith(f"Topic huge of {KEY} is not created: ")


# -- Kafka's own topics -----------------------------------------------------------------------------------------------


def _config(**properties: str) -> Config:
    return load(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            **properties,
        }
    )


@pytest.mark.parametrize(
    ("properties", "only_voter", "brokers", "expected"),
    [
        ({}, True, 1, 1),
        ({}, True, 2, 3),
        ({}, False, 1, 3),
        ({"offsets.topic.replication.factor": "3"}, True, 1, 3),
        ({"offsets.topic.replication.factor": "2"}, True, 1, 2),
        ({"process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}, True, 1, 3),
    ],
)
def test_internal_topics_have_one_replica_only_where_nothing_else_can_be_meant(
    properties: dict[str, str], only_voter: bool, brokers: int, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    config = _config(**properties)
    found = internal_number(config, "offsets.topic.replication.factor", only_voter=only_voter, brokers=brokers)
    assert found == expected
    assert ("this node is the whole cluster" in caplog.text) == (expected == 1)


@pytest.mark.slow
def test_a_lone_node_without_configured_factors_has_coordinators(tmp_path: Path) -> None:
    file = format_combined(tmp_path, {"log.dirs": tmp_path / "data"})
    with Process(tmp_path / "log", str(file)) as process, Wire(process.ready().address) as wire:
        for kind in (0, 1):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["key"])

            def found(request: FindCoordinatorRequest = request) -> bool | None:
                return wire.call(request).coordinators[0].error_code == ErrorCode.NONE or None

            eventually(f"a coordinator of kind {kind}", found)
        topics = {topic.name: topic for topic in wire.metadata("__consumer_offsets", "__transaction_state").topics}
        assert {len(topic.partitions[0].replica_nodes) for topic in topics.values()} == {1}
    log = (tmp_path / "log").read_text()
    assert "transaction.state.log.min.isr is 1 instead of 2: it is not set, and this node is the whole cluster" in log
