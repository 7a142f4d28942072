"""The `headgate` command (docs/commands.md)."""

from headgate.cli.app import app


def main() -> None:
    """Run the command line and exit with the code of the command."""
    app(prog_name="headgate")
