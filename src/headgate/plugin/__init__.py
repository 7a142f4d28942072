"""`kubectl traffic`: tables and diagrams of traffic from the metrics API (SMI Traffic Metrics, 004; R103 to R107).

It uses only the API and the user's kubeconfig, so it works with every implementation of the metrics API.
"""


def main() -> None:
    """Run `kubectl traffic` and exit with the code of the command."""
    from headgate.plugin.app import run  # noqa: PLC0415 - importing the package does not load the command line

    run()


def complete() -> None:
    """Run `kubectl_complete-traffic`, which kubectl calls for shell completion."""
    from headgate.plugin.completion import main as run  # noqa: PLC0415 - importing the package does not load the completion

    run()
