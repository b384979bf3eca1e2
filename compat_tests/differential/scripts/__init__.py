"""The scripts, each a function of a Session (session.py): it runs against both nodes; the transcripts must be equal.

This list is explicit and in the order in which they run; the first ones look at a node on which nothing was done yet.
"""

from __future__ import annotations

from collections.abc import Callable

from compat_tests.differential.scripts import (
    cluster,
    configs,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    protocol,
    topics,
)
from compat_tests.differential.session import Session

SCRIPTS: dict[str, Callable[[Session], None]] = {
    script.__name__: script
    for module in (protocol, cluster, metadata, topics, configs, produce, fetch, offsets, groups)
    for script in module.SCRIPTS
}
