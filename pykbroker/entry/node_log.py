"""The log that the process of a node writes: on a terminal, in a file, or of a container.

Not responsible for a node inside another program (pykbroker.Broker), whose log is that program's.
"""

from __future__ import annotations

import logging

from pykbroker.entry.failures import one_line


def log_to(handler: logging.Handler, level: str) -> None:
    """Every line of this process goes there, in the shape that Apache Kafka's log has."""
    handler.setFormatter(OneLineFormatter("[%(asctime)s] %(levelname)s %(message)s (%(name)s)"))
    logging.basicConfig(level=level, handlers=[handler])


class OneLineFormatter(logging.Formatter):
    """A message is one line, whatever a client has named in it. A traceback keeps its lines, each with two blanks
    before it: what an exception says begins no line of the log."""

    def format(self, record: logging.LogRecord) -> str:
        message, *traceback = super().format(record).split("\n")
        return "\n  ".join([message, *map(one_line, traceback)])

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))
