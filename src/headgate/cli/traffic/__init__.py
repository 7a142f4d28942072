"""`kubectl traffic`: tables and diagrams of traffic from the metrics API (SMI Traffic Metrics, 004; R103 to R107).

It uses only the API and the user's kubeconfig, so it works with every implementation of the metrics API.
"""


def main() -> None:
    """Run `kubectl traffic` and exit with the code of the command."""
    from headgate.cli.traffic.app import run

    run()


def complete() -> None:
    """Run `kubectl_complete-traffic`, which kubectl calls for shell completion."""
    from headgate.cli.traffic.completion import main as run

    run()
