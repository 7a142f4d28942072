"""kubectl's own options, wherever they stand: they are kubectl's to understand, and go on to it as they are."""

from collections.abc import Sequence

from headgate.plugin.errors import WrongUsage
from headgate.plugin.kubectl_proxy import Kubectl

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
    "kubectl's options choose the cluster and the user: --kubeconfig, --context, --cluster, --user, --as, --server and the"
    " like; `kubectl options` lists them."
)


def split_options(arguments: Sequence[str]) -> tuple[Kubectl, list[str]]:
    """Divide a command line into kubectl's options and the rest. Raises WrongUsage."""
    given, rest = [], []
    waiting = iter(arguments)
    for argument in waiting:
        name, equals, _ = argument.partition("=")
        if name in _WITH_VALUE and not equals:
            value = next(waiting, None)
            if value is None:
                raise WrongUsage(f"{name} needs a value")
            given.append(f"{name}={value}")
        elif name in _WITH_VALUE or name in _FLAGS:
            given.append(argument)
        else:
            rest.append(argument)
    return Kubectl(options=given), rest
