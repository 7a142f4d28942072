"""`kubectl traffic audit`: the calls that TrafficTargets in audit mode would refuse, by port and caller."""

import sys
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import msgspec
import typer

from headgate.cli.common_options import AllNamespaces, Namespace, Output, check_namespaces
from headgate.cli.output import Format, answer, note
from headgate.cli.traffic import colors
from headgate.cli.traffic.api import INSPECT, inspect_error
from headgate.cli.traffic.kubectl_proxy import Kubectl, ProxiedResponse
from headgate.cli.traffic.table import Cell, format_table
from headgate.errors import HeadgateError

_RECORDS = "callrecords"
_TITLES = ("DESTINATION", "PORT", "PROTOCOL", "CALLER", "WOULD_REFUSE", "LAST")
_LEFT = 4


class AuditedCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A recorded call of the inspect API; `metadata` names the called ServiceAccount."""

    metadata: dict[str, str]
    port: int
    protocol: str
    caller: str = ""
    plaintext_caller: str = ""
    last_call_time: str | None = None
    would_refuse: int = 0


class _Records(msgspec.Struct, frozen=True):
    items: tuple[AuditedCall, ...] = ()


def audit(
    ctx: typer.Context,
    *,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the calls that TrafficTargets in audit mode would refuse, by destination, port and caller."""
    kubectl: Kubectl = ctx.obj
    check_namespaces(namespace, all_namespaces=all_namespaces)
    with kubectl.proxy() as proxy:
        namespace = "" if all_namespaces else namespace or kubectl.namespace()
        response = proxy.get(_path(namespace))
    if response.status != 200:
        raise inspect_error(response, _RECORDS, "list")
    calls = _audited(response)
    answer(calls, output, lambda: _show(calls, namespace))


def _show(calls: Sequence[AuditedCall], namespace: str) -> None:
    if calls:
        sys.stdout.write(_table(calls, everywhere=not namespace))
    else:
        where = f" in {namespace} namespace" if namespace else ""
        note(f"No TrafficTarget in audit mode{where} would have refused a call.")


def _path(namespace: str) -> str:
    prefix = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
    return f"/apis/{INSPECT}/{prefix}{_RECORDS}"


def _audited(response: ProxiedResponse) -> Sequence[AuditedCall]:
    try:
        every = msgspec.json.decode(response.body, type=_Records).items
    except msgspec.MsgspecError as error:
        raise HeadgateError(f"the response of the API is not a list of recorded calls: {error}") from error
    return sorted((call for call in every if call.would_refuse), key=lambda call: -call.would_refuse)


def _table(calls: Sequence[AuditedCall], *, everywhere: bool) -> str:
    rows = [[Cell(text) for text in _cells(call, everywhere=everywhere)] for call in calls]
    return format_table(_TITLES, rows, left=_LEFT, colors=colors.enabled())


def _cells(call: AuditedCall, *, everywhere: bool) -> Iterator[str]:
    name = call.metadata.get("name", "")
    yield f"{call.metadata.get('namespace', '')}/{name}" if everywhere else name
    yield str(call.port or "-")
    yield call.protocol
    yield call.caller or f"{call.plaintext_caller} (no identity)"
    yield str(call.would_refuse)
    yield call.last_call_time or "-"
