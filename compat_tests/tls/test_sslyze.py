"""sslyze judges TLS: it finds which versions and suites a listener accepts, and which known attacks work on it.

sslyze requires another version of cryptography than this project, so it runs in an environment of its own
(requirements.txt in this folder).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from compat_tests.node import make_node
from testkit import needs
from testkit.certificates import node_properties
from testkit.ports import steady_port

pytestmark = pytest.mark.slow
#: The last is a listener of controllers.
LISTENERS: Final = ("SSL", "SASL_SSL", "LOCKED")
VERSIONS: Final = ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1", "tls_1_2", "tls_1_3")
COMMANDS: Final = ("sslv2", "sslv3", "tlsv1", "tlsv1_1", "tlsv1_2", "tlsv1_3", "reneg", "compression", "heartbleed",
                   "openssl_ccs", "fallback", "robot")  # fmt: skip


@pytest.fixture(scope="module")
def judged(against: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield the results of sslyze for each listener, by the name of the scan."""
    python = needs.sslyze()
    plain = steady_port()
    ports = {listener: steady_port() for listener in LISTENERS}
    points = f"PLAINTEXT://localhost:{plain}"
    points += "".join(f",{name}://localhost:{ports[name]}" for name in LISTENERS if name != "LOCKED")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    node = make_node(
        against,
        {
            **node_properties(),
            "listeners": f"{points},CONTROLLER://localhost:{plain + 1},LOCKED://localhost:{ports['LOCKED']}",
            "controller.listener.names": "CONTROLLER,LOCKED",
            "advertised.listeners": points,
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOCKED:SSL,SSL:SSL,"
            "SASL_SSL:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} user_alice="alice-secret";',
        },
        port=plain,
    )
    try:
        node.start()
        out = tmp_path_factory.mktemp("sslyze") / "said.json"
        yield {listener: _ask(python, f"localhost:{ports[listener]}", out) for listener in LISTENERS}
    finally:
        node.close()


def _ask(python: str, address: str, out: Path) -> dict[str, Any]:
    scans = [f"--{command}" for command in COMMANDS]
    done = subprocess.run(
        [python, "-m", "sslyze", *scans, "--json_out", str(out), "--mozilla_config", "disable", address],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(out.read_text())["server_scan_results"]
    assert found["connectivity_status"] == "COMPLETED", found
    answers = {name: one for name, one in found["scan_result"].items() if one["status"] != "NOT_SCHEDULED"}
    assert {name: one["status"] for name, one in answers.items()} == dict.fromkeys(answers, "COMPLETED")
    return {name: one["result"] for name, one in answers.items()}


@pytest.mark.parametrize("listener", LISTENERS)
def test_only_tls_1_2_and_1_3(judged: dict[str, dict[str, Any]], listener: str) -> None:
    taken = {version: judged[listener][f"{version}_cipher_suites"]["accepted_cipher_suites"] for version in VERSIONS}
    assert [version for version in VERSIONS if taken[version]] == ["tls_1_2", "tls_1_3"]
    names = [suite["cipher_suite"]["name"] for version in VERSIONS for suite in taken[version]]
    assert not [
        name for name in names if any(weak in name for weak in ("NULL", "EXPORT", "RC4", "3DES", "anon", "MD5"))
    ]


@pytest.mark.parametrize("listener", LISTENERS)
def test_no_compression_and_no_known_attack(judged: dict[str, dict[str, Any]], listener: str, against: str) -> None:
    said = judged[listener]
    assert said["tls_compression"]["supports_compression"] is False
    assert said["heartbleed"]["is_vulnerable_to_heartbleed"] is False
    assert said["openssl_ccs_injection"]["is_vulnerable_to_ccs_injection"] is False
    assert said["robot"]["robot_result"].startswith("NOT_VULNERABLE")
    if against == "pykbroker":
        assert said["session_renegotiation"]["is_vulnerable_to_client_renegotiation_dos"] is False
        assert said["session_renegotiation"]["supports_secure_renegotiation"] is True
