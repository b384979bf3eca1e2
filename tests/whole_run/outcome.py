"""The outcome of one session of pytest, as a value that its process passes to the judge of the whole run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self


@dataclass(slots=True)
class Failure:
    """One phase of one test that failed. `statement` is the line that raised, and `text` is pytest's whole text."""

    nodeid: str
    when: str
    message: str
    statement: str
    text: str

    @property
    def cause(self) -> tuple[str, ...]:
        """Equal for tests that failed together, because a shared fixture raised, and pytest repeats its error."""
        if self.when == "setup":
            return (self.nodeid.partition("::")[0], self.message, self.statement)
        return (self.nodeid,)


@dataclass(slots=True)
class Outcome:
    """The counts of a session. `problems` are reasons to fail that no second chance mends."""

    exit_status: int
    passed: int = 0
    skipped: int = 0
    failures: list[Failure] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    #: By file of tests: tests, seconds, CPU seconds.
    files: dict[str, tuple[int, float, float]] = field(default_factory=dict)

    @property
    def failed_tests(self) -> list[str]:
        """Their ids, each once, in the order in which they failed."""
        return list(dict.fromkeys(failure.nodeid for failure in self.failures))

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Self:
        values = json.loads(file.read_text())
        values["failures"] = [Failure(**failure) for failure in values["failures"]]
        values["files"] = {name: tuple(spent) for name, spent in values["files"].items()}
        return cls(**values)
