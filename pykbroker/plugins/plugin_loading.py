"""Makes an object from `python:package.module.Class`, at the start of a node. Raises ConfigError if that fails.

Not responsible for the settings that may name a class (config/protection.py): a change while the node runs may not.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, Final

from pykbroker.config.kinds import PYTHON_CLASS, ConfigError
from pykbroker.config.load import Config

#: A call of such a function returns before its code has run.
_DEFERRED: Final = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


def plugin(config: Config, key: str, interface: type) -> Any | None:
    """Return the configured plugin that the key names, or None if the key names none. `interface`: a protocol of
    pykbroker.plugins, whose methods it must have."""
    value = (config.optional_str(key) or "").strip()
    if not value.startswith(PYTHON_CLASS):
        return None
    path = value.removeprefix(PYTHON_CLASS)
    module, _, name = path.rpartition(".")
    try:
        made = getattr(import_module(module), name)()
    except Exception as error:
        raise _not_loaded(key, path, error) from error
    _check(made, interface, f"{key}: {path}")
    try:
        made.configure(dict(config.overrides()))
    except Exception as error:
        raise _not_loaded(key, path, error) from error
    return made


def _not_loaded(key: str, path: str, error: Exception) -> ConfigError:
    """Return an error with only the type of the exception, because the texts of a configuration have secrets, and an
    exception may quote them."""
    return ConfigError(f"{key}: {path} cannot be loaded ({type(error).__name__})")


def _check(made: object, interface: type, named: str) -> None:
    """Raise ConfigError if a call of the interface would fail, or do nothing because it is never awaited."""
    for name in vars(interface):
        if name.startswith("_"):
            continue
        method = getattr(made, name, None)
        if not callable(method):
            raise ConfigError(f"{named} has no method {name}, which {interface.__name__} has")
        if any(is_kind(method) for is_kind in _DEFERRED):
            raise ConfigError(f"{named}: {name} must be a plain method, which returns when it is called")
