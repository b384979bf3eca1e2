"""An authorizer whose loop stands still when it decides about topics with certain names."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from typing import Final

from pykbroker.plugins import RequestOfClient

#: The decision to describe the topic "stand-30" stops its loop for 30 s;
STAND: Final = "stand"
#: a decision to write to "write-30" does so,
WRITE: Final = "write"
#: and one about "hold-5" holds the interpreter's lock for 5 s, as a long call of C does: every loop stands still.
HOLD: Final = "hold"
_OPERATIONS: Final = {STAND: "DESCRIBE", WRITE: "WRITE", HOLD: "DESCRIBE"}
PROPERTY: Final = {"authorizer.class.name": "python:tests.node.loops.standing_authorizer.StandingAuthorizer"}


class StandingAuthorizer:
    """Allows everything. Each name works once for an instance, because one request may ask several times."""

    def __init__(self) -> None:
        self._done: set[str] = set()

    def configure(self, configs: Mapping[str, str]) -> None:
        pass

    def authorize(self, request: RequestOfClient, operation: str, resource_type: str, resource_name: str) -> bool:
        how, _, seconds = resource_name.partition("-")
        if _OPERATIONS.get(how) == operation and resource_name not in self._done:
            self._done.add(resource_name)
            if how == HOLD:
                # A function of a PyDLL is called with the lock.
                ctypes.PyDLL(None).sleep(int(seconds))
            else:
                time.sleep(int(seconds))
        return True

    def authorize_some(self, request: RequestOfClient, operation: str, resource_type: str) -> bool:
        return True
