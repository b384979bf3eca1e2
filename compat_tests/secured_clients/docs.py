"""Makes docs/secured-clients.md from said.py, with `python -m compat_tests.secured_clients.docs`."""

from __future__ import annotations

import sys
from pathlib import Path

from compat_tests.secured_clients.said import CASES, JAVA, LIBRARIES, PROGRAMS, Said
from pykbroker import generated_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "secured-clients.md"
HEAD = """# Clients on a secured node

Written by `python -m compat_tests.secured_clients.docs`, from what the tests of `compat_tests/secured_clients` expect;
do not edit.

A node with ACLs and sessions of two seconds (`connections.max.reauth.ms`). For each cell with "yes" a client writes and
reads with the right password, and is refused with a wrong one. Once for each protocol it is refused a topic without an
ACL, and, but for the last row, writes for longer than a session lasts.

"""


def page() -> str:
    clients = {**LIBRARIES, **PROGRAMS, "Java": JAVA}
    titles = ["client", *(f"{mechanism}, {_channel(protocol)}" for protocol, mechanism in CASES)]
    lines = [titles, ["---"] * len(titles)]
    lines += [[name, *("yes" if case in said.cases else "" for case in CASES)] for name, said in clients.items()]
    refusals = [["client", "a wrong password", "a topic without an ACL", ""], ["---"] * 4]
    refusals += [[name, *_words(said), said.note] for name, said in clients.items()]
    return HEAD + _table(lines) + "\n" + _table(refusals)


def _channel(protocol: str) -> str:
    return {"SASL_PLAINTEXT": "plain", "SASL_SSL": "TLS"}[protocol]


def _words(said: Said) -> tuple[str, str]:
    denied = said.denied_topic
    return f"`{said.wrong_password}`", denied if "," in denied else f"`{denied}`"


def _table(rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    sys.exit(generated_page.main(PAGE, page, "compat_tests.secured_clients.docs", sys.argv[1:]))
