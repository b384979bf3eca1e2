"""The fault rules of a broker or a cluster in this process over HTTP. They are the same rules that Python sets."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import pykbroker
from pykbroker.config.kinds import ConfigError
from pykbroker.testing import Cluster
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.console import blocks, page
from testkit.nodes.processes import environment
from testkit.nodes.wire import Closed, Wire
from tests.testing.test_faults_server import ask

PATIENCE_SECONDS = 120


def metadata(address: str) -> bool:
    """Ask a node for its metadata; returns False if it closes the connection instead."""
    with Wire(address, timeout=PATIENCE_SECONDS) as wire:
        try:
            wire.call(MetadataRequest(topics=[]))
        except Closed:
            return False
        return True


def test_the_rules_of_a_broker_are_the_same_over_http() -> None:
    with pykbroker.Broker() as broker:
        with broker.faults_over_http() as url:
            where = urlsplit(url)
            assert (where.scheme, where.hostname, where.path) == ("http", "127.0.0.1", "/faults")
            broker.faults.add("Produce", callback=lambda _: None)
            rule = {"api": "Metadata", "client_id": "test", "disconnect": True, "times": 1}
            assert ask(where.netloc, "POST", "/faults", rule)[0] == 201
            assert [metadata(broker.bootstrap_servers) for _ in range(2)] == [False, True]
            assert [(fault.matched, fault.acted) for fault in broker.faults] == [(0, 0), (2, 1)]
            assert ask(where.netloc, "GET", "/faults")[1]["faults"][1]["matched"] == 2
            assert where.port is not None
            with (
                pytest.raises(OSError, match=f"Fault rules cannot be taken at {where.netloc}: "),
                broker.faults_over_http(where.port),
            ):
                pass
        assert len(broker.faults) == 2
        with closing(http.client.HTTPConnection(where.netloc)) as connection, pytest.raises(ConnectionRefusedError):
            connection.connect()


def test_before_the_start_there_is_none() -> None:
    for one in (pykbroker.Broker(), Cluster(nodes=1)):
        with pytest.raises(RuntimeError, match="is not running"), one.faults_over_http():
            pass


def test_a_broker_with_an_authorizer_serves_none() -> None:
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with (
        pykbroker.Broker({"authorizer.class.name": name, "super.users": "User:ANONYMOUS"}) as broker,
        pytest.raises(ConfigError, match="go without an authorizer"),
        broker.faults_over_http(),
    ):
        pass


@pytest.mark.slow
def test_the_program_for_other_languages(tmp_path: Path) -> None:
    """Its nodes have one set of rules: `times` counts the requests of all nodes."""
    (program,) = [text for language, text in blocks(page("docs/other-languages.md")) if language == "python"]
    file = tmp_path / "cluster_with_faults.py"
    file.write_text(program, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(file)], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        nodes = told["bootstrap_servers"].split(",")
        assert len(nodes) == 3
        where = urlsplit(told["faults"]).netloc
        rule = {"api": "Metadata", "client_id": "test", "disconnect": True, "times": 2}
        _, made = ask(where, "POST", "/faults", rule)
        assert [metadata(address) for address in nodes] == [False, False, True]
        found = ask(where, "GET", f"/faults/{made['id']}")[1]
        assert (found["matched"], found["acted"]) == (3, 2)
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stdout.read() == ""
