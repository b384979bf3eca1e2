"""The configuration in effect while it changes: the properties file under the dynamic layers of the metadata log.

Responsible for the current value and for notifying the modules that act on it. Not responsible for the layers' order
(dynamic.py) nor for the effect of a change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pykbroker.config.dynamic import DynamicConfigs, apply_valid
from pykbroker.config.key_table import DYNAMIC_ONLY_KEYS
from pykbroker.config.typed_config import Config

logger = logging.getLogger(__name__)


class LiveConfig:
    """`current` is the configuration in effect. `static` is the configuration of the properties file alone."""

    def __init__(self, static: Config) -> None:
        self.static = static
        self.current = static
        # `_told`: the layers that `update` got last. `_dynamic`: the part of them that is applied.
        self._told = self._dynamic = DynamicConfigs()
        self._listeners: list[Callable[[Config], None]] = []

    def on_change(self, callback: Callable[[Config], None]) -> None:
        """Register `callback(config)`, which is called after every later change. It is not called with the present
        value, which the caller reads from `current`."""
        self._listeners.append(callback)

    def throttle(self, name: str) -> int:
        """Return a rate in bytes per second that only the dynamic layers can set (DYNAMIC_ONLY_KEYS)."""
        key = DYNAMIC_ONLY_KEYS[name]
        text = self._dynamic.broker.get(name, self._dynamic.cluster.get(name))
        value = key.default if text is None else key.parse(text)
        assert isinstance(value, int)
        return value

    def update(self, dynamic: DynamicConfigs) -> None:
        """Apply new layers. A value that must not be applied is left out, and the reason is logged."""
        if dynamic == self._told:
            return
        self._told = dynamic
        self._dynamic, self.current, messages = apply_valid(self.static, dynamic)
        for message in messages:
            logger.error("%s", message)
        for callback in self._listeners:
            callback(self.current)
