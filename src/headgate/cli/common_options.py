"""Options that `headgate` and `kubectl traffic` share.

A short option has one meaning in all commands, that of kubectl: -n is a namespace, -f manifests, -o an output format, -c a
container, -p the previous run, -l a label selector, -w a watch.
"""

from typing import Annotated, Any

import typer

from headgate import durations
from headgate.cli.output import Format, usage_error

Output = Annotated[Format, typer.Option("-o", "--output", help="Output format.")]


def namespace_option(text: str) -> Any:
    """Return the option `--namespace` of a command, with this text for its help."""
    return typer.Option("-n", "--namespace", metavar="NAME", help=text, show_default=False)


Namespace = Annotated[str, namespace_option("Namespace; by default the namespace of the kubeconfig's context.")]
AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="All namespaces.")]


def duration(text: str, option: str) -> float:
    """Return the seconds of an option's duration, in Go's form as in kubectl: `10s`, `1m30s`. Raises BadParameter."""
    try:
        return durations.seconds(text)
    except ValueError:
        raise usage_error(f"{text!r} is not a duration; write for example 10s, 1m30s or 2h", option=option) from None


def check_namespaces(namespace: str, *, all_namespaces: bool) -> None:
    """Raise BadParameter if both -n and -A are given."""
    if namespace and all_namespaces:
        raise usage_error("selects all namespaces; leave out -n", option="-A")
