"""The line that says where a node serves: as JSON it has every address, and each address answers."""

from __future__ import annotations

import json
import signal
import socket
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from pykbroker.entry.ready_line import as_json, node_in
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.certificates import client_context, node_properties
from testkit.console import blocks, page
from testkit.nodes.processes import Process, run, write_properties
from testkit.nodes.wire import Wire

PATIENCE_SECONDS = 60
PAGE = page("docs/other-languages.md")


def shape(value: Any) -> Any:
    """Names and types, without the values. A list has the shape of its members."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(one) for one in value]
    return type(value).__name__


def connected(listener: dict[str, Any]) -> socket.socket:
    return socket.create_connection((listener["host"], listener["port"]), timeout=PATIENCE_SECONDS)


def test_nodes_are_in_the_order_of_their_ids_on_one_line() -> None:
    line = as_json("a:1,b:2", "X", [{"node_id": 1001}, {"node_id": 10, "health": "/a\nb"}, {"node_id": 9}])
    assert "\n" not in line
    assert [node["node_id"] for node in json.loads(line)["nodes"]] == [9, 10, 1001]


def test_the_node_of_a_line() -> None:
    assert node_in(as_json("a:1", "X", [{"node_id": 7}]).encode() + b"\n") == {"node_id": 7}


@pytest.mark.parametrize(
    "line",
    [b"", b"\xff", b"hello\n", b"7", b"[]", b"{}", b'{"nodes": 3}', b'{"nodes": []}', b'{"nodes": [1]}',
     b'{"nodes": [{}]}', b'{"nodes": ["node_id"]}'],
)  # fmt: skip
def test_a_line_that_a_plugin_has_printed(line: bytes) -> None:
    assert node_in(line) is None


@pytest.mark.slow
def test_one_node_with_several_listeners(tmp_path: Path) -> None:
    listeners = "SSL://localhost:0,PLAINTEXT://{}:0,CONTROLLER://localhost:0"
    properties = {
        "process.roles": "broker,controller",
        "node.id": 7,
        "listeners": listeners.format(""),
        "advertised.listeners": listeners.format("localhost"),
        "listener.security.protocol.map": "SSL:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:0",
        "log.dirs": tmp_path / "data",
        "pykbroker.metrics.listener": "127.0.0.1:0",
        "pykbroker.health.socket": tmp_path / "health.sock",
        **node_properties(),
    }
    file = write_properties(tmp_path / "server.properties", properties)
    words = ("--format", "--ready-json", "--faults", "127.0.0.1:0")
    with Process(tmp_path / "log", str(file), *words) as process:
        told = process.ready(PATIENCE_SECONDS).told
        (node,) = told["nodes"]
        (documented,) = [json.loads(text[text.index("{") :]) for _, text in blocks(PAGE) if '"cluster_id"' in text]
        assert shape(told) | {"nodes": []} == shape(documented) | {"nodes": []}
        assert shape(node) | {"listeners": []} == shape(documented["nodes"][0]) | {"listeners": []}
        assert {json.dumps(shape(one)) for one in node["listeners"]} == {
            json.dumps(shape(one)) for one in documented["nodes"][0]["listeners"]
        }
        assert node["node_id"] == 7
        assert f"cluster.id={told['cluster_id']}\n" in (tmp_path / "data" / "meta.properties").read_text()
        secure, plain, controller = node["listeners"]
        named = [(one["name"], one["role"], one["security_protocol"], one["host"]) for one in node["listeners"]]
        assert named == [
            ("SSL", "broker", "SSL", "localhost"),
            ("PLAINTEXT", "broker", "PLAINTEXT", "localhost"),
            ("CONTROLLER", "controller", "PLAINTEXT", "localhost"),
        ]
        assert told["bootstrap_servers"] == f"localhost:{secure['port']}"
        with closing(connected(secure)) as sock:
            client_context(tmp_path).wrap_socket(sock, server_hostname="localhost").close()
        with Wire(f"localhost:{plain['port']}") as wire:
            assert [broker.node_id for broker in wire.call(MetadataRequest(topics=[])).brokers] == [7]
        connected(controller).close()
        with urlopen(node["metrics"], timeout=PATIENCE_SECONDS) as answer:
            assert b"kafka_server_" in answer.read()
        with urlopen(node["faults"], timeout=PATIENCE_SECONDS) as answer:
            assert json.loads(answer.read()) == {"faults": []}
        assert node["health"] == str(tmp_path / "health.sock")
        assert run("health", "--socket", node["health"]).returncode == 0
        assert process.interrupt(signal.SIGINT) == 0
        assert [json.loads(line) for line in process.lines] == [told]


@pytest.mark.slow
def test_what_a_node_does_not_have_is_null(tmp_path: Path) -> None:
    words = ("--ephemeral", "--port", "0", "--ready-json")
    with Process(tmp_path / "log", *words, env={"TMPDIR": str(tmp_path)}) as process:
        (node,) = process.ready(PATIENCE_SECONDS).told["nodes"]
        assert (node["metrics"], node["faults"]) == (None, None)
        assert Path(node["health"]).is_socket()
        assert process.interrupt(signal.SIGINT) == 0


@pytest.mark.slow
def test_a_start_that_fails_prints_no_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics = f"pykbroker.metrics.listener=127.0.0.1:{taken.getsockname()[1]}"
        words = ("--ready-json", "--port", "0", "--data-dir", str(tmp_path / "data"), "--set", metrics)
        done = run("start", *words, timeout=PATIENCE_SECONDS)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Address already in use" in done.stderr
