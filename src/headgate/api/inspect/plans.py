"""The resource `plans`: what a change to objects would do. A client creates one, and gets it with its status."""

from msgspec import structs

from headgate.api.inspect.resource import InspectCall, InspectResource
from headgate.api.request_body import check_depth, decode_body, read_body
from headgate.plan.planning import Plan


async def _create(call: InspectCall) -> Plan:
    """Plan the change that a spec describes. Raises InvalidChange, InvalidCheck, NotFound."""
    question = decode_body(await read_body(call.request), Plan, "a Plan")
    check_depth(question.spec.objects)
    return structs.replace(question, status=await call.inspector.plan(question.spec))


PLANS = InspectResource("plans", "Plan", Plan, create=_create, namespaced=False)
