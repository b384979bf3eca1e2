"""The error for a name that does not exist in a cluster, with the nearest existing name."""

from __future__ import annotations

from collections.abc import Iterable

import click

from pykbroker.config.nearest import nearest
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker_wire.errors import ErrorCode


def unknown(kind: str, name: str, known: Iterable[str], listed_by: str | None = None) -> click.ClickException:
    """Return the error. `listed_by`: the command that lists the existing names; without it the error lists them."""
    there = sorted(known)
    meant = nearest(name, there)
    if meant is not None:
        what_to_do = f"did you mean '{meant}'?"
    elif listed_by is not None:
        what_to_do = f"`pykbroker {listed_by}` names those that there are"
    else:
        what_to_do = f"there are {', '.join(there)}" if there else "there is none at all"
    return click.ClickException(f"There is no {kind} '{name}': {what_to_do}")


def unknown_topic(name: str, known: Iterable[str]) -> click.ClickException:
    return unknown("topic", name, known, "topics list")


def missing_topic(name: str, known: Iterable[str], what_to_do: str) -> click.ClickException:
    """Return the error for a topic that a command needs, with the nearest existing name and what to do otherwise."""
    meant = nearest(name, sorted(known))
    nearer = "" if meant is None else f"did you mean '{meant}'? Otherwise "
    return click.ClickException(f"There is no topic '{name}': {nearer}{what_to_do}")


def of_keys(error: AskFailed, keys: Iterable[str], known: Iterable[str]) -> Exception:
    """Return the error for a refused configuration. If a key is unknown, the error has the nearest known key."""
    names = set(known)
    wrong = [key for key in keys if key not in names]
    if error.code != ErrorCode.INVALID_CONFIG or not wrong:
        return error
    meant = nearest(wrong[0], names)
    return error if meant is None else click.ClickException(f"{str(error).rstrip('.')}: did you mean {meant}?")
