"""Apache Kafka and pykbroker from the same properties, with users, rules and the resources of the matrix.

Clients log in on the listener of brokers (PLAIN). Listeners of controllers are plain here, and the address of a
connection identifies the client. Until the first rules exist, every operation without a rule is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from compat_tests.acls.acl_cases import (
    CLIENT,
    DOOMED,
    MINE,
    MINE_EMPTY,
    MINE_NEW,
    MINE_SHARED,
    OTHER,
    RECORDS,
    TOPICS,
    Case,
    Values,
)
from compat_tests.acls.acl_clients import CLIENTS, EVERYTHING, NONE, AclClient, rules_of_nodes
from compat_tests.acls.acl_requests import build
from compat_tests.differential.plain import Symbols
from compat_tests.differential.session import NOW_MS, Step
from compat_tests.node import Node, Pykbroker
from compat_tests.sasl.secured import MODULES, Ports
from pykbroker.dispatch.rows import On
from pykbroker.metadata.features import METADATA_VERSION_DEFAULT, metadata_version_name
from pykbroker_wire.apis import APIS
from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.create_acls import CreateAclsRequest
from pykbroker_wire.primitives import DecodeError, TopLevel
from testkit.nodes.wire import Wire
from testkit.oracle.kafka import NEWEST, ApacheKafka

PATIENCE_S = 30.0
ANSWER_TIMEOUT_S = 8.0
ADMIN = AclClient("admin", "127.0.0.1", ())
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN.name}",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "controller.quorum.append.linger.ms": "0",
    # A member that sends one heartbeat stays until the end.
    "group.consumer.session.timeout.ms": "3600000",
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.share.session.timeout.ms": "3600000",
    "group.share.max.session.timeout.ms": "3600000",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
}


def logged_in(port: int, client: AclClient, on: On) -> Wire:
    """Return a connection of a client of the matrix: logged in, or from the address that identifies the client."""
    source = client.host if on is On.CONTROLLER else None
    wire = Wire(f"127.0.0.1:{port}", timeout=PATIENCE_S, client_id="matrix", source=source)
    if on is On.BROKER:
        for api, values in (
            ("SaslHandshake", {"mechanism": "PLAIN"}),
            ("SaslAuthenticate", {"auth_bytes": f"\0{client.name}\0{client.password}".encode()}),
        ):
            answer = wire.call(build(api, 1, values, {}), 1)
            assert answer.error_code == 0, f"{client.name} could not log in: {answer}"
    return wire


class GuardedNode:
    """A node of the two, with the connections of all clients to it."""

    def __init__(self, node: Node, ports: Ports) -> None:
        self.node = node
        self._ports = {On.BROKER: ports.sasl, On.CONTROLLER: ports.plain + 1}
        self._links: dict[tuple[str, On], Wire] = {}
        self.topic_ids: dict[str, bytes] = {}
        self._texts = {
            f"localhost:{ports.sasl}": "‹clients›",
            f"localhost:{ports.plain}": "‹nodes›",
            f"localhost:{ports.plain + 1}": "‹controllers›",
            str(node.data_dir): "‹data›",
        }

    def send(self, client: AclClient, on: On, case: Case, version: int) -> None:
        if case.doomed:
            self._make_topics(DOOMED)
        name = f"{client.name}.{version}.{on.name}".lower()
        values = _for_client(case.values, name)
        if case.before is not None:
            key, asked = case.before
            self._answer(client, on, build(APIS[key].name, version, _for_client(asked, name), self.topic_ids), version)
        self._send(client, on, build(APIS[case.key].name, version, values, self.topic_ids), version)

    def receive(self, client: AclClient, on: On, case: Case, version: int) -> Step:
        name = APIS[case.key].name
        link = self._links[client.name, on]
        frame = link.answer(ANSWER_TIMEOUT_S)
        if not isinstance(frame, bytes) or case.alone:
            self._links.pop((client.name, on)).close()
        if not isinstance(frame, bytes):
            return Step(client.name, name, version, None, frame.value)
        try:
            answer: Any = decode_response(case.key, version, frame)[1]
        except DecodeError as error:
            return Step(client.name, name, version, None, f"not decodable: {error}: {frame.hex()[:200]}")
        symbols = Symbols(self._texts, NOW_MS)
        for topic, topic_id in self.topic_ids.items():
            symbols.call("uuid", topic_id, topic)
        said = symbols.message(answer)
        return Step(client.name, name, version, None, _read_or_not(said) if case.own_records else said)

    def ask(self, client: AclClient, api: str, version: int, values: Values, on: On = On.BROKER) -> Any:
        """Send a request for the test's own needs, without keeping it."""
        return self._answer(client, on, build(api, version, values, self.topic_ids), version)

    def _send(self, client: AclClient, on: On, request: TopLevel, version: int) -> None:
        link = self._links.get((client.name, on))
        if link is None:
            link = self._links[client.name, on] = logged_in(self._ports[on], client, on)
        link.send_bytes(link.frame(request, version))

    def _answer(self, client: AclClient, on: On, request: TopLevel, version: int) -> Any:
        self._send(client, on, request, version)
        return self._links[client.name, on].receive(request.API_KEY, version)

    # The resources of the matrix.

    def know_topics(self) -> None:
        """Read the ids of the topics, which get the same names on both nodes in compared answers."""
        found = self.ask(ADMIN, "Metadata", 13, {"topics": None}).topics
        self.topic_ids = {topic.name: topic.topic_id for topic in found}

    def prepare(self) -> None:
        self._make_topics(*TOPICS)
        self._make_rules()
        partitions = [{"index": 0, "records": RECORDS}]
        written = [{"topic_id": f"id:{name}", "partition_data": partitions} for name in (MINE, OTHER)]
        produced = self.ask(ADMIN, "Produce", 13, {"acks": 1, "timeout_ms": 10_000, "topic_data": written})
        assert [part.error_code for topic in produced.responses for part in topic.partition_responses] == [0, 0]
        for kind in (0, 1):
            coordinated = {"coordinator_keys": [MINE], "key_type": kind}
            self._until_done("FindCoordinator", 6, coordinated, lambda answer: answer.coordinators[0].error_code)
        for group in (MINE, OTHER):
            committed = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
            topics = [{"topic_id": f"id:{name}", "partitions": committed} for name in (MINE, OTHER)]
            self._until_done(
                "OffsetCommit",
                10,
                {"group_id": group, "topics": topics},
                lambda answer: any(part.error_code for topic in answer.topics for part in topic.partitions),
            )
            producer = {"transactional_id": group, "transaction_timeout_ms": 60_000}
            self._until_done("InitProducerId", 5, producer, lambda answer: answer.error_code)
        member = {
            "group_id": MINE_NEW,
            "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": [MINE, OTHER],
            "topic_partitions": [],
        }
        joined = self.ask(ADMIN, "ConsumerGroupHeartbeat", 1, member)
        assert joined.error_code == 0, joined
        self._share()
        self._make_topics(DOOMED)
        self.know_topics()

    def _share(self) -> None:
        """Make the two share groups. Their share partitions have states before the member joins, so that it gets them
        at once from both nodes."""
        altered = [
            {"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]} for name in (MINE, OTHER)
        ]
        for group in (MINE_EMPTY, MINE_SHARED):
            self._until_done(
                "AlterShareGroupOffsets",
                0,
                {"group_id": group, "topics": altered},
                lambda answer: (
                    answer.error_code or any(part.error_code for topic in answer.responses for part in topic.partitions)
                ),
            )
        member = {
            "group_id": MINE_SHARED,
            "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "subscribed_topic_names": [MINE, OTHER],
        }
        joined = self.ask(ADMIN, "ShareGroupHeartbeat", 1, member)
        assert joined.error_code == 0, joined
        assert len(joined.assignment.topic_partitions) == 2, joined

    def _make_rules(self) -> None:
        rules = [*rules_of_nodes(), *(each for client in CLIENTS for each in client.creations())]
        made = self._answer(ADMIN, On.BROKER, CreateAclsRequest(creations=rules), 3)
        assert not any(result.error_code for result in made.results), made
        # Both halves of a node have applied them.
        for on, api, version in ((On.BROKER, "ListConfigResources", 1), (On.CONTROLLER, "DescribeQuorum", 0)):
            self._until_done(api, version, {}, lambda answer: not answer.error_code, NONE, on)
            self._until_done(api, version, {}, lambda answer: answer.error_code, EVERYTHING, on)

    def _make_topics(self, *names: str) -> None:
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
        made = self.ask(ADMIN, "CreateTopics", 7, {"topics": topics, "timeout_ms": 20_000})
        self.topic_ids.update((topic.name, topic.topic_id) for topic in made.topics if not topic.error_code)
        described = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}

        def served() -> bool:
            found = self.ask(ADMIN, "Metadata", 13, described).topics
            return all(topic.topic_id == self.topic_ids[topic.name] for topic in found) and not any(
                each.error_code for topic in found for each in (topic, *topic.partitions)
            )

        self.until(served)

    def _until_done(
        self,
        api: str,
        version: int,
        values: Values,
        failed: Callable[[Any], Any],
        client: AclClient = ADMIN,
        on: On = On.BROKER,
    ) -> None:
        self.until(lambda: not failed(self.ask(client, api, version, values, on)))

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, self.node.tail()
            time.sleep(0.005)

    def close(self) -> None:
        for link in self._links.values():
            link.close()


def _for_client(values: Any, name: str) -> Any:
    if isinstance(values, str):
        return values.replace(CLIENT, name)
    if isinstance(values, list):
        return [_for_client(each, name) for each in values]
    return {key: _for_client(each, name) for key, each in values.items()} if isinstance(values, Mapping) else values


def _read_or_not(answer: dict[str, Any]) -> dict[str, Any]:
    """Mask the answer to a Fetch of the metadata log, whose records and offsets differ between nodes."""
    for topic in answer["responses"]:
        for partition in topic["partitions"]:
            for field in ("records", "high_watermark", "last_stable_offset", "log_start_offset", "current_leader"):
                partition[field] = partition[field] not in (None, [], "")
    return answer


@contextmanager
def both_guarded() -> Iterator[tuple[GuardedNode, GuardedNode]]:
    """Apache Kafka and pykbroker, prepared."""
    users = " ".join(f'user_{client.name}="{client.password}"' for client in (ADMIN, *CLIENTS))
    with ExitStack() as stack:
        made = []
        # With the levels with which pykbroker begins.
        levels = ["--release-version", metadata_version_name(METADATA_VERSION_DEFAULT)]
        for kind in (partial(ApacheKafka, version=NEWEST, format_args=levels), Pykbroker):
            ports = Ports.free()
            more = {**CONFIG, "sasl.enabled.mechanisms": "PLAIN"}
            config = ports.config(more)
            config["listener.name.clients.plain.sasl.jaas.config"] = f"{MODULES['PLAIN']} required {users};"
            node: Node = kind(config, port=ports.plain)
            stack.callback(node.close)
            node.start()
            guarded = GuardedNode(node, ports)
            stack.callback(guarded.close)
            guarded.prepare()
            made.append(guarded)
        yield made[0], made[1]
