"""Conversations as text, in files of tests/transcripts: commands in, all their results out.

A line that begins with "> " is a command, one with "#" a remark. All other lines are results of the command above them.
After a change that you can explain: REWRITE_TRANSCRIPTS=1 python -m pytest tests/coordinator.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "transcripts"


class Conversation:
    """Runs commands (`do_…`) and prints their results (`_tell`). Words with = in them are options."""

    def __init__(self) -> None:
        self.out: list[str] = []

    def command(self, line: str) -> list[str]:
        words = line.split()
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        plain = [word for word in words[1:] if "=" not in word]
        self.out = []
        getattr(self, f"do_{words[0]}")(plain, options)
        self._tell()
        return self.out

    def _say(self, line: str) -> None:
        self.out.append(line.rstrip())

    def _tell(self) -> None:
        raise NotImplementedError


def stories(folder: str) -> list[Path]:
    return sorted((FOLDER / folder).glob("*.txt"))


def retell(path: Path, conversation: Conversation) -> None:
    """Check that the file has the present results of its commands."""
    written = path.read_text()
    lines: list[str] = []
    for line in written.splitlines():
        if line.startswith("> "):
            lines += [line, *conversation.command(line[2:])]
        elif not line or line.startswith("#"):
            lines.append(line)
    result = "\n".join(lines) + "\n"
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(result)
    assert result == written or os.environ.get("REWRITE_TRANSCRIPTS")
