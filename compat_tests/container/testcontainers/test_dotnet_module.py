"""Testcontainers for .NET: the container of its KafkaBuilder (4.x), started with `docker` instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.container.conftest import NewContainer
from compat_tests.container.containers import docker
from compat_tests.container.host_clients import consume, produce
from testkit.image_environments import ENVIRONMENTS
from testkit.ports import steady_port

pytestmark = pytest.mark.timeout(900)

SCRIPT = "/testcontainers.sh"
ZOOKEEPER = """echo '' > /etc/confluent/docker/ensure
echo 'clientPort=2181' > zookeeper.properties
echo 'dataDir=/var/lib/zookeeper/data' >> zookeeper.properties
echo 'dataLogDir=/var/lib/zookeeper/log' >> zookeeper.properties
zookeeper-server-start zookeeper.properties &
"""


@pytest.mark.parametrize(
    ("mode", "before", "run", "line"),
    [
        pytest.param("KRaft", "", "/etc/kafka/docker/run", "Transitioning from RECOVERY to RUNNING", id="Apache"),
        pytest.param(
            "ZooKeeper mode", ZOOKEEPER, "/etc/confluent/docker/run", "[KafkaServer id=1] started", id="Confluent"
        ),
        pytest.param(
            "KRaft",
            "",
            "/etc/confluent/docker/run",
            "Transitioning from RECOVERY to RUNNING",
            id="Confluent, WithKRaft",
        ),
    ],
)
def test_dotnet_module(
    mode: str, before: str, run: str, line: str, new_container: NewContainer, tmp_path: Path
) -> None:
    port = steady_port()
    node = new_container(
        ENVIRONMENTS[f"testcontainers-dotnet, {mode}"],
        options=["-p", f"127.0.0.1:{port}:9092", "--entrypoint", "/bin/sh"],
        command=["-c", f"while [ ! -f {SCRIPT} ]; do sleep 0.1; done; {SCRIPT}"],
    )
    address = node.inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
    script = tmp_path / "testcontainers.sh"
    # The module adds the comma at the end.
    script.write_text(
        f"#!/bin/bash\n{before}"
        f"export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:{port},BROKER://{address}:9093,\n"
        f"exec {run}\n"
    )
    script.chmod(0o755)
    docker("cp", str(script), f"{node.name}:{SCRIPT}.new")
    node.run("mv", f"{SCRIPT}.new", SCRIPT, user="0")
    node.wait_for(line)
    produce(f"127.0.0.1:{port}", "orders", ["one", "two", "three"])
    assert consume(f"127.0.0.1:{port}", "orders", 3) == ["one", "two", "three"]
    assert node.log().count("Kafka Server started") == 1
