"""Makes the configuration of a node from the texts that a start gives: the one place where providers are used.

Responsible for the order: values from providers, refused settings (protection.py), then the configuration (load.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.load import load
from pykbroker.config.protection import refuse
from pykbroker.config.provider_names import KEY
from pykbroker.config.typed_config import Config


def resolved_texts(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the texts with the values of config.providers in them. Raises ConfigError, whose message is one line
    without secrets."""
    texts = dict(properties)
    if texts.get(KEY):
        from pykbroker.config.providers import Sources, resolved
        from pykbroker.runtime.secret_files import environment, exists, read_regular

        texts = resolved(texts, Sources(environment(), read_regular, exists))
    return texts


def start_texts(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the same texts as `resolved_texts`. Raises ConfigError also if the node must not start; its message is one
    line without secrets."""
    texts = resolved_texts(properties)
    refuse(texts)
    return texts


def start_config(properties: Mapping[str, str]) -> Config:
    """Return the configuration of a start. Raises ConfigError as `start_texts` and `load` do."""
    return load(start_texts(properties))
