"""The image with a real container engine: its time to start, its resources, its data, its refusals."""

from __future__ import annotations

import json
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from compat_tests.container.conftest import NewContainer
from compat_tests.container.containers import SERVES, Container, docker
from compat_tests.container.host_clients import at, consume, produce, topics_at
from testkit.ports import steady_port
from testkit.slowness import slowness

#: The engine may have to make a base image first.
pytestmark = pytest.mark.timeout(900)

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
OTHER_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
LINES = (
    "[BrokerLifecycleManager id=1] The broker has been unfenced. Transitioning from RECOVERY to RUNNING.",
    "[KafkaServer id=1] started",
    f"[KafkaRaftServer nodeId=1] {SERVES}",
)
MB = 1_000_000
#: Names that users' scripts call, in both images' spelling.
NAMES = (
    "acls",
    "broker-api-versions",
    "cluster",
    "configs",
    "console-consumer",
    "console-producer",
    "console-share-consumer",
    "consumer-groups",
    "consumer-perf-test",
    "delete-records",
    "features",
    "get-offsets",
    "groups",
    "leader-election",
    "log-dirs",
    "metadata-quorum",
    "producer-perf-test",
    "reassign-partitions",
    "run-class",
    "server-start",
    "server-stop",
    "share-consumer-perf-test",
    "share-groups",
    "storage",
    "topics",
    "transactions",
    "verifiable-share-consumer",
)


def variables(port: int, **more: str) -> dict[str, str]:
    """Return the variables of a combined node as compose files have it, for clients of the host."""
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"CONTROLLER://:29093,HOST://:{port},PLAINTEXT://:19092",
        "KAFKA_ADVERTISED_LISTENERS": f"HOST://localhost:{port},PLAINTEXT://localhost:19092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:29093",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "CLUSTER_ID": CLUSTER_ID,
        **more,
    }


def published(port: int) -> list[str]:
    return ["-p", f"127.0.0.1:{port}:{port}"]


def refusal(container: Container) -> str:
    """Return the one line of a container that did not start."""
    assert container.wait_for_end() == 1, container.log()
    (line,) = (line for line in container.log().splitlines() if line.startswith("pykbroker:"))
    assert "Traceback" not in container.log()
    return line


def test_the_image_is_small(image: str, base: str) -> None:
    sizes = [int(docker("image", "inspect", "-f", "{{.Size}}", name).stdout) for name in (image, base)]
    assert sizes[0] - sizes[1] <= 75 * MB


def test_what_the_image_says_of_itself(image: str) -> None:
    config = docker("image", "inspect", "-f", "{{json .Config.Volumes}} {{json .Config.ExposedPorts}}", image).stdout
    assert config.split() == [
        '{"/etc/kafka/secrets":{},"/mnt/shared/config":{},"/var/lib/kafka/data":{}}',
        '{"9092/tcp":{}}',
    ]
    config = docker("image", "inspect", "-f", "{{.Config.User}} {{.Config.Entrypoint}} {{.Config.Cmd}}", image).stdout
    assert config.split() == ["appuser", "[]", "[/etc/kafka/docker/run]"]


def test_one_node_serves_the_host_and_keeps_its_data(new_container: NewContainer) -> None:
    port = steady_port()
    node = new_container(
        variables(port, KAFKA_PORT="tcp://10.0.0.1:9092", KAFKA_CREATE_TOPICS="made:3:1,kept:2:1:compact"),
        options=published(port),
    )
    log = node.wait_for(SERVES)
    assert topics_at(at(port)) == {"made": 3, "kept": 2}
    # No replication factor of the internal topics was given, and there is no second broker.
    produce(at(port), "orders", ["one", "two", "three"])
    assert consume(at(port), "orders", 3) == ["one", "two", "three"]
    for line in LINES:
        assert log.count(line) == 1
    assert log.count("KAFKA_PORT") == 1
    resident = {
        name.rstrip(":"): int(kilobytes) * 1024
        for name, kilobytes, *_ in map(str.split, node.run("cat", "/proc/1/status").stdout.splitlines())
        if name in ("RssAnon:", "VmRSS:")
    }
    assert resident["RssAnon"] <= 60 * MB, resident
    # SIGTERM reaches the node, although it is the first process of the container.
    docker("stop", "-t", "60", node.name)
    assert node.inspect("{{.State.ExitCode}} {{.State.OOMKilled}}") == "0 false"
    assert "[KafkaRaftServer nodeId=1] shut down completed" in node.log()
    docker("start", node.name)
    node.wait_for(SERVES, 2)
    assert consume(at(port), "orders", 3) == ["one", "two", "three"]
    assert topics_at(at(port)) == {"made": 3, "kept": 2, "orders": 1}


def test_a_container_serves_within_a_second(new_container: NewContainer) -> None:
    """Measured by the clock, or, if other work slows every start down, by its processor time on a quiet machine."""
    taken: list[float] = []
    for _ in range(5):
        node = new_container()
        node.wait_for(SERVES)
        taken.append(node.seconds_to_ready())
        taken[-1] = min(taken[-1], node.processor_seconds() / slowness())
        node.close()
        if taken[-1] <= 1.0:
            return
    raise AssertionError(f"each start took more than a second: {taken}")


def test_health(new_container: NewContainer) -> None:
    node = new_container()
    node.wait_for(SERVES)
    assert node.health() | {"broker": "RUNNING", "problems": [], "healthy": True} == node.health()
    node.healthy()
    assert node.run("stat", "-c", "%a %U", "/run/pykbroker/health.sock").stdout.split() == ["600", "appuser"]
    # Another user gets no answer.
    assert node.run("pykbroker", "health", user="12345", check=False).returncode == 1
    # A node that does not run gives no answer, although it still exists.
    docker("kill", "-s", "STOP", node.name)
    asked = node.run("pykbroker", "health", check=False)
    assert (asked.returncode, asked.stdout) == (1, "")
    docker("kill", "-s", "CONT", node.name)
    assert node.run("pykbroker", "health").stdout == "node 1 serves\n"


def test_a_container_of_a_tool_is_healthy(new_container: NewContainer) -> None:
    tool = new_container(command=["sh", "-c", "echo works; exec sleep 600"])
    tool.healthy()
    probe = "/etc/kafka/docker/healthcheck"
    assert tool.run(probe).stdout == "no node was launched in this container\n"
    assert tool.run(probe, "--node", check=False).returncode == 1


def test_a_node_that_does_not_serve_is_not_healthy(new_container: NewContainer) -> None:
    """Its first process shows that it is not a tool, and so does the file that the launch leaves."""
    node = new_container(settings_of_a_node_that_waits())
    assert node.run("/etc/kafka/docker/healthcheck", check=False).returncode == 1
    node.wait_for("Incarnation")
    assert node.run("/etc/kafka/docker/healthcheck", check=False).returncode == 1
    assert node.run("/etc/kafka/docker/healthcheck", "--alive").returncode == 0
    node.run("test", "-e", "/run/pykbroker/launched")


def test_a_node_that_kafka_server_start_runs_is_healthy(new_container: NewContainer) -> None:
    file = "/opt/kafka/config/server.properties"
    formatted = f"kafka-storage format --standalone -t {CLUSTER_ID} -c {file}"
    node = new_container(command=["sh", "-c", f"{formatted} && /opt/kafka/bin/kafka-server-start.sh {file}"])
    node.healthy()
    assert node.run("pykbroker", "health").stdout == "node 1 serves\n"


def test_prometheus_and_the_command_line(new_container: NewContainer) -> None:
    port = steady_port()
    metrics = variables(
        port,
        KAFKA_PYKBROKER_METRICS_LISTENER="0.0.0.0:9404",
        PYKBROKER_FAULTS="0.0.0.0:9405",
        PYKBROKER_FAULTS_HOST="node",
    )
    scraped, faults = steady_port(), steady_port()
    ports = ["-p", f"127.0.0.1:{scraped}:9404", "-p", f"127.0.0.1:{faults}:9405"]
    node = new_container(metrics, options=[*published(port), *ports])
    node.wait_for(SERVES)
    jump = urllib.request.Request(
        f"http://127.0.0.1:{faults}/clock", b'{"advance": "45s"}', {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(jump, timeout=60) as answer:
        assert json.load(answer) == {"advanced_ms": 45_000}
    with urllib.request.urlopen(f"http://127.0.0.1:{scraped}/metrics", timeout=60) as answer:
        families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    assert families["kafka_controller_kafkacontroller_activecontrollercount"].samples[0].value == 1
    inside = ("-b", "localhost:19092")
    node.run("pykbroker", "topics", "create", "orders", *inside)
    produce(at(port), "orders", ["one"])
    assert node.run("pykbroker", "topics", "list", *inside).stdout.splitlines()[1].split()[0] == "orders"


def test_a_read_only_root(new_container: NewContainer) -> None:
    port = steady_port()
    node = new_container(variables(port), options=["--read-only", "--tmpfs", "/tmp", *published(port)])
    node.wait_for(SERVES)
    produce(at(port), "orders", ["one"])
    assert consume(at(port), "orders", 1) == ["one"]
    assert node.run("pykbroker", "health").stdout == "node 1 serves\n"


def test_another_user_of_the_group_root(new_container: NewContainer) -> None:
    node = new_container(options=["--user", "12345:0"])
    node.wait_for(SERVES)
    assert node.run("pykbroker", "health").stdout == "node 1 serves\n"


def test_the_first_process_waits_for_orphans(new_container: NewContainer) -> None:
    """A script of `docker exec` leaves a process to the node. It is a zombie until the node waits for it."""
    node = new_container()
    node.wait_for(SERVES)
    zombie = "cat /proc/[0-9]*/stat 2>/dev/null | grep -q ') Z 1 '"
    node.run("sh", "-c", f"(sleep 0.1 &); until {zombie}; do sleep 0.1; done")
    node.run("sh", "-c", f"while {zombie}; do sleep 0.5; done")


def test_roles_of_their_own_on_a_network(new_container: NewContainer, network: str) -> None:
    port = steady_port()
    shared = {
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@controller:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    }
    broker = new_container(
        {
            **shared,
            "KAFKA_NODE_ID": "2",
            "KAFKA_PROCESS_ROLES": "broker",
            "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://broker:19092,HOST://localhost:{port}",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        },
        options=["--network", network, "--network-alias", "broker", *published(port)],
    )
    controller = new_container(
        {
            **shared,
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "controller",
            "KAFKA_LISTENERS": "CONTROLLER://:9093",
            "KAFKA_ADVERTISED_LISTENERS": "",
        },
        options=["--network", network, "--network-alias", "controller"],
    )
    controller.wait_for(SERVES)
    broker.wait_for("Transitioning from RECOVERY to RUNNING")
    produce(at(port), "orders", ["one", "two"])
    assert consume(at(port), "orders", 2) == ["one", "two"]
    assert controller.health()["broker"] is None
    assert (broker.health()["leader_id"], broker.health()["is_controller"]) == (1, False)


def test_a_mounted_properties_file(new_container: NewContainer, volume: str) -> None:
    mounted = ["-v", f"{volume}:/mnt/shared/config"]
    writer = new_container(
        options=mounted,
        command=["sh", "-c", "sed s/num.partitions=1/num.partitions=5/ /etc/kafka/docker/server.properties "
                 "> /mnt/shared/config/server.properties"],
    )  # fmt: skip
    assert writer.wait_for_end() == 0
    node = new_container({"KAFKA_BROKER_RACK": "r1"}, options=mounted)
    node.wait_for(SERVES)
    written = node.run("cat", "/opt/kafka/config/server.properties").stdout.splitlines()
    assert {"num.partitions=5", "broker.rack=r1", "inter.broker.listener.name=PLAINTEXT"} <= set(written)


def test_a_volume_that_cannot_be_used_is_one_line(new_container: NewContainer, volume: str) -> None:
    port = 9092
    mounted = ["-v", f"{volume}:/var/lib/kafka/data"]
    first = new_container(variables(port), options=mounted)
    first.wait_for(SERVES)
    docker("stop", "-t", "60", first.name)
    wrong = refusal(new_container(variables(port, CLUSTER_ID=OTHER_CLUSTER_ID), options=mounted))
    assert f"Expected {OTHER_CLUSTER_ID}, but read {CLUSTER_ID}. The volume belongs to another cluster" in wrong
    read_only = refusal(new_container(variables(port), options=["-v", f"{volume}:/var/lib/kafka/data:ro"]))
    assert "/var/lib/kafka/data is read-only: mount the volume for reading and writing" in read_only
    take = new_container(options=[*mounted, "--user", "0"], command=["chown", "-R", "0:0", "/var/lib/kafka/data"])
    assert take.wait_for_end() == 0
    owned = refusal(new_container(variables(port), options=mounted))
    assert "/var/lib/kafka/data belongs to user 0 and is not writable for user 1000: chown -R 1000" in owned
    # The remedy in the line works.
    docker("run", "--rm", *mounted, "--user", "0", first.inspect("{{.Config.Image}}"),
           "chown", "-R", "1000", "/var/lib/kafka/data")  # fmt: skip
    new_container(variables(port), options=mounted).wait_for(SERVES)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"KAFKA_SSL_KEY_CREDENTIALS": "none"}, "/etc/kafka/secrets/none with ssl.key.password cannot be read"),
        ({"KAFKA_ADVERTISED_LISTENERS": "SASL_PLAINTEXT://localhost:9092"}, "SASL_PLAINTEXT"),
        ({"KAFKA_LOG_RETENTION_MS": "a week"}, "log.retention.ms"),
    ],
)
def test_what_cannot_be_given_stops_the_start(new_container: NewContainer, more: dict[str, str], line: str) -> None:
    assert line in refusal(new_container({**variables(9092), **more}))


def test_the_names_of_kafkas_tools(new_container: NewContainer) -> None:
    node = new_container()
    node.wait_for(SERVES)
    words = [name for tool in NAMES for name in (f"kafka-{tool}", f"/opt/kafka/bin/kafka-{tool}.sh")]
    found = node.run("bash", "-c", f"command -v {' '.join(words)}").stdout.splitlines()
    assert len(found) == len(words)
    assert len(node.run("kafka-storage", "random-uuid").stdout.strip()) == 22
    information = node.run("/opt/kafka/bin/kafka-storage.sh", "info", "-c", "/opt/kafka/config/server.properties")
    assert "Found log directory:\n  /var/lib/kafka/data" in information.stdout
    # As health checks and scripts of compose files call them.
    local = ("--bootstrap-server", "localhost:9092")
    created = node.run("/opt/kafka/bin/kafka-topics.sh", *local, "--create", "--topic", "orders", "--partitions", "2")
    assert created.stdout == "Created topic orders.\n"
    assert node.run("kafka-topics", *local, "--list").stdout == "orders\n"
    produced = "printf 'one\\ntwo\\n' | kafka-console-producer --bootstrap-server localhost:9092 --topic orders"
    node.run("bash", "-c", produced)
    consumed = node.run(
        "kafka-console-consumer", *local, "--topic", "orders", "--from-beginning", "--max-messages", "2"
    )
    assert sorted(consumed.stdout.splitlines()) == ["one", "two"]
    size = ("--num-records", "100", "--record-size", "10", "--throughput", "-1")
    sent = node.run("kafka-producer-perf-test", *local, "--topic", "orders", *size).stdout
    assert sent.startswith("100 records sent, ")
    shell = ("kafka.tools.GetOffsetShell", *local, "--topic", "orders")
    offsets = node.run("kafka-run-class", *shell).stdout.split()
    assert sum(int(line.rpartition(":")[2]) for line in offsets) == 102
    assert node.run("kafka-share-groups.sh", *local, "--list").stdout == ""
    shared = node.run("kafka-console-share-consumer", *local, "--topic", "orders", "--timeout-ms", "1000")
    assert (shared.stdout, shared.stderr.splitlines()[-1]) == ("", "Processed a total of 0 messages")
    assert node.run("kafka-share-groups.sh", *local, "--list").stdout == "console-share-consumer\n"
    missing = node.run("kafka-streams-groups.sh", "--list", check=False)
    assert (missing.returncode, missing.stderr) == (
        1,
        "kafka-streams-groups.sh: this image has no such tool: streams groups (KIP-1071) are not served\n",
    )
    # Commands by which scripts and health checks wait.
    node.run("cub", "kafka-ready", "-b", "localhost:9092", "1", "20")
    assert "found only 1" in node.run("ub", "kafka-ready", "-b", "localhost:9092", "2", "0", check=False).stderr
    node.run("nc", "-z", "localhost", "9092")
    assert node.run("nc", "-z", "localhost", "9", check=False).returncode == 1
    node.run("kafka-server-stop")
    assert node.wait_for_end() == 0


def test_the_places_of_bitnamis_image(new_container: NewContainer, volume: str) -> None:
    """The first container only puts scripts into the volume that the second one mounts at their place."""
    scripts = ["-v", f"{volume}:/docker-entrypoint-initdb.d"]
    sourced = "echo sourced before the start; KAFKA_BROKER_RACK=stays-there"
    executed = "printf '#!/bin/sh\\necho run\\n' > b.sh; chmod +x b.sh"
    writing = f"cd /docker-entrypoint-initdb.d; echo '{sourced}' > a.sh; {executed}; echo > notes.txt"
    writer = new_container(options=[*scripts, "--user", "0"], command=["sh", "-c", writing])
    assert writer.wait_for_end() == 0
    words = ["/opt/bitnami/scripts/kafka/entrypoint.sh", "/opt/bitnami/scripts/kafka/run.sh"]
    node = new_container(options=scripts, command=words)
    log = node.wait_for(SERVES)
    lines = log.splitlines()
    assert lines.index("sourced before the start") < lines.index("run")
    assert "/docker-entrypoint-initdb.d/notes.txt is not run: its name does not end with .sh" in lines
    assert "stays-there" not in node.run("cat", "/opt/kafka/config/server.properties").stdout
    local = ("--bootstrap-server", "localhost:9092")
    node.run("/opt/bitnami/kafka/bin/kafka-topics.sh", *local, "--create", "--topic", "orders")
    docker("restart", "-t", "60", node.name)
    again = node.wait_for(SERVES, 2)
    assert again.count("sourced before the start") == 1


def test_a_format_that_a_script_appends_to_ensure(new_container: NewContainer) -> None:
    """As the update_run.sh of Confluent's examples for their first images with KRaft."""
    edits = (
        "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure; "
        "sed -i 's/cub zk-ready/echo ignore zk-ready/' /etc/confluent/docker/ensure; "
        'echo "kafka-storage format --ignore-formatted -t $(kafka-storage random-uuid) -c /etc/kafka/kafka.properties" '
        ">> /etc/confluent/docker/ensure; /etc/confluent/docker/run"
    )
    node = new_container(variables(9092, CLUSTER_ID=""), command=["sh", "-c", edits])
    assert "Formatting metadata directory" in node.wait_for(SERVES)


def test_the_properties_files_of_earlier_versions(new_container: NewContainer) -> None:
    """A controller and a broker of their own, from Apache Kafka's files, in one container."""
    tool = new_container(command=["sleep", "600"])
    starts = ""
    for name in ("controller", "broker"):
        file = f"/opt/kafka/config/kraft/{name}.properties"
        standalone = ["--standalone"] if name == "controller" else []
        tool.run("/opt/kafka/bin/kafka-storage.sh", "format", *standalone, "-t", CLUSTER_ID, "-c", file)
        starts += f"LOG_DIR=/tmp/{name} /opt/kafka/bin/kafka-server-start.sh -daemon {file} & "
    tool.run("sh", "-c", f"mkdir /tmp/controller /tmp/broker; {starts} wait")
    ready = tool.run("cub", "kafka-ready", "-b", "localhost:9092", "1", "60", check=False)
    assert ready.returncode == 0, (ready.stderr, tool.run("sh", "-c", "cat /tmp/*/kafkaServer.out").stdout)
    # Both started at once, and one of them has the place of the health check.
    assert tool.health()["node_id"] in (1, 2)


def test_arguments_replace_variables(new_container: NewContainer) -> None:
    node = new_container(variables(9092), command=["/etc/kafka/docker/run", "KAFKA_BROKER_RACK=r7", "CLUSTER_ID=abc"])
    node.wait_for(SERVES)
    assert "broker.rack=r7" in node.run("cat", "/opt/kafka/config/server.properties").stdout
    assert "cluster.id=abc" in node.run("cat", "/var/lib/kafka/data/meta.properties").stdout


def test_a_signal_ends_a_start(image: str, new_container: NewContainer) -> None:
    """A node that is not up must handle signals: as the first process of its container it would be killed otherwise."""
    node = new_container(settings_of_a_node_that_waits())
    node.wait_for("Incarnation")
    began = time.monotonic()
    docker("stop", "-t", "60", node.name)
    assert time.monotonic() - began < 60
    assert node.inspect("{{.State.ExitCode}}") != "137", node.log()


def settings_of_a_node_that_waits() -> dict[str, str]:
    """Return the settings of a broker whose controller does not exist."""
    return {
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_NODE_ID": "2",
        "KAFKA_PROCESS_ROLES": "broker",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    }
