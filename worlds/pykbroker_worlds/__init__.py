"""Whole nodes and clusters on virtual time, one seed for everything that happens. See worlds/README.md.

`from pykbroker_worlds import World`. A name is imported only when it is used, so that the plugin of pytest costs
nothing where no test has a world.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker_worlds.apps import App, AppFailed
    from pykbroker_worlds.checking.claims import (
        AtLeastOnce,
        ExactlyOnce,
        Followed,
        InOrder,
        NothingLost,
        NoZombieWrites,
        OffsetsNotAhead,
    )
    from pykbroker_worlds.checking.evidence import AnyOf, Did, Effect, Records, StoredRecord
    from pykbroker_worlds.checking.judge import ClaimFailed
    from pykbroker_worlds.simulated.loop import NotSimulated
    from pykbroker_worlds.store import Store, StoreConflict, StoreError
    from pykbroker_worlds.watching import Stuck
    from pykbroker_worlds.world import World

__all__ = [
    "AnyOf",
    "App",
    "AppFailed",
    "AtLeastOnce",
    "ClaimFailed",
    "Did",
    "Effect",
    "ExactlyOnce",
    "Followed",
    "InOrder",
    "NoZombieWrites",
    "NotSimulated",
    "NothingLost",
    "OffsetsNotAhead",
    "Records",
    "Store",
    "StoreConflict",
    "StoreError",
    "StoredRecord",
    "Stuck",
    "World",
]

_HOMES = {
    "AnyOf": "checking.evidence",
    "App": "apps",
    "AppFailed": "apps",
    "AtLeastOnce": "checking.claims",
    "ClaimFailed": "checking.judge",
    "Did": "checking.evidence",
    "Effect": "checking.evidence",
    "ExactlyOnce": "checking.claims",
    "Followed": "checking.claims",
    "InOrder": "checking.claims",
    "NoZombieWrites": "checking.claims",
    "NotSimulated": "simulated.loop",
    "NothingLost": "checking.claims",
    "OffsetsNotAhead": "checking.claims",
    "Records": "checking.evidence",
    "Store": "store",
    "StoreConflict": "store",
    "StoreError": "store",
    "StoredRecord": "checking.evidence",
    "Stuck": "watching",
    "World": "world",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
