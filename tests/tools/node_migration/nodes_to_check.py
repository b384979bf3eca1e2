"""Nodes whose directories tests of the check read: one that Apache Kafka has left, and what stands in their files."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path

from pykbroker.config.load import development_profile
from pykbroker.tools.node_migration.findings import FindingLevel, NodeFinding
from pykbroker.tools.node_migration.node_check import CheckedNode, check_directories, checked_settings

_ARCHIVE = Path(__file__).parents[2] / "golden" / "data_directories" / "apache-kafka-4.3.1-clean.tar.xz"
#: of the node in the archive
NODE = {"node.id": "1"}


def unpacked(folder: Path) -> Path:
    """Return a directory as Apache Kafka 4.3.1 has left it after a clean stop."""
    with tarfile.open(_ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    (meta,) = folder.rglob("meta.properties")
    return meta.parent


def settings(data: Path | str, texts: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**development_profile(str(data), 0), **(texts or {})}


def checked(properties: Mapping[str, str], *, runs_in_cluster: bool | None = None) -> CheckedNode:
    """Return the findings about a properties file and its directories, as the command collects them."""
    node = checked_settings(properties, "server.properties")
    if node.config is not None:
        check_directories(node, runs_in_cluster=runs_in_cluster)
    return node


def stops(findings: list[NodeFinding]) -> list[str]:
    return [each.what for each in findings if each.level is FindingLevel.STOP]


def warnings(findings: list[NodeFinding]) -> list[str]:
    return [each.what for each in findings if each.level is FindingLevel.WARN]


def files(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return the content and the time of each file below a folder, and of each folder its time."""
    return {
        str(each.relative_to(path)): (each.read_bytes() if each.is_file() else b"", each.stat().st_mtime_ns)
        for each in sorted(path.rglob("*"))
    }
