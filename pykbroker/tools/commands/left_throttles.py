"""Prints one line about throttles that a killed run of `balance`, or another tool, has left in the cluster.

`balance run`, `watch` and `cancel` remove the throttles that a run has left. The other commands of `balance` and
`reassign` report them, and on a terminal offer to end the run.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster

_SHOWN: Final = 3


def tell(cluster: AskedCluster) -> None:
    """Report throttles that were left. On a terminal, ask the user whether to end the run that has left them. A user
    without the permission to read them gets no report."""
    from pykbroker.tools.cluster import reassignments, run_marks, run_progress
    from pykbroker.tools.cluster.failure import AskFailed, Unreachable

    try:
        marks = run_marks.found(cluster)
        others = [] if reassignments.ongoing(cluster) else run_marks.foreign(cluster)
    except Unreachable:
        raise
    except AskFailed:
        return
    if others:
        click.echo(
            f"nothing moves, and {_topics(others)} throttled replicas that a tool has left: `pykbroker reassign "
            "verify` or `cancel` with its plan takes them away",
            err=True,
        )
    if not marks.topics:
        return
    rate = ", and the brokers a rate" if marks.has_rate else ""
    click.echo(
        f"a run of `balance` is under way, or was killed: {_topics(sorted(marks.topics))} throttled replicas{rate}. "
        "`pykbroker balance watch` shows it, and takes them away when it is dead; `pykbroker balance cancel` ends it.",
        err=True,
    )
    if at_terminal() and click.confirm("End it now?", err=True):
        called_back = run_progress.ended(cluster, marks)
        click.echo(f"It is ended; {len(called_back)} partitions were called back.", err=True)
        cluster.refresh()


def at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _topics(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    is_one = len(names) == 1
    return f"topic{'' if is_one else 's'} {', '.join(names[:_SHOWN])}{more} {'has' if is_one else 'have'}"
