"""Testcontainers for Node: its Kafka module."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from compat_tests.built import npm_packages
from compat_tests.container.testcontainers.conftest import OutputOf
from testkit import needs
from testkit.certificates import authority, node_identity

pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).parent / "node"


def records(output_of: OutputOf, *words: str) -> list[str]:
    node = needs.node(20)
    packages = ["env", f"NODE_PATH={npm_packages(HERE)}", "KAFKAJS_NO_PARTITIONER_WARNING=1"]
    found: list[str] = json.loads(output_of([*packages, node, os.fspath(HERE / "modules.js"), *words]))
    return found


@pytest.mark.parametrize("mode", ["default", "zookeeper"])
def test_node_module(mode: str, tagged: str, output_of: OutputOf) -> None:
    assert records(output_of, tagged, mode, "one", "two", "three") == ["one", "two", "three"]


def test_node_module_with_a_tag_from_before_kraft(tagged_7: str, output_of: OutputOf) -> None:
    """The module starts a ZooKeeper in addition to the broker and waits for the ports of both."""
    assert records(output_of, tagged_7, "default", "one", "two", "three") == ["one", "two", "three"]


def test_node_module_with_tls_and_a_user(tagged: str, output_of: OutputOf, tmp_path: Path) -> None:
    store, trusted = tmp_path / "node.p12", tmp_path / "authority.pem"
    store.write_bytes(node_identity().pkcs12("storesecret"))
    trusted.write_bytes(authority().certificate_pem)
    words = f"sasl:{store}:storesecret:{trusted}"
    assert records(output_of, tagged, words, "one", "two", "three") == ["one", "two", "three"]
