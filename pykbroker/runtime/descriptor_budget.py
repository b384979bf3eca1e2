"""Divides the descriptors that a process may open among its parts, so that no part takes the descriptors of another.

If too many files of logs are open, some are closed and opened again later. Connections beyond their number are closed
at once. The reserve is for descriptors without such a limit: connections that this node makes, the HTTP port, worker
processes, files that are open for a moment. Pure except for `of_this_process`.

Invariant: the parts together are never more than the limit.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass, replace
from typing import Final

UNBOUNDED: Final = 2**31 - 1
_MOST_FILES: Final = 16 * 1024
_LEAST_RESERVE: Final = 128
_MOST_RESERVE: Final = 2048
#: The most files for the loop that has only the metadata log and no log of a topic.
_FIRST_FILES: Final = 64


@dataclass(slots=True, frozen=True)
class DescriptorBudget:
    """The numbers of descriptors for files of logs, for the reserve, and for connections from other programs at all
    listeners."""

    files: int
    reserve: int
    connections: int

    def for_two_loops(self) -> tuple[DescriptorBudget, DescriptorBudget]:
        """Return the budget of the first loop, which has the metadata log, and that of the second loop, which has the
        logs of topics. Only the number of files is divided."""
        first = min(_FIRST_FILES, self.files // 2)
        return replace(self, files=first), replace(self, files=self.files - first)


def divide(limit: int) -> DescriptorBudget:
    files = min(_MOST_FILES, limit // 3)
    reserve = max(min(_LEAST_RESERVE, limit // 4), min(_MOST_RESERVE, limit // 8))
    return DescriptorBudget(files, reserve, limit - files - reserve)


def of_this_process(nodes: int = 1) -> DescriptorBudget:
    """Return the budget of one node, if `nodes` nodes share this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return divide(UNBOUNDED if soft == resource.RLIM_INFINITY else soft // nodes)
