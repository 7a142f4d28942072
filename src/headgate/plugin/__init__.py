"""`kubectl traffic`: numbers and pictures of traffic from the metrics API (004; R103 to R107, docs/kubectl-traffic.md).

A client like any other: it knows the API and the user's kubeconfig, and nothing of the rest of headgate.
"""


def main() -> None:
    """Run `kubectl traffic`; exits with the command's code."""
    from headgate.plugin.app import run  # noqa: PLC0415 - whoever imports the package need not load a command line

    run()


def complete() -> None:
    """Run `kubectl_complete-traffic`."""
    from headgate.plugin.completion import main as run  # noqa: PLC0415 - same

    run()
