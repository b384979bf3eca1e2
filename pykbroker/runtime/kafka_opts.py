"""Finds the JAAS file of a node in KAFKA_OPTS, the variable whose options Apache Kafka's scripts pass to the JVM.

The only option that is read is `-Djava.security.auth.login.config=<path>`; sasl/sasl_settings.py reads the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: The option as a whole may be quoted, or only its path.
_OPTION: Final = re.compile(r"(?:^|\s)([\"']?)-Djava\.security\.auth\.login\.config=(\"[^\"]*\"|'[^']*'|[^\s\"']+)\1")


def jaas_path(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of the JAAS file, or None if there is none. If the option is repeated, the last counts, as in
    Java."""
    found = _OPTION.findall(environment.get("KAFKA_OPTS", ""))
    return found[-1][1].strip("\"'") if found else None


def read_jaas_file(path: str) -> bytes:
    """Return the content of the file. Raises OSError."""
    return Path(path).read_bytes()
