"""`pykbroker configs`: configurations of topics, brokers, groups and client metrics of any Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from pykbroker.tools.cluster.config_units import UNITS, with_plain_numbers
from pykbroker.tools.commands.client_options import ClientOptions, check_changed_once, client_options, key_values
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.output import Output, column, output_option

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster
    from pykbroker.tools.cluster.configs import ConfigChange, ResourceName

_KINDS: Final = ("topic", "broker", "group", "client-metrics")


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One key of a resource."""

    key: str
    #: None if it is sensitive, or not set
    value: str | None
    #: the source of the value, in the protocol's words: dynamic_topic_config, static_broker_config, default_config
    source: str
    read_only: bool = column("READ-ONLY")
    sensitive: bool = column("SENSITIVE")


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """The changes that `configs alter` has made."""

    kind: str
    name: str
    set: dict[str, str]
    append: dict[str, str]
    subtract: dict[str, str]
    deleted: tuple[str, ...]


def _singular(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return the kind of a resource, of its singular or its plural."""
    singular = value.removesuffix("s")
    found: str = click.Choice(_KINDS).convert(singular if singular in _KINDS else value, parameter, ctx)
    return found


def _kinds(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [kind for kind in _KINDS if kind.startswith(incomplete)]


_kind = click.argument("kind", callback=_singular, metavar="KIND", shell_complete=_kinds)
_name = click.argument("name", required=False, metavar="[NAME]")


@click.group("configs", cls=CommandGroup)
def command() -> None:
    """Describe and alter configurations of topics, brokers, groups and client metrics."""


@command.command(
    "describe", example="pykbroker configs describe topic orders\npykbroker configs describe broker 1 --all"
)
@_kind
@_name
@click.option("--all", "also_defaults", is_flag=True, help="Also keys that have their default value.")
@output_option
@client_options
def describe(client: ClientOptions, out: Output, kind: str, name: str | None, also_defaults: bool) -> None:
    """Describe the configuration of a topic, a broker, a group or client metrics.

    KIND is topic, broker, group or client-metrics. The name of a broker is its id; without one the values are meant
    that all brokers share.
    """
    from pykbroker.tools.cluster import configs
    from pykbroker.tools.cluster.configs import ConfigSource

    with client.cluster() as cluster:
        resource = _resource(cluster, kind, name)
        (found,) = configs.described(cluster, [resource]).values()
    rows = [
        ConfigRow(one.name, one.value, one.source.name.lower(), one.is_read_only, one.is_sensitive)
        for one in sorted(found, key=lambda one: one.name)
        if also_defaults or one.source is not ConfigSource.DEFAULT_CONFIG
    ]
    out.rows(ConfigRow, rows)


@command.command(
    "alter",
    example="pykbroker configs alter topic orders --set retention.ms=7d --delete max.message.bytes\n"
    "pykbroker configs alter broker --set log.cleaner.threads=2",
)
@_kind
@_name
@click.option("--set", "assigned", multiple=True, metavar="KEY=VALUE", help=f"Set a key: {UNITS} (may be repeated).")
@click.option("--delete", "deleted", multiple=True, metavar="KEY", help="Take a value away (may be repeated).")
@click.option("--append", multiple=True, metavar="KEY=VALUE", help="Add to a list (may be repeated).")
@click.option("--subtract", multiple=True, metavar="KEY=VALUE", help="Take from a list (may be repeated).")
@output_option
@client_options
def alter(
    client: ClientOptions,
    out: Output,
    kind: str,
    name: str | None,
    assigned: tuple[str, ...],
    deleted: tuple[str, ...],
    append: tuple[str, ...],
    subtract: tuple[str, ...],
) -> None:
    """Alter the configuration of a topic, a broker, a group or client metrics.

    KIND is topic, broker, group or client-metrics. The name of a broker is its id; without one the values are meant
    that all brokers share.
    """
    from pykbroker.tools.cluster import configs
    from pykbroker.tools.cluster.configs import ConfigChange
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker.tools.commands.unknown_names import of_keys

    done = AlteredConfigs(
        kind,
        name or "",
        with_plain_numbers(key_values("--set", assigned)),
        key_values("--append", append),
        key_values("--subtract", subtract),
        deleted,
    )
    check_changed_once(done.set, done.append, done.subtract, deleted)
    changes: dict[str, tuple[ConfigChange, str | None]] = {
        **{key: (ConfigChange.SET, value) for key, value in done.set.items()},
        **{key: (ConfigChange.APPEND, value) for key, value in done.append.items()},
        **{key: (ConfigChange.SUBTRACT, value) for key, value in done.subtract.items()},
        **dict.fromkeys(deleted, (ConfigChange.DELETE, None)),
    }
    if not changes:
        raise click.UsageError(
            "Say what to alter: --set, --delete, --append or --subtract.", click.get_current_context()
        )
    with client.cluster() as cluster:
        resource = _resource(cluster, kind, name, must_exist=kind in ("topic", "broker"))
        try:
            configs.alter(cluster, resource, changes)
        except AskFailed as error:
            raise of_keys(error, changes, _known_keys(kind)) from error
    out.done(f"Altered {len(changes)} configuration{'s' * (len(changes) != 1)} of {_called(kind, name)}.", done)


def _resource(cluster: AskedCluster, kind: str, name: str | None, *, must_exist: bool = True) -> ResourceName:
    """Return the resource. Raises ClickException for an unknown broker, and, if `must_exist`, for other unknown
    resources, except groups: a cluster would return an empty configuration for them."""
    from pykbroker.tools.cluster import topics
    from pykbroker.tools.cluster.configs import ResourceKind
    from pykbroker.tools.commands.unknown_names import unknown, unknown_topic

    if kind == "broker":
        brokers = [str(node.id) for node in cluster.nodes()]
        if name and name not in brokers:
            raise unknown("broker", name, brokers)
        return ResourceKind.BROKER, name or ""
    if not name:
        raise click.UsageError(f"A {kind} has a name: `configs … {kind} NAME`.", click.get_current_context())
    if kind == "topic":
        names = [one.name for one in topics.listed(cluster)]
        if must_exist and name not in names:
            raise unknown_topic(name, names)
        return ResourceKind.TOPIC, name
    if kind == "group":
        return ResourceKind.GROUP, name
    if must_exist:
        from pykbroker.tools.cluster.configs import resource_names

        subscriptions = resource_names(cluster, ResourceKind.CLIENT_METRICS)
        if name not in subscriptions:
            raise unknown("client metrics subscription", name, subscriptions)
    return ResourceKind.CLIENT_METRICS, name


def _known_keys(kind: str) -> Iterable[str]:
    from pykbroker.config.key_table import BROKER_KEYS, DYNAMIC_ONLY_KEYS, GROUP_KEYS, TOPIC_KEYS

    return {"topic": TOPIC_KEYS, "broker": {**BROKER_KEYS, **DYNAMIC_ONLY_KEYS}, "group": GROUP_KEYS}.get(kind, ())


def _called(kind: str, name: str | None) -> str:
    return "all brokers" if kind == "broker" and not name else f"{kind} {name}"
