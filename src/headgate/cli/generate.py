"""`headgate generate`: write access rules that allow recorded traffic (docs/tasks/access-from-traffic.md)."""

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import typer

from headgate.cli.arguments import ApiOptions, with_api_options
from headgate.cli.common_options import AllNamespaces, check_namespaces, namespace_option
from headgate.cli.inspect_client import InspectClient
from headgate.cli.output import note, usage_error, yaml_text
from headgate.cli.traffic_policies import pod_labels, policies
from headgate.compiler.traffic_rules import GeneratedRule, Rules, derive, is_allowed
from headgate.durations import seconds
from headgate.errors import HeadgateError
from headgate.formatting import pluralize
from headgate.resources.call_records import CallRecord, CallRecordList
from headgate.resources.inspect import in_namespace
from headgate.resources.meta import Object, epoch_seconds
from headgate.resources.registry import AUTHORIZATION_POLICY, POD, TRAFFIC_TARGET

KEPT_H = 7 * 24
_HOUR_S = 3600.0
_NAMED = 5  # the largest number of callers in a message
_BY_ACCOUNT = "traffictargets, which select pods by their ServiceAccount"

_POLICIES = AUTHORIZATION_POLICY.plural
What = Annotated[
    Literal["traffictargets", "xauthorizationpolicies"],
    typer.Argument(metavar="traffictargets|xauthorizationpolicies", help="The kind to write."),
]
FromTraffic = Annotated[
    str,
    typer.Option(
        "--from-traffic",
        metavar="DURATION|FILE",
        help=f"Allow the calls of this time: 12h, {KEPT_H}h. Or a file with recorded calls, from `kubectl get --raw"
        " /apis/inspect.headgate.dev/v1beta1/callrecords`; - reads standard input.",
    ),
]
Namespace = Annotated[
    str,
    namespace_option("Namespace of the called pods; by default the namespace of the kubeconfig's context."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="NAMESPACE/ACCOUNT",
        help="Do not allow the calls of this caller: a ServiceAccount, or a pod or address without identity. Repeatable.",
    ),
]
Audit = Annotated[bool, typer.Option("--audit", help="Write objects in audit mode, which refuse nothing.")]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--output-dir",
        metavar="DIR",
        help="Write a file for each namespace to this directory.",
        show_default=False,
    ),
]


class Recording(NamedTuple):
    """Recorded calls to the pods of a namespace, which is empty for all namespaces, and what is missing in them."""

    calls: Sequence[CallRecord]
    namespace: str
    notes: Sequence[str]


@with_api_options
def generate(
    what: What,
    *,
    from_traffic: FromTraffic,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    exclude: Exclude = None,
    audit: Audit = False,
    output_dir: Directory = None,
    api: ApiOptions,
) -> None:
    """Write the smallest set of TrafficTargets, or of XAuthorizationPolicies, that allow the recorded traffic.

    headgate records the callers of each port for 7 days. The rules allow each of them to send any request to the port, because
    methods and paths are not recorded. A comment at each object says which recorded calls it would newly refuse. Policies select
    the running pods of the called ServiceAccounts by their labels.
    """
    check_namespaces(namespace, all_namespaces=all_namespaces)
    if output_dir and output_dir.exists() and not output_dir.is_dir():
        raise usage_error(f"{output_dir} is not a directory; leave the option out to print YAML", option="--output-dir")
    window = _window(from_traffic)
    if window is None:
        recording = _from_file(from_traffic, "" if all_namespaces else namespace)
    else:
        inspect_client = InspectClient.of(api)
        place = "" if all_namespaces else namespace or inspect_client.client.namespace
        recording = _recent(asyncio.run(inspect_client.calls(place)), place, window)
    if not recording.calls:
        where = f" in namespace {recording.namespace}" if recording.namespace else ""
        more = "; -A includes all namespaces" if recording.namespace else ""
        raise HeadgateError(
            f"no call to a pod with a sidecar{where} is recorded, so there are no {what} to write{more}"
        )
    excluded = _excluded(exclude or (), recording.calls)
    rules = derive(recording.calls, exclude=excluded, audit=audit)
    if what == _POLICIES:
        pods = asyncio.run(_pods(InspectClient.of(api), {target.destination.namespace for target in rules.targets}))
        rules = policies(rules, pod_labels(pods))
        _write(rules, output_dir, AUTHORIZATION_POLICY.kind, "XAuthorizationPolicies")
    else:
        _write(rules, output_dir, TRAFFIC_TARGET.kind)
    for text in (*recording.notes, *_left_out(rules), *_shared(rules)):
        note(text)


async def _pods(inspect_client: InspectClient, namespaces: Iterable[str]) -> Sequence[Object]:
    pods: list[Object] = []
    async with inspect_client.client as client:
        for namespace in sorted(namespaces):
            pods += (await client.items(POD, namespace))[0]
    return pods


def _window(text: str) -> float | None:
    """Parse the length of the window in seconds; None if the text names a file. Raises BadParameter if it is neither."""
    if text == "-" or Path(text).is_file():
        return None
    try:
        length = seconds(text)
    except ValueError:
        problem = f"{text!r} is neither a duration, such as 12h or {KEPT_H}h, nor a file"
        raise usage_error(problem, option="--from-traffic") from None
    if not 0 < length <= KEPT_H * _HOUR_S:
        problem = f"headgate records the calls of the last {KEPT_H} hours; write for example 12h or {KEPT_H}h"
        raise usage_error(problem, option="--from-traffic")
    return length


def _from_file(text: str, namespace: str) -> Recording:
    try:
        data = sys.stdin.buffer.read() if text == "-" else Path(text).read_bytes()
        recorded = msgspec.json.decode(data, type=CallRecordList)
    except (OSError, msgspec.MsgspecError) as error:
        raise HeadgateError(f"{text}: no list of recorded calls can be read: {error}") from error
    return Recording(in_namespace(recorded.items, namespace), namespace, tuple(_gaps(recorded, 0.0)))


def _recent(recorded: CallRecordList, namespace: str, window: float) -> Recording:
    start = time.time() - window
    kept = tuple(record for record in recorded.items if epoch_seconds(record.last_call_time or "") >= start)
    return Recording(kept, namespace, tuple(_gaps(recorded, start)))


def _gaps(recorded: CallRecordList, start: float) -> Iterator[str]:
    """Yield a warning for each reason why calls since `start` may be missing."""
    began, incomplete = recorded.recording_start_time, recorded.last_incomplete_time
    if start and began and epoch_seconds(began) > start:
        yield f"Warning: headgate records calls since {began}; earlier callers are not allowed"
    if incomplete and epoch_seconds(incomplete) >= start:
        yield f"Warning: until {incomplete} there were too many callers to record; some are not allowed"


def _excluded(exclude: Sequence[str], calls: Sequence[CallRecord]) -> Sequence[str]:
    callers = sorted({record.caller_name for record in calls})
    for name in exclude:
        if name not in callers:
            problem = f"{name!r} is not a recorded caller; the callers are: {', '.join(callers)}"
            raise usage_error(problem, option="--exclude")
    return exclude


def _left_out(rules: Rules) -> Iterator[str]:
    for account, calls in rules.left_out.items():
        reasons = "; ".join(
            f"{record.caller_name} sent {record.calls} to port {record.port or '(of no Service)'}"
            + ("" if record.caller else " without identity")
            for record in calls[:_NAMED]
        )
        more = f"; and {len(calls) - _NAMED} more" if len(calls) > _NAMED else ""
        yield (
            f"Warning: no rules for ServiceAccount {account}, because no rule can allow these calls: {reasons}{more}."
            " Give the callers a sidecar, and the port a Service; or refuse them with --exclude CALLER"
        )
    for account, reason in rules.unselected.items():
        yield (
            f"Warning: no policy for ServiceAccount {account}, because {reason}. Give its pods a label of their own, or write"
            f" {_BY_ACCOUNT}"
        )
    for account, labels in rules.of_version.items():
        yield (
            f"Warning: the policy for ServiceAccount {account} selects only pods of the current version, by {' and '.join(labels)}: after"
            f" the next one it selects none and no longer closes them. Give its pods a label of their own, or write {_BY_ACCOUNT}"
        )


def _shared(rules: Rules) -> Iterator[str]:
    """Yield a warning for each ServiceAccount that calls itself: a rule for it allows all its pods."""
    allowed = [record for target in rules.targets for record in target.allowed]
    for account in sorted(
        {record.caller for record in allowed if record.caller == f"{record.metadata.namespace}/{record.metadata.name}"}
    ):
        yield (
            f"Warning: ServiceAccount {account} calls itself, so its rule allows every pod of this account. If several workloads share it,"
            " give each its own serviceAccountName, and generate the rules from the calls after that"
        )


def _write(rules: Rules, directory: Path | None, kind: str, plural: str = "") -> None:
    texts = {namespace: "---\n".join(_documents(rules, namespace)) for namespace in rules.routes}
    total = sum(record.calls for target in rules.targets for record in target.allowed)
    verb = "allows" if len(rules.targets) == 1 else "allow"
    summary = (
        f"{pluralize(len(rules.targets), kind, plural)} {verb} {pluralize(total, 'recorded call')}, and any other request or"
        " connection of these callers to these ports"
    )
    if directory is None:
        sys.stdout.write("---\n".join(texts.values()))
        note(summary)
        return
    paths = {directory / f"{namespace}.yaml": text for namespace, text in texts.items()}
    if existing := [str(path) for path in paths if path.exists()]:
        raise HeadgateError(f"{', '.join(existing)} exists; remove it, or name another directory with --output-dir")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            path.write_text(text)
    except OSError as error:
        raise HeadgateError(f"{directory} can't be written: {error.strerror}") from error
    note(f"{summary}; written to {', '.join(map(str, paths))}")


def _documents(rules: Rules, namespace: str) -> Iterator[str]:
    yield from (yaml_text(route) for route in rules.routes[namespace])
    for target in rules.targets:
        if target.destination.namespace == namespace:
            yield _comment(target) + yaml_text(target.manifest)


def _comment(target: GeneratedRule) -> str:
    newly = [*target.refused, *(record for record in target.allowed if not is_allowed(record, [target.manifest]))]
    lines = [f"{target.destination}", f"allows {_callers(target.allowed)}"]
    refused = f"{_callers(newly)} (--exclude)" if newly else "none of the recorded calls"
    return "".join(f"# {line}\n" for line in (*lines, f"would newly refuse {refused}"))


def _callers(calls: Sequence[CallRecord]) -> str:
    shown = ", ".join(
        f"{record.caller_name} ({pluralize(record.calls, 'call')}, last {record.last_call_time})"
        for record in calls[:_NAMED]
    )
    more = f" and {len(calls) - _NAMED} more callers" if len(calls) > _NAMED else ""
    return f"{shown}{more}" or "no recorded caller"
