"""The parser of the broker's own commands: what it takes, what it says of what it does not take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.entry.command_parser import CommandParser, UsageError, integer, one_of


def parser() -> CommandParser:
    words = CommandParser("try", "Try something.\n\nWith care.", example="pykbroker try file")
    words.add_argument("place", nargs="?", metavar="[file]")
    words.add_argument("-n", "--number", type=integer, metavar="N", help="How often.")
    words.add_argument("-t", "--text", metavar="TEXT", help="What.")
    words.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="May be repeated."
    )
    words.add_argument("--level", type=one_of(["LOW", "HIGH"]), default="LOW", metavar="LEVEL", help="How much.")
    words.add_argument("-f", "--first", action="store_true", help="Before the others.")
    words.add_argument("--last", action="store_true", help="After the others.")
    words.exclude("--first", "--last")
    return words


@pytest.mark.parametrize("text", ["-abc", "--level", "-t", "a=b", "ü"])
@pytest.mark.parametrize("option", ["--text", "-t"])
def test_a_value_may_look_like_an_option(option: str, text: str) -> None:
    """A cluster id may begin with a dash."""
    assert parser().parse([option, text, "file"]).text == text
    assert parser().parse(["file", option, text]).place == "file"


#: argparse passes over a value that is two dashes.
VALUES = st.text(min_size=1).filter(lambda text: text != "--")


@given(st.lists(st.tuples(st.sampled_from(["--set", "--text", "-t"]), VALUES), max_size=5))
def test_any_value_of_an_option_is_taken_as_it_is(pairs: list[tuple[str, str]]) -> None:
    found = parser().parse([word for pair in pairs for word in pair])
    assert found.settings == [text for option, text in pairs if option == "--set"]
    texts = [text for option, text in pairs if option != "--set"]
    assert found.text == (texts[-1] if texts else None)


def test_an_option_may_hold_its_value() -> None:
    found = parser().parse(["--number=3", "-tx", "--level", "high", "--set", "", "--", "--file"])
    assert (found.number, found.text, found.level, found.settings, found.place) == (3, "x", "HIGH", [""], "--file")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--numbr", "3"], "No such option '--numbr'. Did you mean '--number'?"),
        (["--nonsense"], "No such option '--nonsense'."),
        (["--num", "3"], "No such option '--num'. Did you mean '--number'?"),
        (["--number"], "Option '--number' requires an argument."),
        (["-t"], "Option '--text' requires an argument."),
        (["-n", "three"], "Invalid value for '--number': 'three' is not a valid integer."),
        (["--level", "NONE"], "Invalid value for '--level': 'NONE' is not one of 'LOW', 'HIGH'."),
        (["one", "two"], "Got unexpected extra argument (two)."),
        (["--first", "--last"], "--first does not go with --last."),
        (["--first=yes"], "Option '--first' takes no value."),
    ],
)
def test_words_that_are_not_taken(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parser().parse(words)
    assert str(refused.value) == f"{said} Try 'pykbroker try --help'."


def test_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert parser().format_help() == (
        "Usage: pykbroker try [OPTIONS] [file]\n\n"
        "  Try something.\n\n"
        "  With care.\n\n"
        "Options:\n"
        "  -n, --number N   How often.\n"
        "  -t, --text TEXT  What.\n"
        "  --set KEY=VALUE  May be repeated.\n"
        "  --level LEVEL    How much.\n"
        "  -f, --first      Before the others.\n"
        "  --last           After the others.\n"
        "  -h, --help       Show this message and exit.\n\n"
        "Example:\n"
        "  $ pykbroker try file\n"
    )
