"""Copy the page's libraries into src/headgate/dashboard/page/vendor as ES modules, with their licenses.

tools/page/package-lock.json pins each library with its version and integrity, and npm checks both. Imports of packages become relative
paths. `vendor.json` has the version, license and SHA-256 digest of each file; `--check` compares the files with it, without network.
"""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

TOOLS = Path("tools/page")
VENDOR = Path("src/headgate/dashboard/page/vendor")
RECORD = "vendor.json"
_IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*)(["'])([@\w][\w./@-]*)\2""")
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*\n?", re.MULTILINE)


class Module(NamedTuple):
    """A file of a package: its path there, its name in `vendor`, and the name that other modules import."""

    package: str
    source: str
    target: str
    imported_as: str = ""


MODULES = (
    Module("preact", "dist/preact.mjs", "preact.js", "preact"),
    Module("preact", "hooks/dist/hooks.mjs", "preact-hooks.js", "preact/hooks"),
    Module("@preact/signals-core", "dist/signals-core.mjs", "signals-core.js", "@preact/signals-core"),
    Module("@preact/signals", "dist/signals.mjs", "signals.js", "@preact/signals"),
    Module("htm", "dist/htm.mjs", "htm.js", "htm"),
    Module("htm", "preact/index.mjs", "htm-preact.js", "htm/preact"),
    Module("uplot", "dist/uPlot.esm.js", "uplot.js", "uplot"),
    Module("uplot", "dist/uPlot.min.css", "uplot.css"),
    Module("@dagrejs/dagre", "dist/dagre.esm.js", "dagre.js", "@dagrejs/dagre"),
)
_TARGETS = {module.imported_as: module.target for module in MODULES if module.imported_as}


def relative_imports(text: str) -> str:
    """Return a module whose imports of packages are paths in its own directory. Raises KeyError for another package."""
    return _IMPORT.sub(lambda match: f"{match[1]}{match[2]}./{_TARGETS[match[3]]}{match[2]}", text)


def types_of(module: Module) -> str:
    """Return the type declarations of a module for tsc, which takes those of the package."""
    default = f'export {{ default }} from "{module.imported_as}";\n'
    every = f'export * from "{module.imported_as}";\n'
    return {"htm": default, "uplot": default}.get(module.imported_as, every)


def digest(content: bytes) -> str:
    """Return the SHA-256 digest of a file's content in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def vendored(packages: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file of `vendor`, from the directory in which npm installed the packages."""
    for module in MODULES:
        text = (packages / module.package / module.source).read_text()
        yield module.target, _SOURCE_MAP.sub("", relative_imports(text) if module.imported_as else text).encode()
        if module.imported_as:
            yield module.target.removesuffix(".js") + ".d.ts", types_of(module).encode()
    for package in dict.fromkeys(module.package for module in MODULES):
        yield f"LICENSE.{package.removeprefix('@').replace('/', '-')}", (packages / package / "LICENSE").read_bytes()
    # dagre's file contains graphlib.
    yield "LICENSE.dagrejs-graphlib", (packages / "@dagrejs/graphlib/LICENSE").read_bytes()


def write() -> None:
    """Install the pinned packages with npm, and write `vendor` again."""
    subprocess.run(["npm", "ci", "--ignore-scripts"], cwd=TOOLS, check=True)
    packages = TOOLS / "node_modules"
    for path in VENDOR.glob("*"):
        path.unlink()
    VENDOR.mkdir(parents=True, exist_ok=True)
    files = dict(vendored(packages))
    for name, content in files.items():
        (VENDOR / name).write_bytes(content)
    record = {"packages": _packages(packages), "files": {name: digest(files[name]) for name in sorted(files)}}
    (VENDOR / RECORD).write_text(json.dumps(record, indent=2) + "\n")


def _packages(packages: Path) -> dict[str, Any]:
    names = sorted({module.package for module in MODULES} | {"@dagrejs/graphlib"})
    locked = json.loads((TOOLS / "package-lock.json").read_text())["packages"]
    described = {name: json.loads((packages / name / "package.json").read_text()) for name in names}
    return {
        name: {
            "version": described[name]["version"],
            "license": described[name]["license"],
            "integrity": locked[f"node_modules/{name}"]["integrity"],
        }
        for name in names
    }


def differences(recorded: Mapping[str, str], contents: Mapping[str, bytes]) -> list[str]:
    """Return a message for each file that is missing, unknown, or has another content than recorded."""
    missing = [f"{VENDOR / name}: missing" for name in recorded if name not in contents]
    unknown = [f"{VENDOR / name}: not in {RECORD}" for name in contents if name not in recorded]
    changed = [
        f"{VENDOR / name}: changed since tools/vendor_page.py wrote it"
        for name, content in contents.items()
        if name in recorded and recorded[name] != digest(content)
    ]
    return [*missing, *unknown, *changed]


def unlocked(recorded: Mapping[str, Mapping[str, str]], lock: Mapping[str, Any]) -> list[str]:
    """Return a message for each package whose recorded version or integrity is not that of the lock file."""
    return [
        f"{VENDOR / RECORD}: {name} is not the one of {TOOLS / 'package-lock.json'}; run tools/vendor_page.py"
        for name, package in recorded.items()
        if any(
            lock["packages"][f"node_modules/{name}"].get(field) != package[field] for field in ("version", "integrity")
        )
    ]


def main(arguments: list[str]) -> int:
    """Write the directory `vendor`; with `--check` return 1 if it differs from its record, else 0."""
    if arguments != ["--check"]:
        write()
        return 0
    record = json.loads((VENDOR / RECORD).read_text())
    contents = {path.name: path.read_bytes() for path in sorted(VENDOR.iterdir()) if path.name != RECORD}
    lock = json.loads((TOOLS / "package-lock.json").read_text())
    problems = [*differences(record["files"], contents), *unlocked(record["packages"], lock)]
    print("\n".join(problems) or "vendor_page: fine")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
