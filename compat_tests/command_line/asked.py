"""Runs `pykbroker`'s own commands in this process, against any node."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from typing import Any

from pykbroker.__main__ import main


@dataclass(frozen=True, slots=True)
class Said:
    """The result of a command."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Return the output of `-o json`."""
        assert (self.status, self.err) == (0, ""), self
        return json.loads(self.out)

    @property
    def failure(self) -> str:
        """Return the one error line of a command that failed, without the program's name."""
        assert self.status in (1, 2), self
        (line,) = self.err.splitlines()
        assert line.startswith("pykbroker: "), line
        return line.removeprefix("pykbroker: ")


class CommandLine:
    """`line("topics", "list")` runs `pykbroker topics list -b BOOTSTRAP`."""

    def __init__(self, bootstrap: str, option: str = "-b") -> None:
        """`option` takes the addresses."""
        self.bootstrap = bootstrap
        self.option = option

    def __call__(self, *words: str, stdin: str = "") -> Said:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        before = sys.stdin
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main([*words, self.option, self.bootstrap])
            out.flush()
        finally:
            sys.stdin = before
        assert isinstance(out.buffer, io.BytesIO)
        return Said(status, out.buffer.getvalue().decode(), err.getvalue())

    def json(self, *words: str) -> Any:
        return self(*words, "-o", "json").document
