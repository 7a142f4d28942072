"""The resource `explanations`: where a request goes, and why. A client creates one, and gets it with its status."""

from msgspec import structs

from headgate.api.inspect.resource import InspectCall, InspectResource
from headgate.api.request_body import decode_body, read_body
from headgate.resources.explanations import Explanation
from headgate.resources.inspect import ObjectName


async def _create(call: InspectCall) -> Explanation:
    """Explain the request of a spec. Raises BadRequest, NotFound."""
    question = decode_body(await read_body(call.request), Explanation, "an Explanation")
    request = question.spec.request(call.path.namespace)
    status = await call.inspector.explain(request, question.spec.revision)
    return structs.replace(question, metadata=ObjectName(namespace=call.path.namespace), status=status)


EXPLANATIONS = InspectResource("explanations", "Explanation", Explanation, create=_create)
