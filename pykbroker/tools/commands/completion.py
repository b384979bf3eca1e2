"""Names of a cluster's topics and groups, for the completion of a shell.

Invariant: a completion never fails and never waits long; without a cluster it returns no names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from pykbroker.entry.failures import said_of
from pykbroker.tools.commands.client_options import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, ClientOptions

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster

_PATIENCE_MS: Final = "1000"


def topic_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    def names(cluster: AskedCluster) -> Iterable[str]:
        from pykbroker.tools.cluster import topics

        return (one.name for one in topics.listed(cluster))

    return _matching(ctx, incomplete, names)


def group_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    def names(cluster: AskedCluster) -> Iterable[str]:
        from pykbroker.tools.cluster import share_groups

        return (one.id for one in share_groups.listed_with_consumers(cluster))

    return _matching(ctx, incomplete, names)


def _matching(ctx: click.Context, incomplete: str, names: Callable[[AskedCluster], Iterable[str]]) -> list[str]:
    limits = {"default.api.timeout.ms": _PATIENCE_MS, "request.timeout.ms": _PATIENCE_MS}
    given = dict(text.partition("=")[::2] for text in ctx.params.get("client_properties") or ())
    # -X has an effect only if -b is not given, and such a command line is refused when it has both.
    named = given.get("bootstrap.servers") or ctx.params.get("bootstrap_server")
    bootstrap = named or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    try:
        with ClientOptions(bootstrap, {**given, **limits}).cluster() as cluster:
            return sorted(name for name in names(cluster) if name.startswith(incomplete))
    except Exception as error:
        if said_of(error) is None:
            raise
        return []
