"""Check the built site: `python scripts/check_site.py build/docs`.

Every link within it leads to a page and a place on it, and no page loads anything from elsewhere.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
# Relations of <link> that name another page instead of loading something.
NAMED = {"index", "search", "next", "prev", "canonical", "author", "copyright"}


class Page(HTMLParser):
    """What a page links to, what it loads, and the places on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.places: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        of = dict(attributes)
        self.places |= {of[name] or "" for name in ("id", "name") if of.get(name)}
        target = of.get(LOADED.get(tag, ""))
        if target and (of.get("rel") or "") not in NAMED:
            self.loads.add(target)
        if tag == "a" and of.get("href"):
            self.links.add(of["href"] or "")


def faults(site: Path) -> list[str]:
    """One line for each broken link and each thing that would be fetched."""
    read = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in read.items():
        name = path.relative_to(site.resolve())
        for target in sorted(page.links | page.loads):
            parts = urlsplit(target)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                if target in page.loads:
                    found.append(f"{name}: loads {target}")
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = read[there].places if there in read else {unquote(parts.fragment)}
            if not there.exists() or unquote(parts.fragment) not in known:
                found.append(f"{name}: leads nowhere: {target}")
    return found


if __name__ == "__main__":
    lines = faults(Path(sys.argv[1]))
    print("\n".join(lines) or "Every link of the site leads somewhere, and nothing is loaded from elsewhere.")
    sys.exit(bool(lines))
