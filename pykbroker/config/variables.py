"""Names of the environment variables that configure a container, and the configuration keys that they stand for.

A variable's name becomes a key as in Apache Kafka's image: without its prefix and in lower case. Then each `_` becomes
`.`, then `...` becomes `-`, then `..` becomes `_`. So `__` stands for `_`, and `___` for `-`.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "KAFKA_"
#: The prefix in Bitnami's images. As in these, a variable without `CFG_` overrides the same variable with it.
CFG_PREFIX: Final = "KAFKA_CFG_"


def property_name(variable: str) -> str:
    """Return the key of a variable: KAFKA_LOG_DIRS -> log.dirs, KAFKA_CFG_LOG_DIRS -> log.dirs."""
    prefix = CFG_PREFIX if variable.startswith(CFG_PREFIX) else PREFIX
    return variable.removeprefix(prefix).lower().replace("_", ".").replace("...", "-").replace("..", "_")


def variable_of(key: str) -> str:
    """Return the variable of a key, as a user writes it: log.dirs -> KAFKA_LOG_DIRS."""
    return PREFIX + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
