"""Times and durations, in one form for every command."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.tools.cluster.time_words import parsed_duration_ms, parsed_time_ms

NOW_MS = 1_769_857_200_123
DAY_MS = 86_400_000


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize(
    ("word", "time_ms"),
    [
        ("2026-01-31", 1_769_817_600_000),
        (" 2026-01-31T12:00 ", 1_769_860_800_000),
        ("2026-01-31 12:00:00.5", 1_769_860_800_500),
        ("2026-01-31T12:00Z", 1_769_860_800_000),
        ("2026-01-31T12:00:00.123456+01:00", 1_769_857_200_123),
        ("@1700000000000", 1_700_000_000_000),
        ("now", NOW_MS),
        ("-15m", NOW_MS - 900_000),
        ("1h", NOW_MS - 3_600_000),
        ("-1d12h", NOW_MS - DAY_MS - DAY_MS // 2),
        ("-PT1H", NOW_MS - 3_600_000),
        ("P1D", NOW_MS - DAY_MS),
        ("0s", NOW_MS),
    ],
)
def test_a_time_without_a_zone_is_in_utc_wherever_the_reader_is(word: str, time_ms: int) -> None:
    assert parsed_time_ms(word, NOW_MS) == time_ms


@pytest.mark.parametrize(
    "word",
    ["", "-", "@", "@-1", "@x", "²", "²m", "-²", "1e3", "2026-13-01", "--5m", "5", "5x", "m", "P", "PT", "1h-",
     "yesterday", "0001-01-01", "1969-12-31T23:59:59Z", "@99999999999999999999", "@9223372036854775808", "99999999w"],
)  # fmt: skip
def test_what_is_no_time_is_one_line(word: str) -> None:
    with pytest.raises(ValueError, match=r"is no time: 2026-01-31, |is before 1970|is later than any time") as refused:
        parsed_time_ms(word, NOW_MS)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("word", "duration_ms"),
    [("500ms", 500), ("30s", 30_000), ("1h30m", 5_400_000), ("7d", 7 * DAY_MS), ("2w", 14 * DAY_MS),
     ("1.5h", 5_400_000), ("PT1H", 3_600_000), ("P1DT12H", 129_600_000), ("pt0,5s", 500), ("P3000D", 3000 * DAY_MS)],
)  # fmt: skip
def test_durations(word: str, duration_ms: int) -> None:
    assert parsed_duration_ms(word) == duration_ms


def test_a_plain_number_has_the_unit_of_its_option() -> None:
    assert parsed_duration_ms("15", "m") == 900_000
    assert parsed_duration_ms("60000", "ms") == 60_000
    assert parsed_duration_ms("1h", "ms") == 3_600_000
    for word, unit in (("15", None), ("-15", "m"), ("", "m"), ("1.2.3", "s")):
        with pytest.raises(ValueError, match="is no duration: 500ms, 30s"):
            parsed_duration_ms(word, unit)


@given(st.text(alphabet="0123456789PTDHMSdhmsw.@-+:Z ", max_size=30))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        assert parsed_time_ms(text, NOW_MS) >= 0
    except ValueError:
        return
