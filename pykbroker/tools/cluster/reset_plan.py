"""The target of a reset of a group's offsets: scopes, times and files, read from text. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:[.,]\d+)?)S)?)?", re.I
)

UNKNOWN_TOPIC: Final = "This server does not host this topic-partition."
_ILLEGAL_ARGUMENT: Final = "java.lang.IllegalArgumentException"


class BadReset(Exception):
    """A scope, time or file that cannot be read. `name` is the exception that Java raises for it, and `plain` the
    sentence of pykbroker's own commands."""

    def __init__(self, message: str, name: str = _ILLEGAL_ARGUMENT, plain: str | None = None) -> None:
        """`plain`: None for the message."""
        super().__init__(message)
        self.name = name
        self.plain = plain or message

    @property
    def is_of_the_command_line(self) -> bool:
        """Return True if Apache Kafka's tools show their usage for it, and end with 1."""
        return self.name == _ILLEGAL_ARGUMENT


def milliseconds_of_datetime(written: str) -> int:
    """Parse `2020-01-01T00:00:00.000`, in UTC unless it names a zone. Raises BadReset."""
    _, letter, time = written.partition("T")
    parse = "java.text.ParseException"
    if not letter:
        raise BadReset("Error parsing timestamp. It does not contain a 'T' according to ISO8601 format", parse)
    zoned = written if re.search(r"[-+Z]", time) else written + "Z"
    try:
        return int(datetime.fromisoformat(zoned).timestamp() * 1000)
    except ValueError:
        raise BadReset(f'Unparseable date: "{zoned}"', parse) from None


def milliseconds_of_duration(written: str) -> int:
    """Parse `P1DT2H`. Raises BadReset."""
    found = _DURATION.fullmatch(written)
    if found is None or not any(found.groups()[1:]):
        raise BadReset("Text cannot be parsed to a Duration", "")
    sign = -1 if found[1] == "-" else 1
    days, hours, minutes = (int(part or 0) for part in found.group(2, 3, 4))
    seconds = float((found[5] or "0").replace(",", "."))
    return sign * int(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)


def written_partitions(text: str) -> tuple[str, list[int] | None]:
    """Return the topic and the partitions of `topic:0,1`, or the topic and None for `topic`. Raises BadReset."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    if not numbers or ":" in numbers:
        raise BadReset(
            f"Invalid topic arg '{text}', expected topic name and partitions",
            plain=f"{text} names no partitions: write TOPIC:0,1",
        )
    try:
        return topic, [int(number := part) for part in numbers.split(",")]
    except ValueError:
        raise BadReset(
            f"Invalid partition '{number}' specified in topic arg '{text}''",
            plain=f"{text} names no partitions: '{number}' is no number",
        ) from None


def scope(written: Iterable[str], existing: Mapping[str, Iterable[int]]) -> list[tuple[str, int]]:
    """Return the partitions of `topic` or `topic:0,1`. Raises BadReset for one that does not exist."""
    found: list[tuple[str, int]] = []
    for text in written:
        topic, wanted = written_partitions(text)
        if wanted is None:
            if topic not in existing:
                raise BadReset(UNKNOWN_TOPIC, "")
            wanted = sorted(existing[topic])
        missing = [f"{topic}-{number}" for number in wanted if number not in existing.get(topic, ())]
        if missing:
            raise BadReset(f'The partitions "{",".join(missing)}" do not exist', "")
        found += [(topic, number) for number in wanted]
    return found


def within(offset: int, earliest: int, latest: int) -> int:
    """Return the offset, or the nearer of `earliest` and `latest` if it is not between them."""
    return max(earliest, min(latest, offset))


def rows_of_file(text: str, groups: list[str]) -> dict[str, dict[tuple[str, int], int]]:
    """Return group -> partition -> offset. A row is `topic,partition,offset` if there is one group; it may also begin
    with the group. Raises BadReset."""
    found: dict[str, dict[tuple[str, int], int]] = {}
    for row in csv.reader(io.StringIO(text)):
        if not row:
            continue
        try:
            if len(row) == 3 and len(groups) == 1:
                found.setdefault(groups[0], {})[row[0], int(row[1])] = int(row[2])
            elif len(row) == 4:
                found.setdefault(row[0], {})[row[1], int(row[2])] = int(row[3])
            else:
                raise ValueError
        except ValueError:
            raise BadReset(f"Invalid row in the file: {','.join(row)}", "java.lang.RuntimeException") from None
    return found
