"""Failures of kafka-python's clients as those of Apache Kafka's, one line each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pykbroker.tools.cluster.failure import STANDARD, AskFailed, exception_name
from pykbroker_wire.errors import ErrorCode


def failure_of(error: Exception) -> AskFailed:
    """The failure behind an exception of kafka-python."""
    number = getattr(error, "errno", None)
    code = ErrorCode.received(number) if isinstance(number, int) and number > 0 else None
    name = type(error).__name__ if code is None else exception_name(code)
    # What kafka-python's `str()` puts in front are a number and the name of a Python class.
    words = str(error.args[0]) if error.args else ""
    if not words and code is not None:
        words = STANDARD.get(code) or code.message
    return AskFailed(" ".join(words.split()) or name, f"org.apache.kafka.common.errors.{name}", code)


@contextmanager
def told_failures(but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Raise AskFailed for what kafka-python raises, `but` excepted."""
    from kafka.errors import KafkaError as PythonClientError

    try:
        yield
    except but:
        raise
    except (PythonClientError, AssertionError, ValueError) as error:
        # The last two are its words for a name or a setting that is wrong.
        raise failure_of(error) from None
