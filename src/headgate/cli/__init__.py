"""The `headgate` command (docs/commands.md)."""

import sys

_HOOK = ["sidecar", "drain"]


def main() -> None:
    """Run the command line and exit with the code of the command.

    The preStop hook of sidecars begins with its urgent part: the imports of all commands take ten times as long.
    """
    if sys.argv[1:] == _HOOK:
        from headgate.cli.refusal import refuse_after_application

        refuse_after_application()
    from headgate.cli.app import app

    app(prog_name="headgate")
