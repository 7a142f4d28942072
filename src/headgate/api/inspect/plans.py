"""The resource `plans` of the inspect API: answers what a change of objects would do."""

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.api.request_body import check_depth, decode_body
from headgate.api.status import ApiError
from headgate.errors import HeadgateError, NotFound
from headgate.plan.checks import InvalidCheck
from headgate.plan.planning import PlanQuery
from headgate.plane.inspector import Inspector
from headgate.plane.plans import InvalidChange
from headgate.resources.inspect import API_VERSION


async def answer(inspector: Inspector, body: bytes) -> Mapping[str, Any]:
    """Return the plan for a PlanQuery as JSON. Raises ApiError."""
    query = decode_body(body, PlanQuery, "a PlanQuery")
    check_depth(query.objects)
    try:
        found = await inspector.plan(query)
    except (InvalidChange, InvalidCheck) as error:
        raise ApiError(400, str(error)) from error
    except NotFound as error:
        raise ApiError(404, str(error)) from error
    except HeadgateError as error:
        raise ApiError(503, str(error)) from error
    return {"kind": "Plan", "apiVersion": API_VERSION, **msgspec.to_builtins(found)}
