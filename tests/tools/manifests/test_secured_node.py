"""A node as a process with the configuration of a SASL_SSL Compose file, and the command of its `users`."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pykbroker.tools.container.server_properties import server_properties
from pykbroker.tools.manifests.compose import ComposeCluster, compose
from pykbroker.tools.manifests.secured import Security
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from testkit.image_environments import DEFAULTS
from testkit.nodes.processes import Process, environment, run, run_here
from testkit.nodes.secured_trio import log_in
from testkit.nodes.wire import Closed, Wire
from testkit.ports import steady_port

PASSWORD = "what admin alone knows"


def made_by_a_person(folder: Path) -> None:
    """Make the files that the comment of the Compose file requires."""
    done = run("tls", "create", str(folder), "--host", "localhost")
    assert done.returncode == 0, done.stderr
    for name, password in {"admin": PASSWORD, "alice": "other"}.items():
        (folder / f"{name}.password").write_text(f"{password}\n")


@pytest.mark.slow
def test_only_the_users_of_the_file_log_in(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    made_by_a_person(secrets)
    ports = {port: str(steady_port()) for port in ("9092", "9093", "19092", "19093", "9404")}

    def here(text: str) -> str:
        """Return the text with the ports, the host and the folder of this test."""
        for port, ours in ports.items():
            text = text.replace(f":{port}", f":\0{ours}")
        return text.replace("\0", "").replace("node-1", "localhost").replace("/run/secrets", str(secrets))

    cluster = ComposeCluster(image="i", brokers=1, security=Security.SASL_SSL, users=("alice",))
    services = yaml.safe_load(compose(cluster))["services"]
    variables = {name: str(text) for name, text in services["node-1"]["environment"].items()}
    composed = server_properties(variables, mounted=None, defaults=DEFAULTS, hostname="node-1")
    file = tmp_path / "server.properties"
    file.write_text(f"{here(composed.text)}\nlog.dirs={tmp_path / 'data'}\n")
    formatted = run_here("format", str(file), "--cluster-id", variables["CLUSTER_ID"])
    assert formatted.returncode == 0, formatted.stderr
    program = tmp_path / "bin" / "pykbroker"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pykbroker "$@"\n')
    program.chmod(0o755)
    with Process(tmp_path / "log", str(file)) as node:
        node.ready()
        shell, options, script = services["users"]["command"]
        done = subprocess.run(
            [shell, options, here(script).replace("$$", "$")],
            env={**environment(), "PATH": f"{program.parent}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr + node.log.read_text()

        def connected() -> Wire:
            return Wire(f"localhost:{ports['9092']}", tls=context)

        context = ssl.create_default_context(cafile=str(secrets / "authority.pem"))
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name="orders", num_partitions=1, replication_factor=1)], timeout_ms=10_000
        )
        with connected() as admin:
            log_in(admin, "admin", PASSWORD)
            assert [topic.error_code for topic in admin.call(request).topics] == [ErrorCode.NONE]
        with connected() as alice:
            log_in(alice, "alice", "other")
            refused = alice.call(CreateTopicsRequest(topics=[CreatableTopic(name="more")], timeout_ms=10_000))
            assert [topic.error_code for topic in refused.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with connected() as liar, pytest.raises(AssertionError, match="error_code=58"):
            log_in(liar, "admin", "other")
        with connected() as stranger, pytest.raises(Closed):
            stranger.call(request)
