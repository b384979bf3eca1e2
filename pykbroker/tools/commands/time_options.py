"""The callbacks of options that take a time or a duration (tools/cluster/time_words.py)."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from pykbroker.tools.cluster.time_words import parsed_duration_ms, parsed_time_ms


def now_ms() -> int:
    return int(time.time() * 1000)


def time_ms(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Return a time as milliseconds since 1970, as the callback of an option."""
    try:
        return None if value is None else parsed_time_ms(value, now_ms())
    except ValueError as error:
        raise click.BadParameter(f"{error}.", ctx, parameter) from None


def duration_ms(unit: str | None = None) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """Return the callback of an option whose value is a duration in milliseconds. `unit`: that of a plain number, which
    is refused without it."""

    def read(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
        try:
            return None if value is None else parsed_duration_ms(value, unit)
        except ValueError as error:
            raise click.BadParameter(f"{error}.", ctx, parameter) from None

    return read
