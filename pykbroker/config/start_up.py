"""From the texts that a start gives to the configuration of a node: the one place where providers are asked.

Responsible for the order: values from providers, what is refused (protection.py), then the configuration (load.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.load import Config, load
from pykbroker.config.protection import refuse
from pykbroker.config.provider_names import KEY


def start_texts(properties: Mapping[str, str]) -> dict[str, str]:
    """The texts with the values of config.providers. ConfigError, one line without secrets, for what must not start."""
    texts = dict(properties)
    if texts.get(KEY):
        from pykbroker.config.providers import Sources, resolved
        from pykbroker.runtime.secret_files import environment, exists, read_regular

        texts = resolved(texts, Sources(environment(), read_regular, exists))
    refuse(texts)
    return texts


def start_config(properties: Mapping[str, str]) -> Config:
    """The configuration that a start has. Raises ConfigError as `start_texts`, and as `load`."""
    return load(start_texts(properties))
