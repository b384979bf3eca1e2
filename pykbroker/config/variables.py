"""Names of the environment variables by which a container is configured, and the configuration keys that they mean.

A variable's name becomes a key as in Apache Kafka's image: without its prefix, in lower case, `_` as `.`, then `...` as
`-`, then `..` as `_`. So `__` is `_`, and `___` is `-`.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "KAFKA_"
#: Bitnami's images; a variable without `CFG_` wins, as there.
CFG_PREFIX: Final = "KAFKA_CFG_"


def property_name(variable: str) -> str:
    """KAFKA_LOG_DIRS -> log.dirs, KAFKA_CFG_LOG_DIRS -> log.dirs."""
    prefix = CFG_PREFIX if variable.startswith(CFG_PREFIX) else PREFIX
    return variable.removeprefix(prefix).lower().replace("_", ".").replace("...", "-").replace("..", "_")


def variable_of(key: str) -> str:
    """log.dirs -> KAFKA_LOG_DIRS: what a person writes for a key."""
    return PREFIX + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
