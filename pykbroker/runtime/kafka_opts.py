"""What the environment gives a node in KAFKA_OPTS, as Apache Kafka's scripts hand it to the JVM: the JAAS file.

The one option that is looked for is `-Djava.security.auth.login.config=<path>`; config/sasl_settings.py reads the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: The whole word may be quoted, or the path alone.
_OPTION: Final = re.compile(r"(?:^|\s)([\"']?)-Djava\.security\.auth\.login\.config=(\"[^\"]*\"|'[^']*'|[^\s\"']+)\1")


def jaas_path(environment: Mapping[str, str] = os.environ) -> str | None:
    """The path of the JAAS file, None for no file; the last one counts, as in Java."""
    found = _OPTION.findall(environment.get("KAFKA_OPTS", ""))
    return found[-1][1].strip("\"'") if found else None


def read_jaas_file(path: str) -> bytes:
    """Raises OSError."""
    return Path(path).read_bytes()
