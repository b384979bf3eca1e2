"""The ways in which a start of a node may differ from the usual one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykbroker.metadata.restored import Restored


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """`may_format`: format directories that are absent or empty. `restored`: the limits of a cluster that was put back
    to an earlier state. `stands`: all voters of the quorum start together, and this one begins their first election at
    once."""

    may_format: bool = False
    restored: Restored | None = None
    stands: bool = False


AS_USUAL: Final = StartOptions()
