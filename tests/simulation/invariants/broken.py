"""The error for a broken invariant: its text has the invariant's id, and the nodes, offsets and epochs concerned.

The ids are those of the project's list: R of the metadata quorum, P of partitions, T of producers, A of
acknowledgements, C of controllers.
"""

from __future__ import annotations


class InvariantBroken(AssertionError):
    """An invariant does not hold. `rule` is its id."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def require(holds: bool, rule: str, text: str) -> None:
    """Raise InvariantBroken if `holds` is False. For rare checks, because `text` is built in any case."""
    if not holds:
        raise InvariantBroken(rule, text)
