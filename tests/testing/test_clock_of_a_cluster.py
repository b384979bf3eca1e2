"""`clock.advance` of a cluster and over HTTP. Every node has the jump, and no node loses its place."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

import pykbroker
from pykbroker.testing import Cluster
from testkit.nodes.nodes import eventually
from testkit.nodes.processes import Process
from tests.testing.test_clock import CONFIG, DAY_MS, consumer_of
from tests.testing.test_faults_server import ask


@pytest.mark.slow
def test_all_nodes_have_the_jump_and_none_loses_its_place() -> None:
    with Cluster(config={**CONFIG, "offsets.topic.num.partitions": 3}) as cluster:
        cluster.create_topic("orders", partitions=3, config={"retention.ms": DAY_MS})
        for partition in range(3):
            cluster.produce("orders", "old", partition=partition)
        consumer = consumer_of(cluster, "billing")
        assert eventually("a record", lambda: consumer.poll(1)).value() == b"old"
        elections = [cluster.controller(), *(cluster.leader("orders", partition) for partition in range(3))]
        cluster.clock.advance("2 d")
        # A group without members and offsets is gone when offsets expire, as in Apache Kafka.
        assert cluster.groups() == []
        for partition in range(3):
            cluster.produce("orders", "new", partition=partition)
        eventually("old records go", lambda: [one.value for one in cluster.records("orders")] == [b"new"] * 3)
        assert eventually("the consumer comes back", lambda: consumer.poll(1)).value() in (b"old", b"new")
        assert elections == [cluster.controller(), *(cluster.leader("orders", partition) for partition in range(3))]
        assert all(set(cluster.in_sync_replicas("orders", partition)) == {1, 2, 3} for partition in range(3))
        consumer.close()


@pytest.mark.slow
def test_a_node_that_was_paused_or_stopped_has_the_jump_when_it_is_back() -> None:
    with Cluster() as cluster:
        cluster.pause(2)
        cluster.stop(3)
        cluster.clock.advance("7 d")
        cluster.restore()
        times = [
            cluster._running[node].read(lambda found: found.services.runtime.client_clock.time()) for node in (1, 2, 3)
        ]
        assert max(times) - min(times) < 60
        (total,) = {
            cluster._running[node].read(lambda found: found.services.runtime.client_clock.jumps.total_ms)
            for node in (1, 2, 3)
        }
        assert total == 7 * DAY_MS


def test_the_clock_over_http() -> None:
    with pykbroker.Broker(CONFIG) as broker, broker.faults_over_http() as url:
        where = urlsplit(url).netloc
        assert ask(where, "GET", "/clock") == (200, {"advanced_ms": 0})
        assert ask(where, "POST", "/clock", {"advance": "45s"}) == (200, {"advanced_ms": 45_000})
        assert broker.clock.advanced.total_seconds() == 45
        assert ask(where, "POST", "/clock", {"advance": "1 h", "wall_clock": True})[0] == 200
        wrongs: tuple[object, ...] = (
            {"advance": "soon"},
            {"advance": 0},
            {},
            [],
            {"advance": "1s", "wall_clock": 1},
            {"by": "1s"},
        )
        for wrong in wrongs:
            status, body = ask(where, "POST", "/clock", wrong)
            assert (status, list(body)) == (400, ["error"])
        assert ask(where, "DELETE", "/clock")[0] == 405
        assert ask(where, "GET", "/clock") == (200, {"advanced_ms": 3_645_000})


def test_one_session_ends_over_http() -> None:
    with pykbroker.Broker(CONFIG) as broker, broker.faults_over_http() as url:
        where = urlsplit(url).netloc
        broker.create_topic("orders")
        consumer = consumer_of(broker, "billing")
        eventually("the consumer has a partition", lambda: consumer.poll(0.01) or consumer.assignment())
        (member,) = broker.group("billing").members
        one = {"group_id": "billing", "member": member.member_id}
        assert ask(where, "POST", "/groups/expire", one) == (204, None)
        assert broker.group("billing").members == ()
        status, body = ask(where, "POST", "/groups/expire", one)
        assert (status, body["error"]) == (404, f"group billing has no session of a member {member.member_id}")
        wrongs: tuple[object, ...] = ({}, [], {**one, "more": 1}, {**one, "member": 1}, {"group_id": "billing"})
        for wrong in wrongs:
            status, body = ask(where, "POST", "/groups/expire", wrong)
            assert (status, list(body)) == (400, ["error"])
        assert ask(where, "GET", "/groups/expire")[0] == 405
        consumer.close()


@pytest.mark.slow
def test_sessions_of_a_broker_in_another_process_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    fault_rules = ("--faults", "127.0.0.1:0", "--set", "group.initial.rebalance.delay.ms=0")
    with Process(log, "--ephemeral", "--port", "0", *fault_rules) as process:
        process.ready(60)
        (where,) = re.findall(r"Fault rules are taken at http://(\S+)/faults", log.read_text())
        admin = AdminClient({"bootstrap.servers": process.address})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(60)
        consumer = Consumer({"bootstrap.servers": process.address, "group.id": "billing"})
        consumer.subscribe(["orders"])

        def members() -> list[str]:
            described = admin.describe_consumer_groups(["billing"])["billing"].result(60)
            return [one.member_id for one in described.members]

        def joined() -> list[str]:
            # It joins again only while it is asked for records.
            consumer.poll(0.01)
            return members() if consumer.assignment() else []

        (first,) = eventually("the consumer joins", joined)
        assert ask(where, "POST", "/groups/expire", {"group_id": "billing", "member": "nobody"})[0] == 404
        assert ask(where, "POST", "/groups/expire", {"group_id": "billing", "member": first}) == (204, None)
        assert first not in members()
        (second,) = eventually("the consumer comes back", lambda: [one for one in joined() if one != first])
        assert ask(where, "POST", "/clock", {"advance": "30s"}) == (200, {"advanced_ms": 30_000})
        assert second in members()
        assert ask(where, "POST", "/clock", {"advance": "1 min"}) == (200, {"advanced_ms": 90_000})
        assert second not in members()
        consumer.close()
