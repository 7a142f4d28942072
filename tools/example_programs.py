"""Write the programs of examples/programs into the ConfigMap of each example that uses them: `programs.yaml`.

With --check it only compares them.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PROGRAMS = EXAMPLES / "programs"
HEAD = """\
# The programs of the pods, from examples/programs: `make examples` writes this file.
apiVersion: v1
kind: ConfigMap
metadata:
  name: programs
data:
"""
USE = re.compile(r"/app/(\w+\.py)")
ON_TOP = {"steps"}  # Directories of changes to objects of another one, which has the programs.


def config_maps() -> dict[Path, str]:
    """Return the text of each example's `programs.yaml`, by path."""
    return {
        directory / "programs.yaml": text
        for directory in sorted({path.parent for path in EXAMPLES.rglob("*.yaml")})
        if directory.name not in ON_TOP and (text := config_map(directory))
    }


def config_map(directory: Path) -> str:
    """Return the ConfigMap of the programs that the manifests of a directory run; empty if they run none."""
    manifests = (path.read_text() for path in directory.glob("*.yaml") if path.name != "programs.yaml")
    names = {name for text in manifests for name in USE.findall(text)}
    programs = [path for path in sorted(PROGRAMS.glob("*.py")) if path.name in names]
    return HEAD + "".join(f"  {path.name}: |\n{indented(path.read_text())}" for path in programs) if programs else ""


def indented(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def main() -> int:
    expected = config_maps()
    unused = [
        path for path in EXAMPLES.rglob("programs.yaml") if path not in expected and path.read_text().startswith(HEAD)
    ]
    if "--check" not in sys.argv[1:]:
        for path, text in expected.items():
            path.write_text(text)
        for path in unused:
            path.unlink()
        return 0
    stale = [path for path, text in expected.items() if not path.exists() or path.read_text() != text]
    for path in [*stale, *unused]:
        print(f"{path.relative_to(ROOT)} differs from examples/programs: run `make examples`")
    return 1 if stale or unused else 0


if __name__ == "__main__":
    sys.exit(main())
