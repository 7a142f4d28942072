"""The resource `findings`: the mistakes in the stored objects, and notes about them."""

from msgspec import structs

from headgate.api.inspect.resource import InspectCall, InspectResource
from headgate.resources.inspect import FindingList, PublishedFinding, in_namespace


async def _list(call: InspectCall) -> FindingList:
    every = await call.inspector.findings()
    return structs.replace(every, items=in_namespace(every.items, call.path.namespace))


FINDINGS = InspectResource(
    "findings",
    "Finding",
    PublishedFinding,
    list=_list,
    columns=(
        ("Severity", "The severity: Error, Warning or Note.", lambda finding: finding.severity.value),
        ("Reason", "The reason, as in conditions and Events.", lambda finding: finding.reason),
        ("Object", "The object with the problem.", lambda finding: f"{finding.object.kind}/{finding.object.name}"),
        (
            "Message",
            "The field and the problem.",
            lambda finding: f"{finding.field}: {finding.message}" if finding.field else finding.message,
        ),
    ),
)
