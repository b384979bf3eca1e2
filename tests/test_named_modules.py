"""A module that a head, a comment or a page names is there. In sources a name without a folder stands for a module of
the same folder or of one above it, so that a reader knows which one is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.long_runs import ROOT, git
from tests.test_architecture_page import BELOW

_MODULE = re.compile(r"(?<![\w./*<-])(?:[\w.-]+/)*[\w-]+\.py\b")
_SOURCES = (
    "pykbroker/",
    "wire/pykbroker_wire/",
    "log/pykbroker_log/",
    "raft/pykbroker_raft/",
    "worlds/pykbroker_worlds/",
)
#: Folders that a path may leave out, in addition to those of the architecture page.
_ALSO_BELOW = ("wire/", "log/", "raft/", "worlds/", "spark/", "spark/segments/")
#: Names in pages that are examples, or no module of ours.
APART = {
    "CONTRIBUTING.md": {
        "pykbroker_wire/messages/list_things.py",
        "pykbroker/api/list_things.py",
        "tests/api/test_list_things.py",
    },
    "docs/decisions/0001-component-folders.md": {"log.py"},
    "docs/test-time.md": {"billing.py", "test_billing.py", "test_faststream.py"},
}


@pytest.fixture(scope="module")
def files() -> set[str]:
    return set(git("ls-files").splitlines())


def unresolved(file: str, text: str, files: set[str]) -> Iterator[str]:
    """The modules that `text`, of this file, names and that are not there."""
    here = PurePosixPath(file).parent
    for name in dict.fromkeys(_MODULE.findall(text)):
        places = [*(f"{below}{name}" for below in (*BELOW, *_ALSO_BELOW)), *(str(up / name) for up in here.parents)]
        if "/" not in name:
            if file.endswith(".md"):
                places = [each for each in files if each.endswith(f"/{name}")]
            else:
                places = [str(up / name) for up in here.parents]
        if not files.intersection([str(here / name), *places]):
            yield name


@pytest.mark.slow
def test_each_module_that_is_named_is_there(files: set[str]) -> None:
    readers = [file for file in files if file.endswith(".py") and file.startswith(_SOURCES)]
    # Without the pages of changes, which name modules as they were then.
    readers += [file for file in files if file.endswith(".md") and not file.startswith(("CHANGELOG.md", "changes/"))]
    assert len(readers) > 500
    found = {}
    for file in readers:
        # A link of a page names a file from where the page lies: what it says in brackets is looked at, too.
        text = re.sub(r"\]\([^)]*\)", "]", (ROOT / file).read_text(encoding="utf-8"))
        missing = set(unresolved(file, text, files)) - APART.get(file, set())
        if missing:
            found[file] = sorted(missing)
    assert found == {}


def test_what_a_name_without_a_folder_means() -> None:
    files = {"pykbroker/a/x.py", "pykbroker/b/y.py", "pykbroker/b/c/z.py"}
    assert list(unresolved("pykbroker/b/c/z.py", "see y.py, x.py and a/x.py", files)) == ["x.py"]
    assert list(unresolved("docs/page.md", "see `x.py` and `gone.py`", files)) == ["gone.py"]
