"""Makes an object from `python:package.module.Class`, at the start of a node. Raises ConfigError if that fails.

Not responsible for where a class may be named (config/protection.py): in the properties file, but not in a change while
the node runs.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, Final

from pykbroker.config.kinds import PYTHON_CLASS, ConfigError
from pykbroker.config.typed_config import Config

#: A call of such a function returns before its code has run.
_DEFERRED: Final = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


def plugin(config: Config, key: str, interface: type) -> Any | None:
    """Return the plugin that the key names, configured, or None if the key names no class in Python. `interface`: the
    protocol of pykbroker.plugins whose methods the plugin must have."""
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
    """Return an error that has only the type of the exception: its message may quote the configuration, which has
    secrets."""
    return ConfigError(f"{key}: {path} cannot be loaded ({type(error).__name__})")


def _check(made: object, interface: type, named: str) -> None:
    """Raise ConfigError if a method of the interface is missing, or if a call of it would do nothing, because no caller
    awaits the result."""
    for name in vars(interface):
        if name.startswith("_"):
            continue
        method = getattr(made, name, None)
        if not callable(method):
            raise ConfigError(f"{named} lacks the method {name} of {interface.__name__}")
        if any(is_kind(method) for is_kind in _DEFERRED):
            raise ConfigError(f"{named}: {name} must be a plain method, which returns when it is called")
