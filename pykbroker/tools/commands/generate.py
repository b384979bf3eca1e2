"""`pykbroker generate kubernetes|compose|systemd|prometheus|completion`: print files that other programs read.

Responsible for the options and for writing the text; tools/manifests/ makes it.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pykbroker import __version__
from pykbroker.tools.commands.command_group import CommandGroup

if TYPE_CHECKING:
    from pykbroker.tools.manifests.secured import Security

_IMAGE = f"pykbroker:{__version__}"


F = TypeVar("F", bound=Callable[..., Any])


@click.group("generate", cls=CommandGroup)
def command() -> None:
    """Print what other programs read: manifests, units, Prometheus' configuration, completion scripts."""


_to_file = click.option("-o", "--output", metavar="FILE", help="Write to FILE, and not to the standard output.")


def _of_containers(function: F) -> F:
    image = click.option("--image", default=_IMAGE, help=f"Of the nodes (default: {_IMAGE}).")
    cluster_id = click.option("--cluster-id", metavar="ID", help="Of the cluster (default: the same in each run).")
    return image(cluster_id(function))


def _secured(function: F) -> F:
    """Add `--security`; the function gets its value as a `Security`."""
    return click.option(
        "--security",
        type=click.Choice(["plaintext", "ssl", "sasl_ssl"], case_sensitive=False),
        default="plaintext",
        help="ssl: TLS everywhere, clients show a certificate. sasl_ssl: they log in with SCRAM over TLS. Both have "
        "ACLs; the comment at the top says what a person makes first (default: plaintext).",
        callback=_security,
    )(function)


def _security(context: click.Context, option: click.Parameter, word: str) -> Security:
    from pykbroker.tools.manifests.secured import Security

    return Security(word.lower())


def _write(text: str, output: str | None) -> None:
    if output is None:
        click.echo(text, nl=False)
    else:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)


@command.command("kubernetes", example="pykbroker generate kubernetes --namespace kafka | kubectl apply -f -")
@click.option("--name", default="pykbroker", help="Of the objects (default: pykbroker).")
@click.option("--namespace", help="Of the objects (default: that of kubectl apply).")
@click.option("--replicas", type=int, default=3, help="Brokers that are voters too: 1, 3 (default) or 5.")
@click.option("--storage", default="10Gi", help="Of each pod (default: 10Gi).")
@click.option("--storage-class", metavar="NAME", help="Of the volumes (default: the default class).")
@click.option("--memory", default="512Mi", help="Of each pod, page cache included (default: 512Mi).")
@click.option("--cpu", default="500m", help="What each pod asks for (default: 500m).")
@_secured
@_of_containers
@_to_file
def kubernetes_manifest(output: str | None, **words: Any) -> None:
    """Print a StatefulSet, its Services, probes, disruption budget, volumes."""
    from pykbroker.tools.manifests.kubernetes import KubernetesCluster, kubernetes

    _write(kubernetes(KubernetesCluster(**words)), output)


@command.command("compose", example="pykbroker generate compose --brokers 5 --output compose.yaml")
@click.option("--brokers", type=int, default=3, help="Three of them are voters too (default: 3).")
@click.option("--port", type=int, default=9092, help="Of the first broker on this machine (default: 9092).")
@click.option("--host", default="localhost", help="This machine's name for clients (default: localhost).")
@click.option("--bind", default="127.0.0.1", metavar="ADDRESS", help="Where ports are published (default: 127.0.0.1).")
@click.option(
    "--metrics-port",
    type=int,
    help="Of the first broker's metrics on this machine (default: only containers of the network reach them).",
)
@_secured
@click.option("--user", "users", multiple=True, metavar="NAME", help="With sasl_ssl: beside admin (may be repeated).")
@_of_containers
@_to_file
def compose_file(output: str | None, **words: Any) -> None:
    """Print a Compose file, for docker-compose 1.29 and Compose v2."""
    from pykbroker.tools.manifests.compose import ComposeCluster, compose

    _write(compose(ComposeCluster(**words)), output)


@command.command("systemd", example="pykbroker generate systemd > /etc/systemd/system/pykbroker.service")
@click.option(
    "--properties",
    default="/etc/pykbroker/server.properties",
    metavar="FILE",
    help="Of the node (default: /etc/pykbroker/server.properties).",
)
@click.option("--user", default="pykbroker", help="That the node runs as (default: pykbroker).")
@click.option(
    "--data",
    multiple=True,
    default=("/var/lib/pykbroker",),
    metavar="DIRECTORY",
    help="Of log.dirs (may be repeated; default: /var/lib/pykbroker).",
)
@click.option("--program", metavar="FILE", help="The program itself (default: the one that runs).")
@_secured
@_to_file
def systemd_unit(output: str | None, program: str | None, **words: Any) -> None:
    """Print a unit that runs one node with a properties file."""
    from pykbroker.tools.manifests.systemd import SystemdUnit, systemd

    chosen = program or os.path.join(sysconfig.get_path("scripts"), "pykbroker")
    _write(systemd(SystemdUnit(program=chosen, **words)), output)


@command.command("completion", example="pykbroker generate completion bash > /etc/bash_completion.d/pykbroker")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish")
@_to_file
def completion(shell: str, output: str | None) -> None:
    """Print a script with which a shell completes commands, options, topics and groups.

    Topics and groups come from the cluster that -b or PYKBROKER_BOOTSTRAP_SERVER names, or localhost:9092.
    """
    from click.shell_completion import get_completion_class

    from pykbroker.entry.own_commands import COMPLETE_VARIABLE
    from pykbroker.tools.commands.main import program

    found = get_completion_class(shell)
    assert found is not None
    script = found(program(), {}, "pykbroker", COMPLETE_VARIABLE)
    # `source()` would run bash on this machine, but another machine may read the script.
    _write(script.source_template % script.source_vars(), output)


@command.command("prometheus", example="pykbroker generate prometheus --target node-1 --target node-2 > prometheus.yml")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="HOST[:PORT]",
    help="A node's pykbroker.metrics.listener, with port 9404 if none is named (may be repeated).",
)
@click.option("--job", default="pykbroker", help="The value of the label `job` (default: pykbroker).")
@click.option("--interval", "seconds", type=int, default=15, help="Seconds between two scrapes (default: 15).")
@click.option("--rules", "wants_rules", is_flag=True, help="Print alerting rules, a file for `rule_files`.")
@_to_file
def prometheus_config(output: str | None, wants_rules: bool, **words: Any) -> None:
    """Print how a Prometheus server reads the nodes' metrics."""
    from pykbroker.tools.manifests.prometheus import PrometheusConfig, prometheus, rules

    _write((rules if wants_rules else prometheus)(PrometheusConfig(**words)), output)
