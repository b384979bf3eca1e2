"""A running cluster of three nodes changes from PLAINTEXT to SASL_SSL in three rounds of restarts, while clients write.
The rounds add the secured listeners, use them, and remove the plain ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from testkit.background import InBackground
from testkit.certificates import authority, client_context, node_properties
from testkit.clients import PATIENCE_S, wait_until
from testkit.nodes.processes import write_properties
from testkit.nodes.secured_trio import MECHANISM, PLAIN, SCRAM, log_in
from testkit.nodes.trio import NUMBERS, REPLICATED, Trio
from testkit.nodes.wire import Wire
from testkit.ports import steady_port

pytestmark = pytest.mark.slow
#: Properties that no round changes, namely keys, users, and how the secured listeners are secured.
SECURED = {
    **REPLICATED,
    **node_properties(),
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL,SCONTROLLER:SASL_SSL",
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.enabled.mechanisms": MECHANISM,
    "listener.name.secured.scram-sha-512.sasl.jaas.config": f'{SCRAM} required username="node" password="node-secret";',
    "listener.name.scontroller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.scontroller.plain.sasl.jaas.config": f'{PLAIN} required username="controller" '
    'password="controller-secret" user_controller="controller-secret";',
}


class ChangingTrio(Trio):
    """Three nodes that `write(number, step)` configures. Step 0 is the start, step 1 has both kinds of listeners, step
    2 uses the secured ones, and step 3 has no others."""

    def __init__(self, folder: Path) -> None:
        self.plain = {number: steady_port() for number in NUMBERS}
        self.secured = {number: steady_port() for number in NUMBERS}
        self.secured_controllers = {number: steady_port() for number in NUMBERS}
        super().__init__(folder, "static", REPLICATED, users=[f"{MECHANISM}=[name=node,password=node-secret]"])

    def write(self, number: int, step: int) -> None:
        plain = [f"PLAINTEXT://{self.address(number)}", f"CONTROLLER://127.0.0.1:{self.controller_ports[number]}"]
        secured = [
            f"SECURED://127.0.0.1:{self.secured[number]}",
            f"SCONTROLLER://127.0.0.1:{self.secured_controllers[number]}",
        ]
        ports = self.controller_ports if step < 2 else self.secured_controllers
        write_properties(
            self.folder / f"{number}.properties",
            {
                "process.roles": "broker,controller",
                "node.id": number,
                "listeners": ",".join({1: plain + secured, 2: plain + secured, 3: secured}[step]),
                "controller.listener.names": {
                    1: "CONTROLLER,SCONTROLLER",
                    2: "SCONTROLLER,CONTROLLER",
                    3: "SCONTROLLER",
                }[step],
                "inter.broker.listener.name": "PLAINTEXT" if step < 2 else "SECURED",
                "log.dirs": self.data(number),
                "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{ports[each]}" for each in NUMBERS),
                **SECURED,
            },
        )

    def restart_all(self, step: int) -> None:
        """Restart the nodes, one after the other."""
        for number in NUMBERS:
            assert self.stop(number) == 0
            self.write(number, step)
            self.start(number).ready(PATIENCE_S)


class Writing(InBackground):
    """A producer that writes in a thread of its own. `acknowledged` has the values, in order."""

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        super().__init__(PATIENCE_S)
        self._topic = topic
        # With several requests in flight, librdkafka may write records twice (testkit/torture/epochs.py).
        once = {"acks": "all", "enable.idempotence": True, "max.in.flight": 1}
        self._producer = Producer({**settings, **once, "log_level": 0})
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []

    @contextmanager
    def going_on(self) -> Iterator[None]:
        with super().going_on():
            yield
            self.is_at(len(self.acknowledged) + 10)
        assert self._producer.flush(PATIENCE_S) == 0
        assert self.failed == []

    def is_at(self, count: int) -> None:
        wait_until(lambda: len(self.acknowledged) >= count, f"{count} records are acknowledged")

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%d" % number

            def told(error: Any, record: Any, value: bytes = value) -> None:
                if error is None:
                    self.acknowledged.append(value)
                else:
                    self.failed.append(str(error))

            self._producer.produce(self._topic, value, partition=0, on_delivery=told)
            self._producer.poll(0.01)
            number += 1


def test_three_rounds_of_restarts(tmp_path: Path) -> None:
    file = tmp_path / "authority.pem"
    file.write_bytes(authority().certificate_pem)
    with ChangingTrio(tmp_path) as trio:
        with Wire(trio.address(1), timeout=60) as wire:
            for name in ("plain", "secured"):
                wire.create(name, replication=3)
        plain = Writing({"bootstrap.servers": trio.bootstrap}, "plain")
        secured = Writing(
            {
                "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in trio.secured.values()),
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(file),
                "sasl.mechanism": MECHANISM,
                "sasl.username": "node",
                "sasl.password": "node-secret",
            },
            "secured",
        )
        with plain.going_on():
            trio.restart_all(1)
        with secured.going_on():
            trio.restart_all(2)
            trio.restart_all(3)
        wire = Wire(f"127.0.0.1:{trio.secured[1]}", tls=client_context(tmp_path), timeout=60)
        log_in(wire, "node", "node-secret")
        with wire:
            leaders = {name: wire.metadata(name).topics[0].partitions[0].leader_id for name in ("plain", "secured")}
        for name, writing in (("plain", plain), ("secured", secured)):
            wire = Wire(f"127.0.0.1:{trio.secured[leaders[name]]}", tls=client_context(tmp_path), timeout=60)
            with wire:
                log_in(wire, "node", "node-secret")
                found = wire.values(name)
            assert found == writing.acknowledged, name
            assert len(found) > 30
