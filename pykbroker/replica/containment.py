"""Keeps a bug that shows under one partition from the partitions that come after it.

Metadata is told once, and what looks at all partitions comes round again only when it has ended: an exception that left
the loop would cost every later partition its change. Not for errors that are expected: those are answers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


@contextmanager
def contained(partition: object, what: str) -> Iterator[None]:
    """Log an exception, and go on. `what` could not be done."""
    try:
        yield
    except Exception:
        logger.exception("Partition %s: %s", partition, what)
