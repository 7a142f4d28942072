"""`kubectl traffic tap`: show live requests, one in each line, until Ctrl-C (D29)."""

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
import typer

from headgate.cli.common_options import Namespace
from headgate.cli.output import WrongUsage, note
from headgate.cli.traffic.api import INSPECT, inspect_error
from headgate.cli.traffic.colors import Color, enabled, paint
from headgate.cli.traffic.kubectl_proxy import Kubectl, KubectlProxy
from headgate.errors import Unavailable
from headgate.formatting import printable
from headgate.kinds import TAPPABLE_KINDS

_BY_NAME = {word: names.plural for names in TAPPABLE_KINDS for word in names.words}
_FAILED = 500
_FROM_SERVER = "via_upstream"
"""Envoy's details of a response that another server sent, which may be the server's proxy."""
_NOT_AUTHORIZED, _UNDECIDED = "ext_authz_denied", "ext_authz_error"
"""Envoy's details of a request that an authorization server denied, and of one about which it made no decision."""
_ACCOUNT = "/sa/"

What = Annotated[
    str, typer.Argument(metavar="KIND/NAME", help="The resource: deployment/NAME, pod/NAME, trafficsplit/NAME, ...")
]
Values = Annotated[
    bool, typer.Option("--values", help="Show the values of headers and queries, which are redacted by default.")
]
Headers = Annotated[bool, typer.Option("--headers", help="Show the headers of each request below it.")]
Limit = Annotated[
    int,
    typer.Option("--max-rps", metavar="NUMBER", min=1, max=1000, help="Maximum number of requests per second to show."),
]
Output = Annotated[
    Literal["text", "json"],
    typer.Option("-o", "--output", help="text: a line for each request. json: a JSON object in each line."),
]


def tap(
    ctx: typer.Context,
    what: What,
    *,
    namespace: Namespace = "",
    headers: Headers = False,
    values: Values = False,
    max_rps: Limit = 100,
    output: Output = "text",
) -> None:
    """Show live requests of a resource, with the route and the access rule that applied to each.

    A request between two sidecars is shown twice: the client's proxy reports the route, the server's proxy the access
    rule.
    """
    kubectl: Kubectl = ctx.obj
    plural, name = _target(what)
    with kubectl.proxy() as proxy:
        namespace = "" if plural == "namespaces" else namespace or kubectl.namespace()
        for line in _events(proxy, _path(plural, name, namespace, values=values), max_rps):
            if output == "json":
                sys.stdout.write(line.decode())
            else:
                _show(msgspec.json.decode(line), namespace, headers=headers)
            sys.stdout.flush()


def _target(what: str) -> tuple[str, str]:
    kind, slash, name = what.partition("/")
    plural = _BY_NAME.get(kind.lower())
    if plural is None or not slash or not name or "/" in name:
        raise WrongUsage(
            f"{what!r} can't be tapped; write KIND/NAME with one of the kinds {', '.join(names.plural for names in TAPPABLE_KINDS)}"
        )
    return plural, name


def _path(plural: str, name: str, namespace: str, *, values: bool) -> str:
    prefix = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
    return f"/apis/{INSPECT}/{prefix}{plural}/{quote(name, safe='')}/{'tapvalues' if values else 'tap'}"


def _events(proxy: KubectlProxy, path: str, limit: int) -> Iterator[bytes]:
    """Yield the lines of the tap. Raises HeadgateError when the API refuses it, Unavailable when the stream ends."""
    with proxy.stream(f"{path}?limit={limit}") as (response, lines):
        if response.status != 200:
            *_, plural, _, sub = path.split("/")
            raise inspect_error(response, f"{plural}/{sub}", "get")
        note("Showing live HTTP requests, no TCP connections; press Ctrl-C to stop.")
        yield from (line for line in lines if line.strip())
    raise Unavailable("the API ended the stream")


def _show(event: Mapping[str, Any], namespace: str, *, headers: bool) -> None:
    if event.get("kind") == "TapNotice":
        note(f"{event['dropped']} requests are not shown: {event['message']}.")
        return
    line = printable(format_event(event, namespace))
    sys.stdout.write((paint(line, _color(event)) if enabled() else line) + "\n")
    for name, text in event["request"]["headers"].items() if headers else ():
        sys.stdout.write(printable(f"             {name}: {text}") + "\n")


def _color(event: Mapping[str, Any]) -> Color:
    access, status = event.get("access"), event["response"]["status"]
    if access and not access["allowed"]:
        return "denied"
    return "failing" if status >= _FAILED or not status else ""


def format_event(event: Mapping[str, Any], namespace: str = "") -> str:
    """Format an event in a line: time, caller and server, request, response, and the route or access rule."""
    request, response = event["request"], event["response"]
    peers = f"{_name(event['source'], namespace)} -> {_name(event['destination'], namespace)}"
    answered = " ".join(part for part in (str(response["status"] or "no response"), _flags(response)) if part)
    sent = f"{request['method']} {request['authority']}{request['path']}"
    line = f"{_clock(event['startTime'])} {event['side'].lower()} {peers}  {sent}  {answered} {_latency(event)}  {_decision(event)}"
    return f"{line}  trace: {trace}" if (trace := event.get("traceId")) else line  # absent in events of older headgates


def _clock(time: str) -> str:
    return time.partition("T")[2].removesuffix("Z")


def _name(peer: Mapping[str, Any], namespace: str) -> str:
    """Return the name of a peer: its ServiceAccount, pod, Service or address, the first that the event contains."""
    if peer["identity"]:
        account = peer["identity"].partition("/ns/")[2].replace(_ACCOUNT, "/")
        return f"serviceaccount/{_short(account, namespace)}"
    if peer["pod"]:
        return _short(peer["pod"], namespace)
    if peer["service"]:
        return f"service/{_short(peer['service'], namespace)}"
    return peer["address"] or "no endpoint"


def _short(name: str, namespace: str) -> str:
    return name.removeprefix(f"{namespace}/") if namespace else name


def _flags(response: Mapping[str, Any]) -> str:
    return f"({', '.join(response['flags'])})" if response["flags"] else ""


def _latency(event: Mapping[str, Any]) -> str:
    latency = event["latencyMicroseconds"]
    return "-" if latency is None else f"{latency / 1000:.1f}ms"


def _decision(event: Mapping[str, Any]) -> str:
    route, access = event["route"], event["access"]
    if event["side"] == "Client":
        chosen = _named(route) if route else "the Service itself (no route)"
        return f"route: {chosen}{_refusal(event)}"
    if not access["allowed"]:
        return f"denied: {access.get('message') or 'no access rule allows it'}"  # absent in events of older headgates
    if access.get("wouldDeny"):  # absent in events of older headgates, as `audited`
        return f"audit: would be denied: {access['message']}"
    allowed = "audit: would be allowed" if access.get("audited") else "allowed"
    return (
        f"{allowed}: {_named(access, 'rule')}"
        if access["object"]
        else "allowed: no TrafficTarget or XAuthorizationPolicy selects the workload"
    )


def _refusal(event: Mapping[str, Any]) -> str:
    """Return what refused a request of a client's proxy; for other failures, where to look."""
    access, details = event["access"], event["response"].get("details")
    server = "authorization server" if details == _NOT_AUTHORIZED else "server"
    if access:
        return f"; {_denial(access)} by the access rules of the {server}"
    if details == _NOT_AUTHORIZED:
        return f"; denied by the {server} (ExternalAuth)"
    if details == _UNDECIDED:
        return "; denied, as the authorization server (ExternalAuth) made no decision"
    return _where_to_look(event)


def _where_to_look(event: Mapping[str, Any]) -> str:
    """Return which tap has the flag of a failure that a server behind a proxy sent: the client's proxy does not get this flag."""
    response, pod = event["response"], event["destination"]["pod"]
    if response["status"] < _FAILED or response["details"] != _FROM_SERVER or not (event.get("secured") and pod):
        return ""
    namespace, _, name = pod.partition("/")
    return f"; sent by the server or its proxy: `kubectl traffic tap pod/{name} -n {namespace}` shows the flag"


def _denial(access: Mapping[str, Any]) -> str:
    return "audit: would be denied" if access.get("wouldDeny") else "denied"


def _named(object_named: Mapping[str, Any], key: str = "name") -> str:
    about = object_named["object"]
    name = f"{about['kind']} {about['namespace']}/{about['name']}"
    return f"{name}, {object_named[key]}" if object_named[key] else name
