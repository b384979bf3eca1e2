"""The lake's `Files` in a dictionary, which can die before any step and shows itself after every step."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.lake.manifest import STAGING, DataFile, staged

Rows = tuple[str, ...]


class Killed(BaseException):
    """The driver died here. Not an Exception: nothing that it runs may catch it."""


class MemoryFiles:
    """Texts and data files by path; folders are prefixes. `content` is what remains when the driver is gone."""

    def __init__(self) -> None:
        self.content: dict[str, str | Rows] = {}
        self.lives = -1  # steps until the kill; never if negative
        self.steps = 0
        self.after_step: Callable[[], None] = lambda: None
        self._drafts = 0

    def names(self, folder: str) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        return list({path[len(prefix) :].split("/")[0] for path in self.content if path.startswith(prefix)})

    def read(self, path: str) -> str:
        text = self.content.get(path)
        if not isinstance(text, str):
            raise FileNotFoundError(path)
        return text

    def publish(self, path: str, text: str) -> bool:
        self._drafts += 1
        draft = f"{STAGING}/{self._drafts}.draft"
        self._change(lambda: self.content.update({draft: text[: len(text) // 2]}))
        self._change(lambda: self.content.update({draft: text}))
        published = False

        def link() -> None:
            nonlocal published
            if path not in self.content and draft in self.content:
                self.content[path] = text
                published = True

        self._change(link)
        if published:
            self.delete(draft)
        return published

    def exists(self, path: str) -> bool:
        return path in self.content

    def move(self, source: str, target: str) -> None:
        def rename() -> None:
            if source not in self.content:
                raise FileNotFoundError(source)
            assert target not in self.content, f"{target} would be replaced"
            self.content[target] = self.content.pop(source)

        self._change(rename)

    def delete(self, path: str) -> None:
        for each in [each for each in self.content if each == path or each.startswith(path + "/")]:
            self._change(lambda each=each: self.content.pop(each, None))  # type: ignore[misc]

    # What Spark does

    def write_rows(self, staging: str, files: dict[str, Rows]) -> tuple[DataFile, ...]:
        for path, rows in files.items():
            self._change(lambda path=path, rows=rows: self.content.update({staged(staging, path): rows}))  # type: ignore[misc]
        return tuple(DataFile(path, len(rows), 10 * len(rows)) for path, rows in files.items())

    def rows(self, paths: list[str]) -> list[str]:
        return [row for path in paths for row in self.content[path]]

    def listed(self) -> list[str]:
        """The rows that a reader of `*.parquet` finds, who skips what begins with an underscore."""
        return self.rows([path for path in self.content if path.endswith(".parquet") and not path.startswith("_")])

    def _change(self, change: Callable[[], object]) -> None:
        if self.lives == 0:
            raise Killed
        self.lives -= 1
        self.steps += 1
        change()
        self.after_step()
