"""A description of each key in our own words: one or two sentences. Loaded only when needed.

A module holds the texts of the module of the same name in keys/, and is generated from the comments above its rows
(key_texts.py). Each text begins with the key's name on a line of its own. The sentences follow, indented. A test
demands one text for each key, and no others.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker.config.kinds import Key


def parse(block: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    name = ""
    for line in block.splitlines():
        if line.startswith(" "):
            texts[name] = f"{texts[name]} {line.strip()}".strip()
        elif line:
            name = line.strip()
            assert name not in texts, f"{name} has two texts"
            texts[name] = ""
    return texts


def text_of(key: Key) -> str:
    return texts_of_scope(key.dynamic if key.dynamic in ("per-topic", "per-group") else "broker")[key.name]


@cache
def texts_of_scope(scope: str) -> dict[str, str]:
    """Return the texts of a scope. Topic and broker keys may share a name, so each scope has its own texts."""
    from pykbroker.config.texts import coordination, scoped, security, server, storage

    if scope == "per-topic":
        return parse(scoped.TOPIC)
    if scope == "per-group":
        return parse(scoped.GROUP)
    blocks = (
        (server.NODE, server.NETWORK, server.OPERATIONS)
        + (storage.LOG, storage.REPLICATION, storage.REMOTE)
        + (coordination.GROUPS, coordination.SHARE, coordination.TRANSACTIONS)
        + (security.TLS, security.SASL)
        + (scoped.DYNAMIC_ONLY, scoped.OWN)
    )
    return {name: text for block in blocks for name, text in parse(block).items()}
