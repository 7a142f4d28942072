"""`headgate redirect`: rules that redirect a pod's TCP connections to its sidecar; an init container runs `apply`."""

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
        typer.Argument(
            metavar="apply|print|clean", help="apply: install the rules. print: print them. clean: remove them."
        ),
    ],
    excluded_inbound_ports: Annotated[
        str,
        typer.Option(
            metavar="PORTS",
            help="Ports of the pod that bypass the sidecar, as in the annotation headgate.dev/excluded-inbound-ports: 9090,9102.",
        ),
    ] = "",
    excluded_outbound_ports: Annotated[
        str, typer.Option(metavar="PORTS", help="Destination ports whose connections bypass the sidecar.")
    ] = "",
    excluded_addresses: Annotated[
        str,
        typer.Option(metavar="CIDRS", help="Destination addresses or networks whose connections bypass the sidecar."),
    ] = "",
    excluded_users: Annotated[
        str, typer.Option(metavar="UIDS", help="User IDs whose connections bypass the sidecar.")
    ] = "",
) -> None:
    """Redirect the TCP connections of a pod to its sidecar, in the network namespace of this command.

    Lists are separated by commas. `apply` replaces the rules of an earlier `apply` atomically. `clean` removes only
    these rules. Both need the capability NET_ADMIN.
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
    rule_set = rules(read)
    if action == "print":
        text = f"# iptables-restore --noflush\n{rule_set.ipv4}\n# ip6tables-restore --noflush\n{rule_set.ipv6}"
        sys.stdout.write(text)
    else:
        _print_outcome(action, iptables.apply(rule_set) if action == "apply" else iptables.clean())


def _print_outcome(action: Action, outcomes: tuple[iptables.FamilyOutcome, ...]) -> None:
    done = {
        ("apply", True): "redirected",
        ("apply", False): "already redirected by the same rules",
        ("clean", True): "no longer redirected",
        ("clean", False): "not redirected",
    }
    for outcome in outcomes:
        stdout().print(f"{outcome.family}: {done[action, outcome.changed]} ({outcome.program})")
