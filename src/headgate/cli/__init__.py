"""The `headgate` command (docs/commands.md)."""

from headgate.cli.app import app


def main() -> None:
    """Run the command line; exits with the command's code."""
    app(prog_name="headgate")
