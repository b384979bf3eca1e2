"""How a breach of an invariant is told: by the invariant's id, and by the nodes, offsets and epochs concerned.

The ids are those of the project's list: R of the metadata quorum, P of partitions, T of producers, A of what clients
were told, C of controllers.
"""

from __future__ import annotations


class InvariantBroken(AssertionError):
    """Something that must always hold does not. `rule` is the invariant's id."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def require(holds: bool, rule: str, text: str) -> None:
    """Raise InvariantBroken. For rare checks: `text` is built in any case."""
    if not holds:
        raise InvariantBroken(rule, text)
