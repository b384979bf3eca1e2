"""Every page can be found from docs/README.md, every link leads somewhere, and the README's count of APIs is true."""

from __future__ import annotations

import re
from pathlib import Path

from pykbroker.api import TABLE

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *ROOT.glob("*.md"),
    *DOCS.rglob("*.md"),
    *(ROOT / f"{part}/README.md" for part in ("docker", "wire", "log", "raft", "worlds")),
]


def links(page: Path) -> list[str]:
    """The files that a page links to, as it writes them."""
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    return [link.partition("#")[0] for link in found if not link.startswith(("http", "#", "mailto:"))]


def test_the_index_has_every_page() -> None:
    listed = {(DOCS / link).resolve() for link in links(DOCS / "README.md")}
    assert set(DOCS.rglob("*.md")) - {DOCS / "README.md"} <= listed


def test_every_link_leads_to_a_file() -> None:
    assert len(PAGES) > 50
    dead = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in links(page)
        if not (page.parent / link).exists()
    ]
    assert not dead


def test_the_readme_counts_the_apis() -> None:
    (count,) = re.findall(r"(\d+) of Apache Kafka 4\.4\.0's \d+ APIs", (ROOT / "README.md").read_text(encoding="utf-8"))
    (generated,) = re.findall(r"^(\d+) of Apache Kafka", (DOCS / "apis.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert count == generated
    assert int(count) <= len(TABLE)
