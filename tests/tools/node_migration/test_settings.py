"""The check of a properties file: it stops for each key for which the start does, and shows no secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pykbroker.config.key_table import STATIC_KEYS
from pykbroker.config.kinds import PASSWORD
from pykbroker.tools.node_migration.setting_findings import settings_findings
from tests.node.configuration.test_locked_doors import CASES, LINE, SASL
from tests.tools.node_migration.nodes_to_check import settings, stops, warnings

SECRET = "s3cr3t-that-none-may-see"


@pytest.mark.parametrize(("texts", "named"), CASES)
def test_each_key_that_protects_is_a_stop(texts: dict[str, str], named: str, tmp_path: Path) -> None:
    _, found = settings_findings(settings(tmp_path, texts), "server.properties")
    said = stops(found)
    assert any(re.match(re.escape(LINE) + named + r"[^ ]* \(", line) for line in said), said


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({"process.roles": "broker"}, "controller.listener.names"),
        ({"node.id": "x"}, "node.id"),
        ({**SASL, "sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI"),
        ({**SASL, "sasl.enabled.mechanisms": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"replica.selector.class": "com.example.Selector"}, "replica.selector.class"),
        ({"zookeeper.connect": "localhost:2181", "process.roles": ""}, "process.roles"),
        (
            {
                "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
                "security.inter.broker.protocol": "SSL",
                "inter.broker.listener.name": "",
                "ssl.keystore.location": "/nowhere.p12",
            },
            "nowhere.p12|inter.broker",
        ),
    ],
)
def test_a_configuration_that_the_start_refuses_is_a_stop(texts: dict[str, str], named: str, tmp_path: Path) -> None:
    config, found = settings_findings(settings(tmp_path, texts), "server.properties")
    assert config is None
    (line,) = stops(found)
    assert line.startswith("The configuration is refused: ")
    assert re.search(named, line), line


def test_what_has_no_effect_is_a_warning_and_no_stop(tmp_path: Path) -> None:
    key = next(name for name, row in STATIC_KEYS.items() if not row.acts and row.refused is None and row.default == 1)
    config, found = settings_findings(settings(tmp_path, {key: "1"}), "server.properties")
    assert config is not None
    assert not stops(found)
    assert any("no effect" in line and key in line for line in warnings(found)), found


def test_a_plain_node_is_fine(tmp_path: Path) -> None:
    config, found = settings_findings(settings(tmp_path), "server.properties")
    assert config is not None
    assert [each.level.value for each in found] == ["ok"]


@pytest.mark.parametrize("others", [{}, {"node.id": "x"}, SASL])
def test_no_secret_is_in_a_finding(others: dict[str, str], tmp_path: Path) -> None:
    passwords = [name for name, row in STATIC_KEYS.items() if row.type is PASSWORD]
    assert len(passwords) > 8
    texts = {**others, **dict.fromkeys(passwords, SECRET), "an.unknown.key": SECRET}
    texts |= {f"listener.name.plaintext.{name}": SECRET for name in passwords}
    texts["listener.name.sasl.plain.sasl.jaas.config"] = f"no JAAS {SECRET}"
    _, found = settings_findings(settings(tmp_path, texts), "server.properties")
    assert stops(found)
    assert SECRET not in repr(found)
