"""Every number of the README is what generates it, and the README is short."""

from __future__ import annotations

import re
import tomllib

import pytest

from bench.report import BEGIN, END
from pykbroker.api import TABLE
from pykbroker.config.load import development_profile
from pykbroker.metadata.features import SUPPORTED, TRANSACTION_VERSION
from testkit.nodes.processes import READY, ROOT
from testkit.oracle.kafka import KAFKA, NEWEST

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
#: Figures of measurements: `python -m bench.report --check` compares them with the stored runs, in make lint.
MEASURED = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
#: Proposals of Apache Kafka, licences and links have numbers that count nothing.
NAMES = re.compile(r"KIP-\d+|Apache License 2\.0|\]\([^)]*\)|SHA-\d+")
MOST_LINES = 150
MOST_COLUMNS = 120


def apis() -> tuple[int, int]:
    """Return the number of APIs that are served, and the number that Apache Kafka has, from docs/apis.md."""
    page = (ROOT / "docs/apis.md").read_text(encoding="utf-8")
    ((served, all_of_them),) = re.findall(r"^(\d+) of Apache Kafka \S+'s (\d+)", page, re.MULTILINE)
    return int(served), int(all_of_them)


def ports() -> list[str]:
    """The ports of a node that was started without an argument: clients, controller."""
    return re.findall(r":(\d+)", development_profile("/nowhere")["listeners"])


def python() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["requires-python"]).removeprefix(">=")


def what_make_says(target: str) -> str:
    (said,) = re.findall(rf"^SAYS_{target} := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return f"make {target}: {said}"


def facts() -> list[str]:
    """Every text of the README that has a number, made of what generates the number."""
    served, all_of_them = apis()
    clients, controller = ports()
    return [
        what_make_says("run"),
        f"{served} of Apache Kafka {NEWEST}'s {all_of_them} APIs",
        f"as in Apache Kafka {NEWEST}",
        f"Apache Kafka {KAFKA}",
        f"Python {python()} or newer",
        f"port {clients} for clients and {controller} for its controller",
        f"{READY}localhost:{clients}",
        f"{clients}: Apache Kafka's protocol",
        f"localhost:{clients}",
        f"versions 0 to {max_transaction_version()} (KIP-890)",
    ]


def max_transaction_version() -> int:
    return SUPPORTED[TRANSACTION_VERSION].max


def without_examples(text: str) -> str:
    """The text without what its examples write and print: tests/pages/test_examples.py runs them."""
    return re.sub(r"^```(python|console)?\n(?!.*make run).*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_each_number_is_what_generates_it() -> None:
    left = MEASURED.sub("", TEXT)
    for fact in facts():
        assert fact in left, fact
        left = left.replace(fact, "")
    numbers = re.findall(r".*\d.*", NAMES.sub("", without_examples(left)))
    assert not numbers, "no test knows where these numbers come from"


def test_the_picture_has_the_port() -> None:
    assert f">{ports()[0]}: Apache Kafka's protocol<" in (ROOT / "docs/parts.svg").read_text(encoding="utf-8")


def test_the_count_of_apis_is_no_more_than_there_are() -> None:
    assert apis()[0] <= len(TABLE)


def test_quick_takes_as_long_as_make_says() -> None:
    assert "in a minute or less" in " ".join(TEXT.split())
    assert "a minute or less" in what_make_says("quick")


def test_eight_figures_and_the_losses_look_like_losses() -> None:
    (table,) = MEASURED.findall(TEXT)
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) == 8
    assert rows[0].count("|") == 7
    for row in rows:
        *_, better, kafka, ours, quotient = (cell.strip() for cell in row.strip("|").split("|"))
        value = float(quotient.strip("*").partition(",")[0])
        lost = value < 1 if better == "more" else value > 1
        assert quotient.endswith(", a loss**") == lost, row
        # the quotient of the rounded figures, within what rounding hides
        assert float(ours.split()[0].replace(",", "")) / float(kafka.split()[0].replace(",", "")) == pytest.approx(
            value, rel=0.02
        )


def test_it_is_short() -> None:
    lines = TEXT.splitlines()
    assert len(lines) <= MOST_LINES
    long = [line for line in lines if len(line) > MOST_COLUMNS and not line.startswith("|")]
    assert not long
