"""`pykbroker start --brokers N` as a person uses it: real processes, signals, what is said."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest

from pykbroker.entry.local_cluster.supervisor import WantedCluster, prepare
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.nodes.nodes import eventually
from testkit.nodes.processes import Process, run
from testkit.nodes.wire import Wire, batch
from testkit.ports import steady_port

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 120.0


def cluster(folder: Path, *arguments: str) -> Process:
    return Process(folder / "said", "--port", "0", "--data-dir", str(folder / "tree"), *arguments)


def addresses(process: Process) -> list[str]:
    return process.ready(PATIENCE_SECONDS).address.split(",")


def pid_of(folder: Path, number: int) -> int | None:
    """The process that runs a node. It is found by its command, as a person finds it."""
    properties = os.fsencode(folder / "tree" / f"node-{number}" / "server.properties")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if properties in words:
                return int(entry.name)
    return None


def acknowledged(process: Process, address: str, value: bytes, topic: str = "t") -> None:
    """By all replicas, through the node that leads."""

    def produced() -> bool:
        for each in address.split(","):
            with Wire(each) as wire:
                if wire.produce(topic, batch(value), acks=-1).error_code == ErrorCode.NONE:
                    return True
        return False

    eventually(f"{value!r} is acknowledged", produced, seconds=PATIENCE_SECONDS)


def every_address_is_told(process: Process, tree: Path) -> None:
    """The line of --ready-json of four brokers, of which three are voters."""
    nodes = process.told["nodes"]
    assert [node["node_id"] for node in nodes] == [1, 2, 3, 4]
    assert process.told["cluster_id"] == json.loads((tree / "cluster.json").read_text())["cluster.id"]
    for node, address in zip(nodes, addresses(process), strict=True):
        brokers, controllers = (
            [f"{one['host']}:{one['port']}" for one in node["listeners"] if one["role"] == role]
            for role in ("broker", "controller")
        )
        assert brokers == [address]
        assert len(controllers) == (node["node_id"] < 4)
        assert node["health"] == str(tree / f"node-{node['node_id']}" / "health.sock")
        assert node["faults"] is None
        with urlopen(node["metrics"], timeout=PATIENCE_SECONDS) as answer:
            assert b"kafka_server_" in answer.read()


def test_three_brokers_survive_and_stop_in_order_and_grow(tmp_path: Path) -> None:
    with cluster(tmp_path, "--brokers", "3", "--set", "num.partitions=1") as process:
        found = addresses(process)
        assert len(set(found)) == 3
        with Wire(found[0]) as wire:
            wire.create("t", partitions=1, replication=3)
        acknowledged(process, process.address, b"one")
        first = pid_of(tmp_path, 2)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        eventually(
            "node 2 is ready again",
            lambda: "node 2 is ready again" in process.log.read_text(),
            seconds=PATIENCE_SECONDS,
        )
        assert pid_of(tmp_path, 2) not in (None, first)
        assert re.search(
            r"^pykbroker: node 2 was ended by signal 9, and is started again in 0\.5 s", process.tail(), re.M
        )
        acknowledged(process, process.address, b"two")
        assert process.interrupt(signal.SIGINT, timeout=PATIENCE_SECONDS) == 0
        assert process.lines == [f"pykbroker is ready: {process.address}"]
    for number in (1, 2, 3):
        log = (tmp_path / "tree" / f"node-{number}" / "server.log").read_text()
        assert f"[KafkaRaftServer nodeId={number}] shut down completed" in log
        assert "Traceback" not in log
    voters = [node["directory.id"] for node in json.loads((tmp_path / "tree" / "cluster.json").read_text())["nodes"]]
    with cluster(
        tmp_path, "--brokers", "4", "--ready-json", "--set", "pykbroker.metrics.listener=127.0.0.1:0"
    ) as process:
        assert len(addresses(process)) == 4
        every_address_is_told(process, tmp_path / "tree")
        acknowledged(process, process.address, b"three")
        with Wire(process.address.split(",")[3]) as wire:
            known = wire.call(MetadataRequest(topics=[]))
            assert sorted(broker.node_id for broker in known.brokers) == [1, 2, 3, 4]
        assert process.interrupt(signal.SIGTERM, timeout=PATIENCE_SECONDS) == 0
        assert len(process.lines) == 1
    grown = json.loads((tmp_path / "tree" / "cluster.json").read_text())["nodes"]
    assert [node["directory.id"] for node in grown] == [*voters, None]
    refused = run("start", "--brokers", "2", "--port", "0", "--data-dir", str(tmp_path / "tree"))
    assert refused.returncode == 1
    assert refused.stderr == (
        f"pykbroker: The cluster in {tmp_path / 'tree'} has 4 brokers, and --brokers asks for 2: start all of them, or "
        "choose another --data-dir\n"
    )


def test_controllers_of_their_own_and_the_end_of_the_supervisor(tmp_path: Path) -> None:
    with cluster(tmp_path, "--brokers", "1", "--controllers", "1") as process:
        (address,) = addresses(process)
        with Wire(address) as wire:
            wire.create("t", partitions=1)
        acknowledged(process, address, b"one")
        assert pid_of(tmp_path, 1001) is not None
        # One tree has one supervisor.
        second = run("start", "--brokers", "1", "--port", "0", "--data-dir", str(tmp_path / "tree"))
        assert (second.returncode, second.stderr) == (1, f"pykbroker: another cluster runs in {tmp_path / 'tree'}\n")
        process.kill()
        # No node outlives it.
        eventually(
            "all nodes have ended",
            lambda: pid_of(tmp_path, 1) is None and pid_of(tmp_path, 1001) is None,
            seconds=PATIENCE_SECONDS,
        )


def test_a_taken_port_is_found_before_the_tree_is_written(tmp_path: Path) -> None:
    # The second broker's port is the taken one, and the first one's is free.
    port = steady_port() + 1
    with socket.create_server(("127.0.0.1", port)):
        done = run("start", "--brokers", "2", "--port", str(port - 1), "--data-dir", str(tmp_path / "tree"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"pykbroker: node 2 cannot be bound to 127.0.0.1:{port}: Address already in use. Another program listens "
        "there, perhaps another node: --port N chooses other ports, --port 0 free ones\n"
    )
    assert [path.name for path in (tmp_path / "tree").iterdir()] == [".lock"]


def test_a_controller_needs_a_port_only_if_an_earlier_start_has_chosen_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        usual = taken.getsockname()[1]
        wanted = WantedCluster(1, 0, usual - 10_000, str(tmp_path / "tree"), {})
        layout, _ = prepare(wanted)
    port = layout.members[0].controller_port
    assert port not in (None, usual)
    with (
        socket.create_server(("127.0.0.1", port or 0)),
        pytest.raises(OSError, match=f"the controller of node 1 cannot be bound to 127.0.0.1:{port}: .*--data-dir"),
    ):
        prepare(wanted)


def test_the_health_of_a_cluster_is_that_of_each_node(tmp_path: Path) -> None:
    with cluster(tmp_path, "--brokers", "2") as process:
        process.ready(PATIENCE_SECONDS)
        asked = run("health", "--data-dir", str(tmp_path / "tree"))
        assert (asked.returncode, asked.stdout) == (0, "node 1 serves\nnode 2 serves\n")
        (tmp_path / "tree" / "node-2" / "health.sock").unlink()
        half = run("health", "--data-dir", str(tmp_path / "tree"))
        assert (half.returncode, half.stdout) == (1, "node 1 serves\n")
        assert half.stderr.endswith("/node-2/health.sock: No such file or directory\n")


def test_a_node_that_cannot_start_ends_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics = f"pykbroker.metrics.listener=127.0.0.1:{taken.getsockname()[1]}"
        words = ("--port", "0", "--ready-json", "--data-dir", str(tmp_path / "tree"), "--set", metrics)
        done = run("start", "--brokers", "2", *words, timeout=120)
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.match(r"pykbroker: node \d ended with status 1; the end of .*/node-\d/server\.log:\n", done.stderr)
    assert "Address already in use" in done.stderr
    assert "Traceback" not in done.stderr
    assert pid_of(tmp_path, 1) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--controllers", "3"), "pykbroker: --controllers goes with --brokers\n"),
        (("--brokers", "0"), "pykbroker: --brokers 0: a cluster has at least one broker\n"),
        (("--brokers", "1", "x.properties"), "pykbroker: --brokers goes without a properties file; --set sets a key"),
        (("--brokers", "1", "--set", "node.id=7"), "pykbroker: node.id is decided by the cluster"),
        (("--brokers", "1", "--set", "num.partitions"), "pykbroker: --set takes KEY=VALUE, not 'num.partitions'\n"),
        (("--brokers", "1", "--set", "authorizer.class.name=x"), "pykbroker: "),
    ],
)
@pytest.mark.parametrize("place", ["--ephemeral", "--data-dir", "the usual one"])
def test_what_is_refused(tmp_path: Path, arguments: tuple[str, ...], said: str, place: str) -> None:
    where = {"--ephemeral": ["--ephemeral"], "--data-dir": ["--data-dir", str(tmp_path / "tree")]}.get(place, [])
    homes = dict.fromkeys(("TMPDIR", "XDG_DATA_HOME", "HOME"), str(tmp_path))
    done = run("start", *where, "--port", "0", *arguments, env=homes)
    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
