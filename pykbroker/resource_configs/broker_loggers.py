"""Broker loggers (KIP-412): the levels of Python's loggers, read and changed over the protocol.

Levels are not in the metadata. They last as long as the process, and only the levels of this node can be changed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from pykbroker.controller.configs import Alteration, AlterOperation
from pykbroker_wire.errors import ErrorCode, KafkaError

ROOT = "root"

#: Kafka's names of levels -> Python's numbers.
_LEVELS = {
    "TRACE": logging.DEBUG - 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def levels() -> dict[str, str]:
    """Return logger name -> effective level, the root first."""
    found = {ROOT: _word(logging.getLogger().getEffectiveLevel())}
    for name, known in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(known, logging.Logger):
            found[name] = _word(known.getEffectiveLevel())
    return found


def check_node_id(node_id: int, name: str) -> None:
    # Python's int() would also take spaces and underscores.
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {name}")


def change(alterations: Iterable[Alteration], validate_only: bool) -> None:
    """Apply all alterations. Raise KafkaError and apply none if one of them is not allowed."""
    wanted = list(alterations)
    known = levels()
    for name, operation, value in wanted:
        match operation:
            case AlterOperation.SET:
                _check_exists(known, name)
                if (value or "").upper() not in _LEVELS:
                    raise KafkaError(
                        ErrorCode.INVALID_CONFIG,
                        f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
                        f"Valid log levels are {', '.join(sorted(_LEVELS))}",
                    )
            case AlterOperation.DELETE:
                _check_exists(known, name)
                if name == ROOT:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
                    )
            case AlterOperation.APPEND | AlterOperation.SUBTRACT:
                word = AlterOperation(operation).name
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{word} operation is not allowed for the BROKER_LOGGER resource"
                )
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown config operation {operation}")
    if validate_only:
        return
    for name, operation, value in wanted:
        logger = logging.getLogger(None if name == ROOT else name)
        logger.setLevel(_LEVELS[(value or "").upper()] if operation == AlterOperation.SET else logging.NOTSET)


def _check_exists(known: dict[str, str], name: str) -> None:
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")


def _word(level: int) -> str:
    """Return the most verbose of Kafka's levels that is not more verbose than `level`."""
    return next((word for word, number in _LEVELS.items() if level <= number), "FATAL")
