"""The `headgate` command."""


def main() -> None:
    """Run the command line."""
