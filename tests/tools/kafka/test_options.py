"""The grammar of joptsimple, its error lines, and the usage."""

from __future__ import annotations

import pytest

from pykbroker.tools.kafka.tool_options import Accepted, OptionError, Options, ToolEnded, key_values

OPTIONS = Options(
    "This tool is for tests.",
    [
        Accepted("topic", "The topic.", "topic"),
        Accepted("time", "A time.", "ms", int, "7"),
        Accepted("state", "States.", "states", is_optional=True),
        Accepted("list", "List."),
        Accepted("scale", "Of a kind.", "kind", choices=("small", "large")),
        Accepted("jmx", "Not here.", not_served="there is no JVM"),
    ],
)


def test_a_value_stands_behind_a_blank_or_an_equals_sign() -> None:
    given = OPTIONS.parse(["--topic", "a=b", "--time=-1", "--list"])
    assert (given.text("topic"), given.number("time"), given.has("list")) == ("a=b", -1, True)
    # A required argument is taken even if it looks like an option.
    assert OPTIONS.parse(["--time", "-1"]).number("time") == -1
    assert OPTIONS.parse(["--topic", "--list"]).text("topic") == "--list"


def test_a_default_and_an_absent_value() -> None:
    given = OPTIONS.parse([])
    assert (given.number("time"), given.text("topic"), given.texts("topic"), given.has("time")) == (7, None, [], False)


def test_an_optional_value_is_taken_unless_it_looks_like_an_option() -> None:
    assert OPTIONS.parse(["--state", "stable"]).text("state") == "stable"
    given = OPTIONS.parse(["--state", "--list"])
    assert (given.has("state"), given.text("state"), given.has("list")) == (True, None, True)


def test_repeated_options_are_kept_and_refused_where_one_is_asked_for() -> None:
    given = OPTIONS.parse(["--topic", "a", "--topic", "b"])
    assert given.texts("topic") == ["a", "b"]
    with pytest.raises(OptionError, match=r"^Found multiple arguments for option topic, but you asked for only one$"):
        given.text("topic")


def test_words_of_no_option_are_left_alone_and_two_dashes_end_the_options() -> None:
    assert OPTIONS.parse(["word", "--list", "-", "--", "--none-such"]).has("list")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--none-such"], "none-such is not a recognized option"),
        (["--top", "a"], "top is not a recognized option"),
        (["-x"], "x is not a recognized option"),
        (["--topic"], "Option topic requires an argument"),
        (["--list=x"], "Option list does not allow an argument"),
        (["--scale", "huge"], "Cannot parse argument 'huge' of option scale"),
        (["--jmx"], "--jmx is not supported by pykbroker: there is no JVM"),
    ],
)
def test_what_cannot_be_read(words: list[str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        OPTIONS.parse(words)
    assert str(caught.value) == message


def test_a_number_that_is_none() -> None:
    with pytest.raises(OptionError, match=r"^Cannot parse argument 'x' of option time$"):
        OPTIONS.parse(["--time", "x"]).number("time")


def test_the_usage_names_every_option_once_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ToolEnded) as ended:
        OPTIONS.help_or_version(["--help"], OPTIONS.parse(["--help"]))
    assert ended.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[:3] == ["This tool is for tests.", f"{'Option':<42}Description", f"{'------':<42}-----------"]
    assert [line.split()[0] for line in lines[3:]] == [
        "--help", "--jmx", "--list", "--scale", "--state", "--time", "--topic", "--version",
    ]  # fmt: skip
    assert "--time <Integer: ms>" in err
    assert "(default: 7)" in err
    assert "Not supported by pykbroker: there is no JVM" in err


def test_required_and_exclusive_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ToolEnded):
        OPTIONS.require(OPTIONS.parse(["--list"]), "topic")
    assert capsys.readouterr().err.startswith('Missing required argument "[topic]"\n')
    with pytest.raises(ToolEnded):
        OPTIONS.exclude(OPTIONS.parse(["--list", "--state"]), "list", "topic", "state")
    assert capsys.readouterr().err.startswith('Option "[list]" can\'t be used with option "[state]"\n')
    OPTIONS.require(OPTIONS.parse(["--topic", "a"]), "topic")
    OPTIONS.exclude(OPTIONS.parse(["--state"]), "list", "topic", "state")
    with pytest.raises(ToolEnded):
        OPTIONS.both(OPTIONS.parse(["--list", "--state"]), "list", "state")
    assert OPTIONS.both(OPTIONS.parse(["--state"]), "list", "state") == "state"


def test_pairs() -> None:
    assert key_values(["a=b=c", "d", "e="]) == {"a": "b=c", "d": "", "e": ""}
    with pytest.raises(OptionError):
        key_values(["a"], needs_value=True)
