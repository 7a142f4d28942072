"""The files of the page, as they are in `page/`: no build step makes them (docs/internals/adr/0021-the-page-without-a-build.md)."""

import hashlib
import html
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parent / "page"
INDEX = "index.html"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file with its media type."""

    content: bytes
    media_type: str


class Assets(NamedTuple):
    """The files of the page by their paths in it, and the digest of all of them, which is part of their URLs.

    So browsers may cache a file forever, and a page never mixes the modules of two versions.
    """

    digest: str
    files: Mapping[str, Asset]
    template: str

    def index_for(self, context: str, namespace: str) -> bytes:
        """Return index.html with the URLs of the files, the name of the kubeconfig's context, and its default namespace."""
        values = {"DIGEST": self.digest, "CONTEXT": html.escape(context), "NAMESPACE": html.escape(namespace)}
        text = self.template
        for name, value in values.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        return text.encode()


def read_assets(directory: Path = PAGE) -> Assets:
    """Read the files of the page. Raises OSError."""
    files = {
        path.relative_to(directory).as_posix(): Asset(path.read_bytes(), _TYPES[path.suffix])
        for path in sorted(directory.rglob("*"))
        if path.suffix in _TYPES and path.is_file()
    }
    template = (directory / INDEX).read_text()
    digest = hashlib.sha256(template.encode())
    for name, asset in files.items():
        digest.update(f"\0{name}\0{len(asset.content)}\0".encode())
        digest.update(asset.content)
    return Assets(digest.hexdigest()[:16], files, template)
