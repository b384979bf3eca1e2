"""Converts a failure of kafka-python's clients to the failure that Apache Kafka's clients have, in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pykbroker.tools.cluster.failure import STANDARD, AskFailed, exception_name
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafka import KafkaProducer


def flush(producer: KafkaProducer) -> None:
    """Flush the producer. kafka-python raises UnknownError when a batch was too large and was split, although the parts
    are still being sent, so the caller must wait for the outcome of each record."""
    from kafka.errors import UnknownError

    try:
        producer.flush()
    except UnknownError:
        pass


def failure_of(error: Exception) -> AskFailed:
    """Return the failure that an exception of kafka-python stands for."""
    number = getattr(error, "errno", None)
    code = ErrorCode.received(number) if isinstance(number, int) and number > 0 else None
    name = type(error).__name__ if code is None else exception_name(code)
    # kafka-python's `str()` begins with a number and the name of a Python class, so the message is taken from `args`.
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED and (names := _names_in(error)):
        return denied_topics(names)
    words = str(error.args[0]) if error.args else ""
    if not words and code is not None:
        words = STANDARD.get(code) or code.message
    return AskFailed(" ".join(words.split()) or name, f"org.apache.kafka.common.errors.{name}", code)


def denied_topics(names: Iterable[str]) -> AskFailed:
    """Return the failure of a client that may not see or read topics, with the text of Apache Kafka's clients."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    said = f"Not authorized to access topics: [{', '.join(sorted(names))}]"
    return AskFailed(said, f"org.apache.kafka.common.errors.{exception_name(code)}", code)


def _names_in(error: Exception) -> list[str]:
    """Return the names of topics that an exception of kafka-python carries, as one text or as a set."""
    given = error.args[0] if error.args else ()
    return [given] if isinstance(given, str) else [str(name) for name in given]


@contextmanager
def told_failures(but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Raise AskFailed in place of kafka-python's exceptions. Exceptions of the type `but` are raised unchanged."""
    from kafka.errors import KafkaError as PythonClientError

    try:
        yield
    except but:
        raise
    except (PythonClientError, AssertionError, ValueError) as error:
        # kafka-python raises AssertionError or ValueError for a wrong name or a wrong setting.
        raise failure_of(error) from None
