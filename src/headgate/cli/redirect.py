"""`headgate redirect`: the rules that bring a pod's TCP connections to its sidecar; its init container runs `apply`."""

import sys
from typing import Annotated, Literal

import typer

from headgate.cli.output import stdout, usage_error
from headgate.errors import DecodeError
from headgate.redirection import exclusions, iptables
from headgate.redirection.rules import rules

Action = Literal["apply", "print", "clean"]


def redirect(
    action: Annotated[
        Action,
        typer.Argument(metavar="apply|print|clean", help="Put the rules in force, print them, or take them away."),
    ],
    excluded_inbound_ports: Annotated[
        str,
        typer.Option(
            metavar="PORTS",
            help="Ports of the pod that stay plain, 9090,9102; takes the annotation headgate.dev/excluded-inbound-ports.",
        ),
    ] = "",
    excluded_outbound_ports: Annotated[
        str, typer.Option(metavar="PORTS", help="Ports of others that the pod calls past its sidecar.")
    ] = "",
    excluded_addresses: Annotated[
        str, typer.Option(metavar="CIDRS", help="Addresses or networks that the pod calls past its sidecar.")
    ] = "",
    excluded_users: Annotated[
        str, typer.Option(metavar="UIDS", help="Users whose processes call past the sidecar.")
    ] = "",
) -> None:
    """Bring a pod's TCP connections to its sidecar, for the network namespace that this command runs in.

    All lists are separated by commas. `apply` may be repeated, with other options too: its rules replace the former ones
    at once. `clean` takes away exactly these. Both need the capability NET_ADMIN.
    """
    try:
        read = exclusions.parse_exclusions(
            inbound_ports=excluded_inbound_ports,
            outbound_ports=excluded_outbound_ports,
            addresses=excluded_addresses,
            users=excluded_users,
        )
    except DecodeError as error:
        about = ", ".join(dict.fromkeys(f"--{cause.field}" for cause in error.causes))
        raise usage_error("; ".join(cause.message for cause in error.causes), option=about) from None
    wanted = rules(read)
    if action == "print":
        text = f"# iptables-restore --noflush\n{wanted.ipv4}\n# ip6tables-restore --noflush\n{wanted.ipv6}"
        sys.stdout.write(text)
    else:
        _print_outcome(action, iptables.apply(wanted) if action == "apply" else iptables.clean())


def _print_outcome(action: Action, outcomes: tuple[iptables.Outcome, ...]) -> None:
    done = {
        ("apply", True): "redirected",
        ("apply", False): "redirected already, by the same rules",
        ("clean", True): "no longer redirected",
        ("clean", False): "not redirected",
    }
    for outcome in outcomes:
        stdout().print(f"{outcome.family}: {done[action, outcome.changed]} ({outcome.program})")
