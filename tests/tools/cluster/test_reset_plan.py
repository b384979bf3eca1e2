"""The targets of --reset-offsets: times, scopes, files."""

from __future__ import annotations

import pytest

from pykbroker.tools.cluster.reset_plan import (
    BadReset,
    milliseconds_of_datetime,
    milliseconds_of_duration,
    rows_of_file,
    scope,
    within,
)


def test_datetimes_are_in_utc_unless_they_say_otherwise() -> None:
    assert milliseconds_of_datetime("1970-01-01T00:00:01.500") == 1500
    assert milliseconds_of_datetime("1970-01-01T00:00:01") == 1000
    assert milliseconds_of_datetime("1970-01-01T01:00:00.000+01:00") == 0
    assert milliseconds_of_datetime("1970-01-01T00:00:00.001Z") == 1
    with pytest.raises(BadReset, match=r"It does not contain a 'T'"):
        milliseconds_of_datetime("1970-01-01")
    with pytest.raises(BadReset, match=r"Unparseable date"):
        milliseconds_of_datetime("1970-13-01T00:00:00")


@pytest.mark.parametrize(
    ("written", "wanted"),
    [("PT1H", 3_600_000), ("P1D", 86_400_000), ("P1DT2H3M4.5S", 93_784_500), ("pt1m", 60_000), ("-PT1S", -1000)],
)
def test_durations(written: str, wanted: int) -> None:
    assert milliseconds_of_duration(written) == wanted


@pytest.mark.parametrize("written", ["", "P", "PT", "1H", "PT1X"])
def test_durations_that_are_none(written: str) -> None:
    with pytest.raises(BadReset, match=r"^Text cannot be parsed to a Duration$"):
        milliseconds_of_duration(written)


def test_scopes() -> None:
    existing = {"a": (0, 1, 2), "b": (0,)}
    assert scope(["a:2,0", "b"], existing) == [("a", 2), ("a", 0), ("b", 0)]
    with pytest.raises(BadReset, match=r"^This server does not host this topic-partition\.$"):
        scope(["c"], existing)
    with pytest.raises(BadReset, match=r'^The partitions "a-7,a-9" do not exist$'):
        scope(["a:7,1,9"], existing)
    for text in ("a:0:1", "a:"):
        with pytest.raises(
            BadReset, match=f"^Invalid topic arg '{text}', expected topic name and partitions$"
        ) as raised:
            scope([text], existing)
        assert raised.value.is_of_the_command_line
    with pytest.raises(BadReset, match=r"Invalid partition"):
        scope(["a:x"], existing)


def test_an_offset_goes_no_further_than_the_ends() -> None:
    assert [within(at, 5, 9) for at in (1, 5, 7, 9, 12)] == [5, 5, 7, 9, 9]


def test_files() -> None:
    assert rows_of_file("t,0,3\nt,1,4\n\n", ["g"]) == {"g": {("t", 0): 3, ("t", 1): 4}}
    assert rows_of_file("g,t,0,3\nh,t,0,4\n", ["g", "h"]) == {"g": {("t", 0): 3}, "h": {("t", 0): 4}}
    for bad in ("t,0\n", "t,x,3\n", "a,b,c,d,e\n"):
        with pytest.raises(BadReset, match=r"Invalid row"):
            rows_of_file(bad, ["g"])
    with pytest.raises(BadReset, match=r"Invalid row"):
        rows_of_file("t,0,3\n", ["g", "h"])
