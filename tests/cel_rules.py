"""Evaluates the rules of CustomResourceDefinitions, as API servers of Kubernetes 1.25 and newer do."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from cel_expr_python import cel

from headgate.resources.decode import without_nulls
from headgate.resources.kind import split_api_version
from headgate.resources.meta import Object
from headgate.resources.schema.builders import RULES, Schema
from headgate.resources.schema.catalog import schemas

_ENVIRONMENT = cel.NewEnv(variables={"self": cel.Type.DYN})


@functools.cache
def compiled(rule: str) -> Any:
    return _ENVIRONMENT.compile(rule)


def broken_rules(obj: Object) -> list[str]:
    """Return the message of each rule that is false for an object, or its error if it can't be evaluated.

    Nulls count as missing: API servers reject them before they evaluate rules.
    """
    group, version = split_api_version(obj["apiVersion"])
    return list(_broken(without_nulls(obj), schemas()[group, version, obj["kind"]]))


def _broken(value: Any, schema: Schema) -> Iterator[str]:
    for rule in schema.get(RULES, ()):
        result = compiled(rule["rule"]).eval(data={"self": value})
        if result.value() is not True:
            yield rule["message"] if result.value() is False else f"{rule['message']}: {result}"
    if isinstance(value, Mapping):
        for name, part in schema.get("properties", {}).items():
            if name in value:
                yield from _broken(value[name], part)
    elif isinstance(value, list):
        for item in value:
            yield from _broken(item, schema.get("items", {}))
