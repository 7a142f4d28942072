"""Find the options of kubectl itself on the command line, to pass them to kubectl."""

from collections.abc import Sequence

from headgate.cli.output import WrongUsage
from headgate.cli.traffic.kubectl_proxy import Kubectl

_WITH_VALUE = frozenset(
    {
        "--as",
        "--as-group",
        "--as-uid",
        "--cache-dir",
        "--certificate-authority",
        "--client-certificate",
        "--client-key",
        "--cluster",
        "--context",
        "--kubeconfig",
        "--password",
        "--request-timeout",
        "--server",
        "--tls-server-name",
        "--token",
        "--user",
        "--username",
    }
)
_FLAGS = frozenset({"--disable-compression", "--insecure-skip-tls-verify"})
HELP = (
    "kubectl's options for the cluster and the user work here, too: --kubeconfig,\n"
    "--context, --as, --server and so on; `kubectl options` lists them."
)


def split_options(arguments: Sequence[str]) -> tuple[Kubectl, list[str]]:
    """Split a command line into kubectl's options and the other arguments. Raises WrongUsage for a missing value."""
    options, rest = [], []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, _ = argument.partition("=")
        if name in _WITH_VALUE and not equals:
            value = next(remaining, None)
            if value is None:
                raise WrongUsage(f"{name} needs a value")
            options.append(f"{name}={value}")
        elif name in _WITH_VALUE or name in _FLAGS:
            options.append(argument)
        else:
            rest.append(argument)
    return Kubectl(options=options), rest
