"""Draws the progress of long work with rich, on standard error and only if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(what: str, whole: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how many of `whole` are done. The bar disappears at the end."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=whole)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def counter() -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes the records and bytes so far, for work of unknown length.

    Nothing is drawn if standard input is a terminal, because a person types there.
    """
    if not sys.stderr.isatty() or sys.stdin.isatty():
        yield lambda records, size: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} records, {task.fields[bytes]:,} bytes"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None, bytes=0)
        yield lambda records, size: progress.update(task, completed=records, bytes=size)
