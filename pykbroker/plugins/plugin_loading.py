"""From `python:package.module.Class` to an object, at the start of a node. ConfigError for what cannot be loaded.

Not responsible for who may name a class (config/protection.py): a change while the node runs may not.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pykbroker.config.kinds import PYTHON_CLASS, ConfigError
from pykbroker.config.load import Config


def plugin(config: Config, key: str) -> Any | None:
    """The configured plugin that the key names; None when the key names none."""
    value = (config.optional_str(key) or "").strip()
    if not value.startswith(PYTHON_CLASS):
        return None
    path = value.removeprefix(PYTHON_CLASS)
    module, _, name = path.rpartition(".")
    try:
        made = getattr(import_module(module), name)()
        made.configure(dict(config.overrides()))
    except Exception as error:
        # Of the error only its type: the texts of a configuration have secrets, and an exception may quote them.
        raise ConfigError(f"{key}: {path} cannot be loaded ({type(error).__name__})") from error
    return made
