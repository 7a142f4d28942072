"""Draw README's terminal: run its commands on examples/canary, and write what they print as an SVG.

    python tools/terminal_picture.py     # `make pictures`

The picture has the real output of one run, so its times and request numbers change with each run.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs/images/terminal.svg"
BIN = Path(sys.executable).parent
WIDTH = 112
HALF = '{"spec":{"backends":[{"service":"website-v1","weight":50},{"service":"website-v2","weight":50}]}}'
COMMANDS = (
    f"kubectl patch trafficsplit website --type merge -p '{HALF}'",
    "headgate wait trafficsplit/website",
    "headgate try http://website:8080/ --number 1000",
    "headgate explain http://website:8080/ | head -12",
)
_SVG = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img"
 aria-label="A split is changed with kubectl; headgate warns of the effect, confirms it on all proxies, and measures it">
<style>.{unique_id}-matrix {{ font: {char_height}px/{line_height}px ui-monospace, "DejaVu Sans Mono", Menlo, monospace }}
.{unique_id}-title {{ font: bold 18px sans-serif }} {styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
THEME = TerminalTheme(
    (22, 27, 34),
    (230, 237, 243),
    [
        (72, 79, 88),
        (255, 123, 114),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (188, 140, 255),
        (57, 197, 207),
        (177, 186, 196),
    ],
)


@contextmanager
def running() -> Iterator[Mapping[str, str]]:
    """Run the example; yield the environment in which its commands find it."""
    with tempfile.TemporaryDirectory() as directory:
        up = ["headgate", "up", str(ROOT / "examples/canary"), "--ephemeral", "--state", directory, "-o", "json"]
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": str(WIDTH)}
        with subprocess.Popen(up, env=environment, stdout=subprocess.PIPE, text=True) as program:
            try:
                next(line for line in program.stdout or () if json.loads(line).get("ready"))
                yield {**environment, "KUBECONFIG": f"{directory}/kubeconfig", "HEADGATE_STATE": directory}
            finally:
                program.terminate()


def session() -> Text:
    """Return the commands and what they print."""
    text = Text()
    with running() as environment:
        for command in COMMANDS:
            shell = ["sh", "-c", command]
            result = subprocess.run(shell, env=environment, capture_output=True, text=True, check=True)
            text.append("$ ", style="green").append(f"{command}\n", style="bold")
            text.append_text(Text(result.stderr, style="yellow")).append(f"{result.stdout}\n")
    text.rstrip()
    return text


def main() -> None:
    """Write the picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(session())
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(console.export_svg(title="headgate", theme=THEME, code_format=_SVG, unique_id="t"))


if __name__ == "__main__":
    main()
