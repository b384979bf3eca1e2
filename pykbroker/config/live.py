"""The configuration in effect, while it changes: the properties file under the dynamic layers of the metadata log.

Responsible for what the value is now and for telling the parts that act on it. Not responsible for the layers' order
(dynamic.py)
nor for what a part does with a change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pykbroker.config.dynamic import DynamicConfigs, without_invalid
from pykbroker.config.key_table import DYNAMIC_ONLY_KEYS
from pykbroker.config.load import Config

logger = logging.getLogger(__name__)


class LiveConfig:
    """`current` is what acts; `static` what the properties file says."""

    def __init__(self, static: Config) -> None:
        self.static = static
        self.current = static
        # What the metadata says, and what of it is applied.
        self._told = self._dynamic = DynamicConfigs()
        self._listeners: list[Callable[[Config], None]] = []

    def on_change(self, callback: Callable[[Config], None]) -> None:
        """`callback(config)` after every change; the caller has read `current` itself before."""
        self._listeners.append(callback)

    def throttle(self, name: str) -> int:
        """A rate that only exists dynamically (DYNAMIC_ONLY_KEYS), bytes a second."""
        key = DYNAMIC_ONLY_KEYS[name]
        text = self._dynamic.broker.get(name, self._dynamic.cluster.get(name))
        value = key.default if text is None else key.parse(text)
        assert isinstance(value, int)
        return value

    def update(self, dynamic: DynamicConfigs) -> None:
        """New layers. What must not be applied is left out with a line in the log."""
        if dynamic == self._told:
            return
        self._told = dynamic
        kept, messages = without_invalid(self.static, dynamic)
        for message in messages:
            logger.error("%s", message)
        self._dynamic = kept
        self.current = kept.apply(self.static)
        for callback in self._listeners:
            callback(self.current)
