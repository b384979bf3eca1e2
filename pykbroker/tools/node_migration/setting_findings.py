"""Findings about a properties file: everything for which the start refuses it, and what has no effect.

Responsible for the order, which is that of the start. First come values from providers, then promises of protection,
then the rules between keys. Last come the parts of a node that are made from the configuration: key stores, logins,
plugins. Not responsible for any of these rules (pykbroker/config, pykbroker/node).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pykbroker.config import silent
from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import load
from pykbroker.config.protection import BrokenPromise, promises
from pykbroker.config.start_up import resolved_texts
from pykbroker.config.typed_config import Config
from pykbroker.node.node import Node
from pykbroker.runtime import OsRuntime
from pykbroker.tools.node_migration.findings import NodeFinding, logged_warnings, ok, stop, warn
from pykbroker_log.memory_disk import MemoryDisk

#: what to do about a setting whose protection is not given
_KEEP_OR_REMOVE = "Leave this node on Apache Kafka, or do without this protection and remove the setting"


def settings_findings(properties: Mapping[str, str], where: str) -> tuple[Config | None, list[NodeFinding]]:
    """Return the configuration, or None if it cannot be made, and the findings. `where` names the file."""
    found: list[NodeFinding] = []
    with logged_warnings() as logged:
        try:
            texts = resolved_texts(properties)
            found += [of_promise(each, where) for each in promises(texts)]
            config = load(texts)
            if not found:
                _make_parts(config)
        except (ConfigError, OSError) as error:
            return None, [*found, stop(f"The configuration is refused: {error}", where, "Correct it in the file")]
    lines = [*logged, *config.warnings, *silent.warnings(config)]
    found += [warn(line, where, "Read it once; the start logs the same line") for line in dict.fromkeys(lines)]
    if not found:
        found.append(ok("The start accepts each setting, and each has its effect", where))
    return config, found


def of_promise(promise: BrokenPromise, where: str) -> NodeFinding:
    return stop(f"This version does not give the protection that is set: {promise}", where, _KEEP_OR_REMOVE)


def _make_parts(config: Config) -> None:
    """Make the parts of a node, and start none of them. Raises ConfigError as the start does."""
    loop = asyncio.new_event_loop()
    try:
        Node(config, OsRuntime(loop, MemoryDisk(record=False)))
    finally:
        loop.close()
