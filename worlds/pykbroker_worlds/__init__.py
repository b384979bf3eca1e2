"""Whole nodes and clusters on virtual time, one seed for everything that happens. See worlds/README.md.

`from pykbroker_worlds import World`. A name is imported only when it is used, so that the plugin of pytest costs
nothing where no test has a world.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker_worlds.apps import App, AppFailed
    from pykbroker_worlds.simulated.loop import NotSimulated
    from pykbroker_worlds.store import Store, StoreConflict, StoreError
    from pykbroker_worlds.world import Effect, Stuck, World

__all__ = ["App", "AppFailed", "Effect", "NotSimulated", "Store", "StoreConflict", "StoreError", "Stuck", "World"]

_HOMES = {
    "App": "apps",
    "AppFailed": "apps",
    "NotSimulated": "simulated.loop",
    "Store": "store",
    "StoreConflict": "store",
    "StoreError": "store",
    "Effect": "world",
    "Stuck": "world",
    "World": "world",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
