"""`headgate explain`: the route, the backends and the authorization of a request; or why a pod has a sidecar or none."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs
from rich.table import Table

from headgate import formatting
from headgate.cli.arguments import PATHS, ApiOptions, with_api_options
from headgate.cli.common_options import Output, namespace_option
from headgate.cli.completion import callers, gateways, pod_names
from headgate.cli.explain_pod import explain_pod, parse_pod
from headgate.cli.inspect_client import InspectClient, answer_of
from headgate.cli.mesh_options import with_mesh_options
from headgate.cli.output import EXIT_FAILURE, Format, answer, make_table, note, print_table, stdout, usage_error
from headgate.cli.request_arguments import CONNECTION, FIXED, Headers, encoded_url, parse_headers, parse_method
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.model.evaluate import NOT_CONNECTED, PASSED_THROUGH
from headgate.model.routing import Protocol
from headgate.options import GivenOptions
from headgate.resources.explanations import (
    MUTUAL_TLS,
    PLAINTEXT,
    Arrival,
    AuthorizationServer,
    Copy,
    ExplainedBackend,
    ExplanationStatus,
    Sanitizing,
    Stickiness,
    Tried,
)
from headgate.resources.request_spec import CALLER_FORMS, BadRequest, RequestSpec, check

ERROR_STATUSES = 400
NOT_RECORDED = "pods, endpoints, Namespaces and Secrets are the current ones, because the history does not record them"
NO_SPANS = "proxies send no spans without --otlp-traces"
_RESULTS = {"Matched": "matched", "Failed": "failed", "NotTried": "not tried"}
OPTIONS = {"url": "URL", "server-name": "--server-name", "header": "-H", "from": "--from", "via": "--via"}

RequestArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[METHOD] URL | pod/NAME",
        help="A request, such as GET http://website:8080/path?query, or a pod.",
        show_default=False,
        autocompletion=pod_names,
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "-f",
        "--filename",
        metavar=PATHS,
        help="Directory or file of manifests; by default the objects of the running headgate.",
    ),
]
Via = Annotated[
    str,
    typer.Option(
        "--via",
        metavar="gateway/NAME",
        help="Send the request to this Gateway.",
        show_default=False,
        autocompletion=gateways,
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="KIND/NAME",
        help=f"The caller: {CALLER_FORMS}; by default the gateway, if there is one.",
        show_default=False,
        autocompletion=callers,
    ),
]
ServerName = Annotated[
    str,
    typer.Option(
        "--server-name",
        metavar="NAME",
        help="The server name (SNI) of a TLS connection; by default the URL's host.",
        show_default=False,
    ),
]
InNamespace = Annotated[
    str,
    namespace_option(
        "Namespace of the objects in --from and --via, and of short host names; by default the namespace of the kubeconfig's context, with -f default."
    ),
]

Method = Annotated[
    str,
    typer.Option("-X", "--request", metavar="METHOD", help="The method, as the argument METHOD.", show_default=False),
]
At = Annotated[
    int,
    typer.Option(
        "--at",
        metavar="REVISION",
        min=0,
        help="Explain with the objects of this revision and the current pods.",
        show_default=False,
    ),
]


@with_api_options
@with_mesh_options("mtls", "access")
def explain_(
    what: RequestArgument,
    *,
    method: Method = "",
    header: Headers = None,
    via: Via = "",
    from_: From = "",
    server_name: ServerName = "",
    namespace: InNamespace = "",
    filename: Files = None,
    at: At = 0,
    given: GivenOptions,
    output: Output = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Explain which route a request takes, its backends, and whether they allow it. No request is sent.

    Shares are exact fractions. With -f the manifests are compiled, and each workload counts as one pod with its name.
    A request fails if a proxy answers with an error, or every backend refuses it.

    `headgate explain pod/NAME` explains why a pod has a sidecar or none, and whether it has its configuration.
    """
    if pod := parse_pod(what, namespace):
        if method or header or via or from_ or server_name or filename or at:
            advice = "leave out -X, -H, --via, --from, --server-name, -f and --at"
            raise usage_error(f"a pod is explained by the running mesh; {advice}", option="pod/NAME")
        place, name = pod
        client = InspectClient.of(api)
        explain_pod(asyncio.run(client.pod_sidecar(place or client.client.namespace, name)), output)
        return
    sent = RequestSpec(url="", caller=from_, via=via, namespace=namespace or DEFAULT_NAMESPACE, server_name=server_name)
    request = _read_request(what, method, header or (), sent)
    if filename and at:
        raise usage_error("files have no revisions; leave out -f or --at", option="--at")
    if filename:
        from headgate.cli.explain_files import explain_files

        explanation = explain_files(filename, given.mesh.settings(), request)
    else:
        client = InspectClient.of(api)
        request = structs.replace(request, namespace=namespace or client.client.namespace)
        explanation = asyncio.run(client.explanation(request, at))
    if at:
        note(f"with the objects of revision {at}; {NOT_RECORDED}")
    status = answer_of(explanation)
    answer(explanation, output, lambda: show(explanation.spec.method, status))
    server = status.authorization_server
    failed = all(backend.status_code >= ERROR_STATUSES or backend.is_denied for backend in status.backends)
    if failed or (server and server.is_denied):
        raise typer.Exit(EXIT_FAILURE)


def _read_request(what: Sequence[str], method: str, headers: Sequence[str], sent: RequestSpec) -> RequestSpec:
    """Return a request with the URL, method and headers that the arguments describe. Raises BadParameter."""
    *before, url = what
    if before and method:
        raise usage_error(f"the method is {before[0]} already; write it once", option="-X")
    if len(before) > 1:
        raise usage_error(f"{' '.join(what)!r} is not a method and a URL; write GET http://website:8080/", option="URL")
    request = structs.replace(
        sent,
        url=encoded_url(url),
        method=parse_method(before[0] if before else method or "GET"),
        headers=parse_headers(headers, fixed=FIXED - {CONNECTION}),
    )
    try:
        check(request)
    except BadRequest as error:
        raise usage_error(str(error), option=OPTIONS[error.part]) from None
    return request


def show(method: str, explanation: ExplanationStatus) -> None:
    """Print an explanation as text; long lines are not truncated."""
    console = stdout()
    console.print(f"{method} {explanation.url}\n", style="bold", soft_wrap=True)
    for title, text in _facts(explanation):
        console.print(f"{title:<11}{text}", soft_wrap=True)
    console.print()
    print_table(backends_table(explanation.backends))
    for title, lines in _lists(explanation):
        console.print(f"\n{title}", style="bold")
        for line in lines:
            console.print(f"  {line}", soft_wrap=True)


def _facts(explanation: ExplanationStatus) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each line with a single value: caller, Service, protocol, route."""
    caller = explanation.caller
    if caller.is_named:
        yield "Caller", f"{caller}, {caller.identity or 'without an identity'}"
    if caller.message:
        yield "" if caller.is_named else "Caller", caller.message
    if explanation.revision or explanation.revision_message:
        yield "Rules", explanation.revision_message or f"of the revision {explanation.revision}"
    yield from _destination(explanation)
    if not explanation.port:
        return
    yield "Protocol", f"{explanation.protocol}, {explanation.protocol_message}"
    if explanation.client_certificate_message:
        yield "Client TLS", f"certificate {explanation.client_certificate_message}"
    yield (
        "Route",
        explanation.route.words if explanation.route else _without_route(explanation),
    )
    if explanation.location:
        yield "Location", explanation.location
    if explanation.stickiness:
        yield from _stickiness(explanation.stickiness)
    if trace := explanation.trace:
        decision = "sampled by the client" if trace.sampled else "not sampled by the client"
        yield "Trace", f"{trace.id}, {decision}" + ("" if trace.recorded else f"; {NO_SPANS}")


def _destination(explanation: ExplanationStatus) -> Iterator[tuple[str, str]]:
    """Yield the Gateway or Service that the request reaches, and why it has this port."""
    if explanation.gateway:
        yield (
            "Gateway",
            f"{explanation.gateway}, port {explanation.port}"
            + (f", host {explanation.host}" if explanation.host else ""),
        )
    elif explanation.service:
        yield "Service", f"{explanation.service}, port {explanation.port}"
    else:
        yield "Service", _unknown_service(explanation)
    if explanation.port_message:
        yield "Port", explanation.port_message


def _without_route(explanation: ExplanationStatus) -> str:
    if explanation.protocol == Protocol.TLS.value:
        return "no route has the server name: the connection is closed"
    return f"no route matches: the proxy answers {explanation.backends[0].status_code}"


def _stickiness(stickiness: Stickiness) -> Iterator[tuple[str, str]]:
    yield "Users", f"by {stickiness.words}: a user stays with one backend"
    if stickiness.service:
        yield "This user", f"{stickiness.service}:{stickiness.port}"
    elif stickiness.status_code:
        yield "This user", f"the proxy: {stickiness.status_code}"


def _unknown_service(explanation: ExplanationStatus) -> str:
    """Return why no Service port belongs to the URL: the Service lacks the port, or no Service has the host."""
    return (
        explanation.backends[0].message
        or "no Service has this host; write name.namespace:port, or only the name, and its namespace with -n"
    )


def _lists(explanation: ExplanationStatus) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the lines of each section: pods, filters, mirrors, routes, findings."""
    edits = [
        *explanation.filter_messages,
        *(f"{mirror.service}: {text}" for mirror in explanation.backends for text in mirror.filter_messages),
    ]
    mirrors = [
        f"{mirror.service}:{mirror.port} gets a copy of {formatting.share(mirror.share.fraction)} of the requests ({mirror.share})"
        for mirror in explanation.mirrors
    ]
    findings = [f"{mirror.reason} {mirror.object}: {mirror.field}: {mirror.message}" for mirror in explanation.remarks]
    sections = (
        ("Before routing", list(_sanitizing(explanation.sanitizing))),
        ("At the pods", list(_at_pods(explanation))),
        ("Filters", edits),
        ("Mirrors", mirrors),
        ("Without a backend", explanation.fallback_message.split("; ") if explanation.fallback_message else []),
        ("Not ready", list(explanation.unready_messages)),
        ("Routes, in order of precedence", [line for mirror in explanation.candidates for line in _candidate(mirror)]),
        ("Findings", findings),
    )
    yield from (section for section in sections if section[1])


def _sanitizing(sanitizing: Sanitizing | None) -> Iterator[str]:
    if sanitizing is None:
        return
    first, *rest = sanitizing.messages
    yield f"the proxy refuses the request with {sanitizing.status_code}: {first}" if sanitizing.status_code else first
    yield from rest


def _at_pods(explanation: ExplanationStatus) -> Iterator[str]:
    """Yield lines about how the request reaches the pods of each backend, and whether they allow it.

    A mirror and an authorization server are included only if one of their pods denies what proxies send to them.
    """
    for backend in explanation.backends:
        yield from _arrivals(backend, "")
    for copy in explanation.mirrors:
        if not all(arrival.allowed for arrival in copy.arrivals):
            yield from _arrivals(copy, "copies to ")
    server = explanation.authorization_server
    if server and not all(arrival.allowed for arrival in server.arrivals):
        yield from _arrivals(server, "calls of the authorization server ")
    if server and not server.ready_endpoints:
        yield f"{'denied':<10} by the proxy, because the authorization server {server.service}:{server.port} has no ready endpoint"


def _arrivals(at: ExplainedBackend | Copy | AuthorizationServer, what: str) -> Iterator[str]:
    """Yield lines about the pods of a Service port, as `_at_pods` does; pods with the same result share an entry.

    `what` is the text before the name of the Service or pod, such as `copies to `.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for arrival in at.arrivals:
        groups.setdefault(tuple(_arrival_lines(arrival)), []).append(arrival.workload or arrival.address)
    for (verdict, hop, *lines), pods in groups.items():
        where = f"pod {', '.join(pods)}" if len(groups) > 1 else f"{at.service}:{at.port}"
        yield f"{verdict:<10} {what}{where}, {hop}"
        yield from (f"{'':<10} {line}" for line in lines)


def _arrival_lines(arrival: Arrival) -> Iterator[str]:
    """Yield the result, the hop to the pod, and the lines that explain them."""
    yield "allowed" if arrival.allowed else "denied"
    if arrival.transport == PLAINTEXT:
        yield f"in plaintext: {arrival.transport_message}"
    else:
        yield "by mutual TLS" if arrival.transport == MUTUAL_TLS else f"by {arrival.transport_message}"
    yield f"{arrival.object}, rule {arrival.rule}" if arrival.object else arrival.message
    if arrival.remedy_message:
        yield f"to allow it: {arrival.remedy_message}"


def _candidate(candidate: Tried) -> Iterator[str]:
    yield f"{_RESULTS.get(candidate.result, candidate.result):<10} {candidate.route.words if candidate.route else f'host {candidate.host}'}"
    if candidate.message:
        yield f"{'':<10} {candidate.message}"


def backends_table(backends: Iterable[ExplainedBackend]) -> Table:
    """Return the table of backends with the share of each."""
    numbers = ("SHARE", "PERCENT", "READY ENDPOINTS")
    table = make_table(("BACKEND", *numbers), right=numbers)
    for backend in backends:
        style = "red" if backend.status_code >= ERROR_STATUSES else None
        endpoints = str(backend.ready_endpoints) if backend.service else ""
        table.add_row(
            _answers(backend), str(backend.share), formatting.share(backend.share.fraction), endpoints, style=style
        )
    return table


def _answers(backend: ExplainedBackend) -> str:
    if backend.reason == PASSED_THROUGH:
        return "the host itself"
    if not backend.status_code:
        return f"{backend.service}:{backend.port}"
    reason = f", {backend.message or backend.reason}" if backend.reason else ""
    if backend.reason == NOT_CONNECTED:
        return f"no connection{reason}"
    of = f" for {backend.service}" if backend.service else ""
    return f"the proxy: {backend.status_code}{of}{reason}"
