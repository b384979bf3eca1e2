"""The names of config.providers: keys, classes, and variables in a text. Pure; providers.py reads the values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from pykbroker.config.key_table import STATIC_KEYS

KEY: Final = "config.providers"
#: `${provider:path:key}` or `${provider:key}`, as org.apache.kafka.common.config.ConfigTransformer finds them.
VARIABLE: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")


class Provider(Enum):
    ENVIRONMENT = "EnvVarConfigProvider"
    FILE = "FileConfigProvider"
    DIRECTORY = "DirectoryConfigProvider"


#: The classes that are served.
CLASSES: Final[Mapping[str, Provider]] = {
    f"org.apache.kafka.common.config.provider.{each.value}": each for each in Provider
}


def provider_names(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the providers. Raises ConfigError for a text that is not a list."""
    value = STATIC_KEYS[KEY].parse(texts[KEY]) if KEY in texts else ()
    return value if isinstance(value, tuple) else ()


def class_key(name: str) -> str:
    return f"{KEY}.{name}.class"


def left_over(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield keys and variables for which no provider of the configuration had a value."""
    names = provider_names(texts)
    for key, text in texts.items() if names else ():
        # Text after the last closing brace has no variable, and a search in it would take a time that grows with the
        # square of its length.
        for match in VARIABLE.finditer(text, 0, text.rfind("}") + 1):
            if match[1] in names:
                yield key, match[0]
