"""`headgate try`: send requests through the mesh, and compare their distribution with the weights."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import typer
from msgspec import structs
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from headgate.cli.arguments import ApiOptions, with_api_options
from headgate.cli.common_options import Output, duration, namespace_option
from headgate.cli.completion import callers
from headgate.cli.inspect_client import InspectClient
from headgate.cli.output import EXIT_FAILURE, Format, answer, make_table, note, print_table, stderr, stdout, usage_error
from headgate.cli.probe import Batch, FailureKey, ProbeRequest, Tally
from headgate.cli.request_arguments import HOST, Headers, parse_headers, parse_method
from headgate.cli.senders import Sender, any_sidecar, local_gateway, send, sidecar
from headgate.cli.shares import FAILED_SHARE, ExpectedShares, Fit, fits, of_request
from headgate.cli.try_target import (
    TriedUrl,
    TryPort,
    find_service,
    parse_url,
    port_of,
    with_host_header,
    without_localhost,
)
from headgate.kubernetes.client import path_of
from headgate.model.authorities import DEFAULT_PORT
from headgate.resources.explanations import ExplanationStatus
from headgate.resources.meta import Object
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.resources.request_spec import CALLER_FORMS, BadRequest, RequestSpec, read_client
from headgate.resources.request_spec import RequestOrigin as Caller

SHOWN_FAILURES = 10

Url = Annotated[str, typer.Argument(metavar="URL", help="URL with the name of a Service: http://website:8080/.")]
Number = Annotated[int, typer.Option("--number", metavar="NUMBER", min=1, help="Number of requests to send.")]
Concurrency = Annotated[
    int,
    typer.Option("--concurrency", metavar="NUMBER", min=1, max=1000, help="Number of concurrent requests."),
]
Method = Annotated[
    str,
    typer.Option(
        "-X", "--request", metavar="METHOD", help="The method; by default GET, or POST with -d.", show_default=False
    ),
]
Body = Annotated[str, typer.Option("-d", "--data", metavar="TEXT", help="A body to send.", show_default=False)]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="KIND/NAME",
        help=f"Send from a sidecar of {CALLER_FORMS}; by default from the gateway, or on a cluster from any sidecar.",
        show_default=False,
        autocompletion=callers,
    ),
]
InNamespace = Annotated[
    str,
    namespace_option(
        "Namespace of --from; on a cluster without --from, of a short Service name. By default that of the kubeconfig's context."
    ),
]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="Timeout of one request.")]


FIRST_CLIENT_ERROR = 400


class Here(NamedTuple):
    """The options that select the gateway of this machine, and the namespace of short Service names on a cluster."""

    state: Path | None
    namespace: str


class TryResult(NamedTuple):
    """The result after the last request. `unexpected_failures` are failures that no split is configured to cause (D9)."""

    want: ExpectedShares
    rows: Sequence[Fit]
    tally: Tally
    seconds: float
    unexpected_failures: Mapping[FailureKey, int]
    sender: Sender

    @property
    def fits(self) -> bool:
        """Return whether every backend got its share and no request failed."""
        return all(row.fits for row in self.rows) and not self.unexpected_failures


@with_api_options
def try_(
    url: Url,
    *,
    number: Number = 1000,
    concurrency: Concurrency = 1,
    header: Headers = None,
    request: Method = "",
    data: Body = "",
    timeout: Timeout = "10s",
    from_: From = "",
    namespace: InNamespace = "",
    output: Output = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Send requests through the mesh and compare their distribution with the weights.

    With --from, the sidecar of a workload sends them, with its identity, and short names are in its namespace.
    Otherwise the gateway sends them, and short names are in the namespace default. On a cluster, without --from, a
    sidecar in the Service's namespace sends them; this needs the permission to run programs in its pod (pods/exec).
    With the cookie or header of a user of a sticky split, all requests belong to one backend. The test fails if a share
    is outside its band of 3 sigma, if a backend with weight 0 gets a request, if one with a weight does not exist or
    can't be used, or if requests fail: no response, a 5xx, or a denial by a proxy.
    """
    target, seconds = parse_url(url), duration(timeout, "--timeout")
    if not seconds:
        raise usage_error("must be longer than 0s", option="--timeout")
    target, headers = with_host_header(target, parse_headers(header or ()))
    sent = ProbeRequest(
        method=parse_method(request or ("POST" if data else "GET")),
        url=target.sent,
        headers=((HOST, target.authority), *headers),
        body=data.encode(),
        timeout=seconds,
    )
    try:
        caller = read_client(from_, namespace)
    except BadRequest as error:
        raise usage_error(str(error), option="--from") from None
    batch = Batch(request=sent, number=number, concurrency=concurrency)
    inspect_client = InspectClient.of(api)
    here = Here(api.state, namespace or inspect_client.client.namespace)
    caller = caller and structs.replace(caller, namespace=here.namespace)
    result = asyncio.run(_run(inspect_client, target, batch, caller, here))
    answer(document(result), output, lambda: _print(result))
    if not result.fits:
        raise typer.Exit(EXIT_FAILURE)


async def _run(
    inspect_client: InspectClient, target: TriedUrl, batch: Batch, caller: Caller | None, here: Here
) -> TryResult:
    """Send requests from a caller's sidecar; without a caller from the gateway, or on a cluster from any sidecar."""
    client = inspect_client.client
    gateway = None if caller else await local_gateway(client, here.state)
    if gateway:
        target = await without_localhost(inspect_client, target)
        batch = _addressed(batch, target.sent)
    sender = gateway or (await sidecar(inspect_client, caller) if caller else None)
    service = await find_service(client, target, sender.namespace if sender else here.namespace)
    if sender is None:
        sender = await any_sidecar(inspect_client, service.namespace)
        note(f"{sender.name} sends the requests; name another client by --from, and its namespace by -n")
    where = port_of(service, target, by_address=sender.by_address)
    if sender.pod:
        caller = Caller(kind="Pod", namespace=sender.namespace, name=sender.pod)
    sent = batch.request
    hosts = [(HOST, target.host_header)] if target.host_header else []
    request = RequestSpec(
        url=sent.url,
        method=sent.method,
        headers=(*hosts, *sent.headers[1:]),
        caller=f"{caller.kind}/{caller.name}" if caller else "",
        namespace=sender.namespace,
    )
    if target.host_header:
        batch = _with_host(batch, target, sender)
    explanation = await inspect_client.explained(request)
    if target.port is None and where.port != DEFAULT_PORT:  # a client with a transparent sidecar can't use this URL
        note(explanation.port_message)
    want = await _expected(inspect_client, explanation, where)
    begun = time.monotonic()
    with _bar() as progress:
        task = progress.add_task("", total=batch.number)
        tally = await send(client, sender, batch, where, lambda done: progress.update(task, completed=done))
    return compare(want, tally, time.monotonic() - begun, sender)


def _addressed(batch: Batch, url: str) -> Batch:
    """Return a batch with another URL, whose host is the Host header, which is the first one."""
    headers = ((HOST, urlsplit(url).netloc), *batch.request.headers[1:])
    return structs.replace(batch, request=structs.replace(batch.request, url=url, headers=headers))


def _with_host(batch: Batch, target: TriedUrl, sender: Sender) -> Batch:
    """Return a batch with the Host header of a target. Raises BadParameter for a sender that finds the Service by the URL's host."""
    if sender.by_address:
        return _addressed(batch, urlsplit(target.sent)._replace(netloc=target.host_header).geturl())
    raise usage_error(
        f"{sender.name} is an HTTP proxy for its clients, which writes the URL's host into Host; write"
        f" {target.host_header!r} into the URL if it is the name of a Service, or send from a client with a transparent"
        " sidecar: --from on a cluster, or with `headgate up --network pod`",
        option="-H",
    )


async def _expected(inspect_client: InspectClient, explanation: ExplanationStatus, where: TryPort) -> ExpectedShares:
    """Return the shares that the objects set for a request; print a note if the deciding split is not active."""
    about, split = explanation.route.object if explanation.route else None, None
    if about and about.kind == TRAFFIC_SPLIT.kind:
        split = await inspect_client.client.get(path_of(TRAFFIC_SPLIT, about.namespace, about.name))
        _warn(split)
    return of_request(where.service, where.port, explanation, split)


def _bar() -> Progress:
    """Return a progress bar, which shows only on a terminal."""
    console = stderr()
    columns = (TextColumn("sending"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def compare(want: ExpectedShares, tally: Tally, seconds: float, sender: Sender) -> TryResult:
    """Compare the counts with the expected shares. 503 responses of the proxy belong to the failing share (D9)."""
    counts = Counter(tally.backends)
    unexpected_failures = Counter(tally.failures)
    if FAILED_SHARE in dict(want.shares):
        counts[FAILED_SHARE] = tally.proxy_answers[503]
        unexpected_failures = Counter(
            {
                failure: count
                for failure, count in unexpected_failures.items()
                if failure.status != 503 or failure.backend
            }
        )
    rows = [structs.replace(row, fits=row.fits and row.backend not in want.missing) for row in fits(want, counts)]
    return TryResult(want, rows, tally, seconds, unexpected_failures, sender)


def _warn(split: Object) -> None:
    """Print a note when a split is not active on all proxies."""
    for condition in (split.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Programmed" and condition["status"] != "True":
            note(f"TrafficSplit {split['metadata']['name']} is not active yet: {condition['message']}")


def _print(result: TryResult) -> None:
    console = stdout()
    if result.rows:  # empty when the proxy itself answers all requests, for example with a redirect
        print_table(table(result))
    failures = sorted(result.tally.failures.items(), key=lambda pair: -pair[1])
    for failure, count in failures[:SHOWN_FAILURES]:
        console.print(f"{count} x {_describe_failure(failure)}", soft_wrap=True)
    if len(failures) > SHOWN_FAILURES:
        console.print(f"and {len(failures) - SHOWN_FAILURES} more failures; -o json shows all")
    for backend in result.want.left_out:
        console.print(f"left out: {backend.service}: {backend.message}", soft_wrap=True)
    console.print(_summary(result), style="green" if result.fits else "bold red", soft_wrap=True)


def table(result: TryResult) -> Table:
    """Return the table of expected and observed shares. Observed shares are `-` when no backend responded."""
    numbers = ("WANTED", "OBSERVED", "REQUESTS", "BAND (3 SIGMA)")
    shares = make_table(("BACKEND", *numbers, "FITS"), right=numbers)
    is_observed = any(row.requests for row in result.rows)
    for row in result.rows:
        if not is_observed:
            shares.add_row(row.backend, f"{row.wanted:.2%}", "-", "0", "-", "-")
            continue
        band = f"{row.lowest:.2%} .. {row.highest:.2%}"
        cells = (row.backend, f"{row.wanted:.2%}", f"{row.observed:.2%}", str(row.requests), band)
        shares.add_row(*cells, "yes" if row.fits else "NO", style=None if row.fits else "red")
    return shares


def _describe_failure(failure: FailureKey) -> str:
    if not failure.status:
        return f"no response: {failure.message}"
    by = (f"the sidecar of {failure.backend}" if failure.denied else failure.backend) or "the proxy"
    return f"{failure.status} from {by}" + (f": {failure.message}" if failure.message else "")


def _summary(result: TryResult) -> str:
    tally = result.tally
    statuses = ", ".join(f"{count} x {status or 'no response'}" for status, count in sorted(tally.statuses.items()))
    want = result.want
    by = f"TrafficSplit {want.split}" if want.split else want.route or f"Service {want.service} (no split)"
    rate = tally.requests / result.seconds if result.seconds else 0.0
    failed = sum(result.unexpected_failures.values())
    by += f", sent from {result.sender.name}" if result.sender.identity else ""
    by += f", one user by {want.user.words}" if want.user else ""
    verdict = "fits" if result.fits else f"{failed} failed" if failed else "does not fit"
    if not failed and want.missing:
        verdict = f"does not fit the weights, because {' and '.join(want.missing)} can't be used"
    if result.fits and tally.statuses and min(tally.statuses) >= FIRST_CLIENT_ERROR:
        verdict = "the shares fit, but every response is an error"
    return f"{by}, port {want.port}: {verdict}; {statuses}; {result.seconds:.2f} s, {rate:.0f} requests/s"


def document(result: TryResult) -> dict[str, Any]:
    """Return the document for `-o json`; shares are from 0 to 1."""
    return {
        "caller": result.sender.name,
        "identity": result.sender.identity or None,
        "service": result.want.service,
        "port": result.want.port,
        "split": result.want.split or None,
        "route": result.want.route or None,
        "user": {"by": user.by.value, "name": user.name} if (user := result.want.user) else None,
        "requests": result.tally.requests,
        "seconds": round(result.seconds, 3),
        "fits": result.fits,
        "failed": sum(result.unexpected_failures.values()),
        "backends": list(result.rows),
        "leftOut": [
            {"backend": backend.service, "reason": backend.reason, "message": backend.message}
            for backend in result.want.left_out
        ],
        "pods": dict(sorted(result.tally.pods.items())),
        "statuses": {str(status): count for status, count in sorted(result.tally.statuses.items())},
        "failures": [
            {
                "status": failure.status or None,
                "backend": failure.backend or None,
                "refused": failure.denied,
                "message": failure.message,
                "requests": count,
            }
            for failure, count in sorted(result.tally.failures.items())
        ],
    }
