"""The log that the process of a node writes: on a terminal, in a file, or in a container.

Not responsible for a node inside another program (pykbroker.Broker), which has its own log.
"""

from __future__ import annotations

import logging

from pykbroker.entry.failures import one_line


def log_to(handler: logging.Handler, level: str) -> None:
    """Send every log line of this process to the handler, in the format of Apache Kafka's log."""
    handler.setFormatter(OneLineFormatter("[%(asctime)s] %(levelname)s %(message)s (%(name)s)"))
    logging.basicConfig(level=level, handlers=[handler])


class OneLineFormatter(logging.Formatter):
    """Writes a message as one line, whatever text of a client is in it. A traceback keeps its lines, each with two
    blanks before it, so that no line of the log begins with the text of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        message, *traceback = super().format(record).split("\n")
        return "\n  ".join([message, *map(one_line, traceback)])

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))
