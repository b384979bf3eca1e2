"""The creations of topics that one broker has under way. topic_creation/ asks for them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pykbroker.runtime.line_limit import LineLimit
from pykbroker_wire.errors import ErrorCode


@dataclass(slots=True)
class TopicCreations:
    """The topics under way, each with the future of its callers, and the limit of log lines."""

    lines: LineLimit
    in_flight: dict[str, asyncio.Future[ErrorCode]] = field(default_factory=dict)
