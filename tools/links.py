"""Check that each link of the documents leads to a file, and its anchor to a heading of it.

    python tools/links.py            # in `make check`

Headings get the anchors of GitHub. Links to other hosts are not followed.
"""

import functools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOTS = ("docs", "examples", "deploy", "benchmarks")
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2`*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#*)?$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_OUTSIDE = re.compile(r"[a-z]+:")


def pages() -> list[Path]:
    """Return all documents."""
    return [*sorted(ROOT.glob("*.md")), *(page for root in ROOTS for page in sorted((ROOT / root).rglob("*.md")))]


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings; a repeated one gets a number."""
    count: Counter[str] = Counter()
    names = set()
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text())):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        names.add(f"{name}-{count[name]}" if count[name] else name)
        count[name] += 1
    return frozenset(names)


def broken(page: Path) -> Iterator[str]:
    """Yield a message for each link of a page that leads nowhere."""
    for number, line in enumerate(
        _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), page.read_text()).splitlines(), 1
    ):
        for link in _LINK.findall(_CODE.sub("", line)):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            place = f"{page.relative_to(ROOT)}:{number}: {link}"
            if _OUTSIDE.match(link):
                continue
            if not target.exists():
                yield f"{place}: no such file"
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                yield f"{place}: {target.name} has no such heading"


def main() -> int:
    """Check all documents; return 1 if a link leads nowhere."""
    messages = [message for page in pages() for message in broken(page)]
    sys.stdout.write("\n".join(messages or ["links: fine"]) + "\n")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
