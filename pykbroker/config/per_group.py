"""Values that are read from the configuration of a group, kept until the configuration changes.

Responsible for looking them up quickly, by group id, while overrides (IncrementalAlterConfigs on a resource of type
GROUP) and the broker's dynamic keys change. Not responsible for the layers and bounds themselves (group.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from pykbroker.config.group import resolve_group

if TYPE_CHECKING:
    from pykbroker.config.kinds import Value
    from pykbroker.config.typed_config import Config

T = TypeVar("T")


class PerGroup(Generic[T]):
    def __init__(
        self,
        config: Callable[[], Config],
        overrides: Callable[[str], Mapping[str, str]],
        read: Callable[[Mapping[str, Value]], T],
    ) -> None:
        """`config` returns the broker's present configuration. `overrides` returns the overrides of a group, which are
        empty for most groups. Both must return the same object until something changes. `read` makes the value from the
        resolved keys."""
        self._config = config
        self._overrides = overrides
        self._read = read
        self._seen = config()
        self._default = read(resolve_group(self._seen))
        self._own: dict[str, tuple[Mapping[str, str], T]] = {}

    def of(self, group_id: str) -> T:
        """Return the present value of a group."""
        config = self._config()
        if config is not self._seen:
            self._seen = config
            self._default = self._read(resolve_group(config))
            self._own.clear()
        overrides = self._overrides(group_id)
        if not overrides:
            self._own.pop(group_id, None)
            return self._default
        known = self._own.get(group_id)
        if known is not None and known[0] is overrides:
            return known[1]
        own = self._read(resolve_group(config, overrides))
        self._own[group_id] = (overrides, own)
        return own
