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
from pykbroker.tools.cluster.bootstrap_list import NotAnAddress, address_of, bootstrap_addresses

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster

BOOTSTRAP_VARIABLE: Final = "PYKBROKER_BOOTSTRAP_SERVER"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_PORT: Final = 9092
DEFAULT_CONTROLLER_PORT: Final = 9093
_SERVERS: Final = "bootstrap.servers"
_CONTROLLERS: Final = "bootstrap.controllers"


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


class PropertyOption(click.Option):
    """An option that sets a property of the client. A command line that gives the property another value with -X is
    refused; in a file, the property has an effect if the option is not given."""

    def __init__(self, *words: Any, key: str, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.key = key

    @property
    def word(self) -> str:
        return max(self.opts, key=len)

    def is_given(self, ctx: click.Context) -> bool:
        """Return True if the command line has the option: an environment variable is only a default."""
        from click.core import ParameterSource

        return self.name is not None and ctx.get_parameter_source(self.name) is ParameterSource.COMMANDLINE


def _addresses(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    default = DEFAULT_CONTROLLER_PORT if parameter.name == "bootstrap_controller" else DEFAULT_PORT
    addresses = []
    for text in value.split(","):
        word = text.strip()
        try:
            # :PORT is this machine's, as for kcat. Apache Kafka's tools and properties need the host.
            addresses.append(str(address_of(f"localhost{word}" if word.startswith(":") else word, default)))
        except NotAnAddress:
            raise click.BadParameter(f"'{word}' is not HOST or HOST:PORT.", ctx, parameter) from None
    return ",".join(addresses)


_OPTIONS: Final = (
    click.option(
        "-b",
        "--bootstrap-server",
        cls=PropertyOption,
        key=_SERVERS,
        default=DEFAULT_BOOTSTRAP,
        envvar=BOOTSTRAP_VARIABLE,
        callback=_addresses,
        metavar="HOST[:PORT],...",
        help="The brokers to connect to first (default: bootstrap.servers of -X or the file, "
        f"${BOOTSTRAP_VARIABLE}, or {DEFAULT_BOOTSTRAP}; port {DEFAULT_PORT}); :PORT is localhost's.",
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


_CONTROLLER_OPTION: Final = click.option(
    "--bootstrap-controller",
    cls=PropertyOption,
    key=_CONTROLLERS,
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
        from pykbroker.tools.cluster.client_properties import read_properties

        ctx = click.get_current_context()
        controllers = words.pop("bootstrap_controller", None)
        assigned = key_values("-X", client_properties)
        if assigned:
            _check_keys(assigned)
        _check_set_once(ctx, assigned)
        properties = {**read_properties(command_config), **assigned}
        if controllers is None:
            if _CONTROLLERS in assigned:
                controllers = _listed(assigned, _CONTROLLERS)
            elif _SERVERS in properties and not _is_given(ctx, _SERVERS):
                bootstrap_server = _listed(properties, _SERVERS)
        client = ClientOptions(controllers or bootstrap_server, properties, of_controllers=controllers is not None)
        return function(client=client, **words)

    decorated: Callable[..., Any] = with_client
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def controller_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `client_options`, and one for controllers, to a command whose requests they can answer too."""
    return _CONTROLLER_OPTION(client_options(function))


def names_a_cluster(client: ClientOptions) -> bool:
    """Return True if an option, the variable or a property names the cluster, and not only the default does."""
    from click.core import ParameterSource

    source = click.get_current_context().get_parameter_source("bootstrap_server")
    return source is not ParameterSource.DEFAULT or _SERVERS in client.properties


def _listed(properties: Mapping[str, str], key: str) -> str:
    return ",".join(str(address) for address in bootstrap_addresses(properties[key], key))


def _is_given(ctx: click.Context, key: str) -> bool:
    """Return True if the command line has the option that sets the property."""
    return any(option.key == key and option.is_given(ctx) for option in _property_options(ctx))


def _property_options(ctx: click.Context) -> list[PropertyOption]:
    return [option for option in ctx.command.params if isinstance(option, PropertyOption)]


def _check_set_once(ctx: click.Context, assigned: Mapping[str, str]) -> None:
    """Raise UsageError for a property of -X that another option gives another value, and for a command line with both
    brokers and controllers: one of the two values would be lost. `assigned`: the properties of -X."""
    options = _property_options(ctx)
    given = [option for option in options if option.is_given(ctx)]
    for option in given:
        if option.key in assigned and not _is_same(assigned, option.key, ctx.params[option.name or ""]):
            raise click.UsageError(f"-X {option.key} does not go with {option.word}, which sets it too.", ctx)
    if _CONTROLLERS in assigned and not any(option.key == _CONTROLLERS for option in options):
        raise click.UsageError(f"-X {_CONTROLLERS} has no effect here: this command connects to brokers, see -b.", ctx)
    lists = {key: f"-X {key}" for key in (_SERVERS, _CONTROLLERS) if key in assigned}
    lists |= {option.key: option.word for option in given if option.key in (_SERVERS, _CONTROLLERS)}
    if len(lists) > 1:
        raise click.UsageError(f"{lists[_SERVERS]} does not go with {lists[_CONTROLLERS]}.", ctx)


def _is_same(assigned: Mapping[str, str], key: str, value: object) -> bool:
    """Return True if an option has the value that -X gives to its property."""
    if key in (_SERVERS, _CONTROLLERS):
        return _listed(assigned, key) == value
    return assigned[key] == (str(value).lower() if isinstance(value, bool) else value)


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
