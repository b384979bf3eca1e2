"""The check of one node: reads its properties file, its directories and its process, and collects all findings.

Responsible for the order of the parts, and for what each needs from the one before. Not responsible for any finding.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pykbroker.config.typed_config import Config
from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pykbroker.runtime.descriptor_budget import UNBOUNDED
from pykbroker.tools.node_migration.cluster_facts import ClusterFacts
from pykbroker.tools.node_migration.cluster_findings import NodeIdentity, cluster_findings
from pykbroker.tools.node_migration.directory_findings import OpenedDirectories, directory_findings
from pykbroker.tools.node_migration.findings import NodeFinding, logged_warnings, warn
from pykbroker.tools.node_migration.log_start_findings import log_start_findings
from pykbroker.tools.node_migration.metadata_findings import metadata_findings
from pykbroker.tools.node_migration.node_files import read_node_files
from pykbroker.tools.node_migration.process_findings import ProcessFacts, environment_findings
from pykbroker.tools.node_migration.setting_findings import settings_findings
from pykbroker_wire.primitives import uuid_to_str


@dataclass(slots=True)
class CheckedNode:
    """The node as the check has read it, with the findings so far."""

    config: Config | None
    findings: list[NodeFinding] = field(default_factory=list)
    directories: OpenedDirectories | None = None
    image: MetadataImage = EMPTY_IMAGE
    #: True if a process runs on one of the directories
    runs: bool = False


def checked_settings(properties: Mapping[str, str], where: str) -> CheckedNode:
    """Check the properties. Then `check_directories` can follow if there is a configuration."""
    config, found = settings_findings(properties, where)
    return CheckedNode(config, [*found, *environment_findings(_this_process())])


def check_directories(node: CheckedNode, *, runs_in_cluster: bool | None) -> None:
    """Check the directories and the metadata log. `runs_in_cluster`: see directory_findings.py."""
    config = node.config
    assert config is not None, "the configuration is refused"
    now_ms = time.time_ns() // 1_000_000
    with logged_warnings() as logged:
        files = read_node_files(config)
        node.runs = any(each.is_locked for each in files.directories)
        node.directories, found = directory_findings(
            config, files, runs_in_cluster=runs_in_cluster, now_ms=now_ms, user=os.geteuid()
        )
        if node.directories is not None:
            node.image, more = metadata_findings(config, files.copy, node.directories, now_ms=now_ms)
            found += more
            for log_dir in node.directories.log_dirs:
                found += log_start_findings(log_dir, files.first_segments, node.image)
    node.findings += found
    where = ", ".join(config.log_dirs)
    node.findings += [warn(line, where, "The start logs the same line") for line in logged]


def check_cluster(node: CheckedNode, facts: ClusterFacts) -> None:
    """Add the findings about the live cluster. Call it after `check_directories`."""
    config, opened = node.config, node.directories
    assert config is not None, "the configuration is refused"
    directory_id = None if opened is None else opened.formatted.directory_ids[config.metadata_log_dir]
    identity = NodeIdentity(
        config.node_id,
        config.is_broker,
        config.is_controller,
        None if opened is None else opened.formatted.cluster_id,
        None if directory_id is None else uuid_to_str(directory_id),
        config.voters,
        node.runs,
    )
    node.findings += cluster_findings(facts, identity)


def _this_process() -> ProcessFacts:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessFacts(dict(os.environ), UNBOUNDED if hard == resource.RLIM_INFINITY else hard)
