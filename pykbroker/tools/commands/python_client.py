"""The settings of kafka-python's consumer and producer that several commands use, and the names of encodings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from pykbroker.entry import failures
from pykbroker.tools.cluster.encodings import ENCODINGS

if TYPE_CHECKING:
    from pykbroker.tools.commands.client_options import ClientOptions

ENCODING: Final = click.Choice(ENCODINGS)
#: kafka-python tries for this long to reach a broker.
_BOOTSTRAP_MS: Final = 10_000


def reach(client: ClientOptions) -> None:
    """Request the nodes of the cluster. Raises AskFailed with the reason if no node can be reached, which kafka-python
    itself does not report."""
    with client.cluster() as cluster:
        cluster.nodes()


def settings_for(client: ClientOptions, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return kafka-python's settings of a client; an unknown key is reported. Raises ConfigError and NotServed.

    `known`: the client's DEFAULT_CONFIG.
    """
    import logging

    from pykbroker.tools.cluster.client_properties import python_settings

    # The command reports failures of connections, so kafka-python must not log them.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    settings, unknown = python_settings(client.properties, known)
    for key in unknown:
        failures.say(f"WARN {key} is no setting of the Python client and has no effect")
    settings.setdefault("bootstrap_timeout_ms", _BOOTSTRAP_MS)
    settings["bootstrap_servers"] = client.bootstrap.split(",")
    return settings
