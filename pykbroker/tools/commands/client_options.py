"""The options with which a command reaches a cluster: `-b`, `--command-config` and `-X`, the same in every command.

Responsible for the options and for the client's properties that they make together. Not responsible for requests
(tools/cluster/), nor for connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from pykbroker.config.kinds import ConfigError
from pykbroker.config.nearest import did_you_mean
from pykbroker.tools.cluster.bootstrap_list import NotAnAddress, address_of

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster

BOOTSTRAP_VARIABLE: Final = "PYKBROKER_BOOTSTRAP_SERVER"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_PORT: Final = 9092
DEFAULT_CONTROLLER_PORT: Final = 9093


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options of the command line, with the properties of the file in them."""

    #: `host:port`, separated by commas
    bootstrap: str
    #: a Java client's keys; keys of -X override keys of the file
    properties: Mapping[str, str]
    #: `bootstrap` names controllers
    of_controllers: bool = False

    def cluster(self) -> AskedCluster:
        """Return the cluster, for a `with`; the first request connects it. Raises ConfigError, NotServed, OSError."""
        from pykbroker.tools.cluster.asked_cluster import AskedCluster
        from pykbroker.tools.cluster.client_properties import settings_of

        settings = settings_of(self.properties, self.bootstrap, of_controllers=self.of_controllers, patient=False)
        return AskedCluster(settings)


def _addresses(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    default = DEFAULT_CONTROLLER_PORT if parameter.name == "bootstrap_controller" else DEFAULT_PORT
    addresses = []
    for text in value.split(","):
        try:
            addresses.append(str(address_of(text, default)))
        except NotAnAddress:
            raise click.BadParameter(f"'{text.strip()}' is not HOST or HOST:PORT.", ctx, parameter) from None
    return ",".join(addresses)


_OPTIONS: Final = (
    click.option(
        "-b",
        "--bootstrap-server",
        default=DEFAULT_BOOTSTRAP,
        envvar=BOOTSTRAP_VARIABLE,
        callback=_addresses,
        metavar="HOST[:PORT],...",
        help=f"The brokers to connect to first (default: ${BOOTSTRAP_VARIABLE}, or {DEFAULT_BOOTSTRAP}; port "
        f"{DEFAULT_PORT}).",
    ),
    click.option("--command-config", metavar="FILE", help="A properties file for the client, as Java clients have it."),
    click.option(
        "-X",
        "--property",
        "client_properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="A property of the client, for example security.protocol=SSL (may be repeated).",
    ),
)


_CONTROLLERS: Final = click.option(
    "--bootstrap-controller",
    callback=_addresses,
    metavar="HOST[:PORT],...",
    help=f"The controllers to connect to, and no broker (port {DEFAULT_CONTROLLER_PORT}).",
)


def client_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command; its function gets them as `client`, a ClientOptions."""

    @wraps(function)
    def with_client(
        bootstrap_server: str, command_config: str | None, client_properties: tuple[str, ...], **words: Any
    ) -> Any:
        controllers = words.pop("bootstrap_controller", None)
        properties = _properties(command_config, client_properties)
        client = ClientOptions(controllers or bootstrap_server, properties, of_controllers=controllers is not None)
        return function(client=client, **words)

    decorated: Callable[..., Any] = with_client
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def controller_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `client_options`, and one for controllers, to a command whose requests they can answer too."""
    return _CONTROLLERS(client_options(function))


def _properties(file: str | None, texts: tuple[str, ...]) -> dict[str, str]:
    from pykbroker.tools.cluster.client_properties import read_properties

    found = read_properties(file)
    assigned = key_values("-X", texts)
    if assigned:
        _check_keys(assigned)
    found.update(assigned)
    return found


def _check_keys(keys: Iterable[str]) -> None:
    """Raise ConfigError for a key that Kafka's clients do not have: a misspelt key has no effect, which could leave a
    connection unprotected. Only keys of -X are checked, because a file may have keys for other programs."""
    from pykbroker.tools.cluster.client_keys import CLIENT_KEYS

    for key in keys:
        if key not in CLIENT_KEYS:
            raise ConfigError(f"-X {key}: Kafka's clients have no such property{did_you_mean(key, CLIENT_KEYS)}")


def check_changed_once(*keys: Iterable[str]) -> None:
    """Raise ConfigError for a key that more than one option changes: a request has one change of a key, so the others
    would be lost. `keys`: the keys of each option."""
    changed = [key for of_option in keys for key in set(of_option)]
    for key in changed:
        if changed.count(key) > 1:
            raise ConfigError(f"{key} is changed by two options: say one change")


def key_values(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Parse `KEY=VALUE` of an option that may be repeated; the value may have further equals signs. Raises
    ConfigError."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} takes KEY=VALUE, not '{text}'")
        found[key.strip()] = value.strip()
    return found
