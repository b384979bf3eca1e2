"""The scripts, each a function of a Session (session.py): it runs against both nodes; the transcripts must be equal.

This list is explicit and in the order in which they run; the first ones use a node on which nothing was done yet.
"""

from __future__ import annotations

from collections.abc import Callable

from compat_tests.differential.scripts import (
    cluster,
    configs,
    consumer_groups,
    consumer_offsets,
    crowds,
    dead_letters,
    directories,
    exhaustion,
    fetch,
    groups,
    isolation,
    levels,
    metadata,
    migration,
    min_isr,
    offsets,
    other_nodes,
    produce,
    protocol,
    rebalances,
    replicas,
    share_events,
    share_fetches,
    share_groups,
    share_states,
    stored_records,
    topics,
    transaction_offsets,
    transactions,
    walks,
)
from compat_tests.differential.session import Session

MODULES = (
    protocol,
    cluster,
    metadata,
    topics,
    configs,
    produce,
    fetch,
    offsets,
    groups,
    transactions,
    transaction_offsets,
    isolation,
    consumer_groups,
    consumer_offsets,
    migration,
    share_groups,
    share_fetches,
    share_events,
    share_states,
    stored_records,
    walks,
)
#: by the kind of nodes that they need (nodes.KINDS), one kind after the other
BY_KIND: dict[str, tuple[Callable[[Session], None], ...]] = {
    "latest": (*(script for module in MODULES for script in module.SCRIPTS), *exhaustion.LONG_SCRIPTS),
    "first": (*crowds.SCRIPTS, *rebalances.SCRIPTS, *levels.SCRIPTS),
    "upgrade": (*levels.POLICY_SCRIPTS["upgrade"], rebalances.full_classic_group),
    "min isr": min_isr.SCRIPTS,
    "directories": directories.SCRIPTS,
    "dead letters": dead_letters.SCRIPTS,
    "downgrade": (*levels.POLICY_SCRIPTS["downgrade"], share_states.deleted_share_states),
}
SCRIPTS: dict[str, Callable[[Session], None]] = {
    script.__name__: script for scripts in BY_KIND.values() for script in scripts
}
KIND_OF = {script.__name__: kind for kind, scripts in BY_KIND.items() for script in scripts}
#: with three nodes, and with one of them stopped: compat_tests/three_nodes runs them
THREE_NODES = (*replicas.SCRIPTS, *other_nodes.SCRIPTS)
ONE_STOPPED = other_nodes.ONE_STOPPED
#: minutes long
LONG = frozenset(script.__name__ for script in exhaustion.LONG_SCRIPTS)
