"""The levels of features with which an embedded broker begins, if a test asks for those of a release."""

from __future__ import annotations

import random
import time
from typing import Final

from pykbroker.config.kinds import ConfigError
from pykbroker.config.typed_config import Config
from pykbroker.metadata.features import FeatureError, chosen_levels
from pykbroker.storage.format import directories_of, format_directories, is_unused
from pykbroker_log.disk import Disk
from pykbroker_wire.primitives import random_uuid, uuid_to_str

#: the newest release whose features are served
NEWEST_RELEASE: Final = "4.4"


def levels_of(release: str) -> dict[str, int]:
    """Return feature -> the level with which a cluster of a release begins: `4.3`, `4.4`, `4.0-IV3`. Raises
    ConfigError."""
    try:
        return chosen_levels(release, {}, dynamic_quorum=True)
    except FeatureError as error:
        raise ConfigError(str(error)) from None


def format_unused(config: Config, levels: dict[str, int], disk: Disk, cluster_id: str | None = None) -> None:
    """Format the directories of a node for a new cluster with these levels, unless one is in use already. `cluster_id`:
    None for a new id. Raises StorageFormatError, OSError."""
    rng = random.SystemRandom()
    if all(is_unused(disk, path) for path in directories_of(config)):
        chosen = cluster_id or uuid_to_str(random_uuid(rng))
        format_directories(disk, config, chosen, rng, now_ms=time.time_ns() // 1_000_000, levels=levels)
