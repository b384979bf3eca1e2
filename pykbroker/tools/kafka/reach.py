"""Connects the tools to a cluster: their two common options, and the file that --command-config names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.config.kinds import ConfigError
from pykbroker.tools.cluster.bootstrap_list import NotAnAddress, PortOutOfRange, address_of
from pykbroker.tools.cluster.failure import AskFailed, NotServed
from pykbroker.tools.kafka.tool_options import Accepted, Given, OptionError, Options

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster

BOOTSTRAP = Accepted("bootstrap-server", "The brokers to connect to first.", "host:port,...")
BOOTSTRAP_CONTROLLER = Accepted("bootstrap-controller", "The controllers to connect to first.", "host:port,...")
COMMAND_CONFIG = Accepted("command-config", "A properties file for the client.", "file")

#: Errors of a command line and its files, before the first request.
BAD_START: Final = (OptionError, ValueError, OSError, ConfigError, NotServed)


def said_of(error: Exception) -> str:
    """Return the line for an error. For a file that cannot be read, it is only the name of the file, as in Java. The
    number of an error of the system does not help the user."""
    if isinstance(error, OSError):
        return str(error.filename or error.strerror or error)
    return str(error)


def exit_status(work: Callable[[], int | None], prefix: str | None = None) -> int:
    """Run a tool and return its exit status. A failure is one line on standard error, which begins with `prefix`.
    Without a prefix, a failure of a request begins with the name of its exception."""
    try:
        return work() or 0
    except AskFailed as error:
        print(f"{error.name}: {error}" if prefix is None else f"{prefix}{error}", file=sys.stderr)
    except BAD_START as error:
        print(f"{prefix or ''}{said_of(error)}", file=sys.stderr)
    return 1


def opened(given: Given, *, of_controllers: bool = False, extra: Mapping[str, str] | None = None) -> AskedCluster:
    """Return the cluster that the options name. Raises OSError, ConfigError and NotServed for the file."""
    option = "bootstrap-controller" if of_controllers else "bootstrap-server"
    return reached(given.text(option) or "", given.text("command-config"), of_controllers=of_controllers, extra=extra)


def reached(
    bootstrap: str, config_file: str | None, *, of_controllers: bool = False, extra: Mapping[str, str] | None = None
) -> AskedCluster:
    """Return the cluster at these addresses. `extra`: keys that override keys of the file."""
    from pykbroker.tools.cluster.asked_cluster import AskedCluster
    from pykbroker.tools.cluster.client_properties import read_properties, settings_of

    properties = {**read_properties(config_file), **(extra or {})}
    return AskedCluster(settings_of(properties, bootstrap, of_controllers=of_controllers))


def begun(options: Options, words: Sequence[str], needed: str) -> Given:
    """Return the options of a tool. For every error in them, also in the bootstrap addresses, this shows the usage and
    ends the tool."""
    given = options.read(words)
    options.require(given, needed)
    _check_addresses(options, given.text("bootstrap-server"))
    return given


def _check_addresses(options: Options, addresses: str | None) -> None:
    """Show the usage and end the tool if the bootstrap list is not valid."""
    if not addresses:
        options.end_with_usage("Error while validating the bootstrap address")
    for address in addresses.split(","):
        try:
            address_of(address)
        except PortOutOfRange:
            # As in Apache Kafka, the client refuses it, and no usage is shown.
            continue
        except NotAnAddress:
            options.end_with_usage("Please provide valid host:port like host1:9091,host2:9092")
