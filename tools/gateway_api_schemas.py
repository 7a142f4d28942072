"""Write the schemas of the Gateway API's kinds to resources/schema/gateway_api.json.

The tool reads an npm package that is generated from the Go types: its
validators have the types and limits. The descriptions are headgate's own, in gateway_api_texts.json.

    npm pack @kubernetes-models/gateway-api@2.0.0 && tar xzf kubernetes-models-gateway-api-2.0.0.tgz
    python tools/gateway_api_schemas.py package
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headgate.kinds import GATEWAY
from headgate.resources.registry import KINDS
from headgate.resources.schema.builders import REF, kind
from headgate.resources.schema.catalog import definition_name

TARGET = Path(__file__).parent.parent / "src/headgate/resources/schema/gateway_api.json"
VERSION = "v1.5"  # the package does not name its release; it is the last release without TCPRoute in v1
TYPE = "IoK8sSigsGatewayApiApis"
META = re.compile(r"IoK8sApimachineryPkgApisMetaV1(\w+)")
OWN = re.compile(TYPE + r"(V\d+(?:alpha\d+|beta\d+)?)(\w+)")
FUNCTION = re.compile(r"function (validate\d+)\(data,")
IMPORT = re.compile(r'import\{validate as (validate\d+)\}from"[^"]*?(\w+)(?:\.js)?"')
ENUM = re.compile(r"let (schema\d+_enum)=(\[[^\]]*\])")
LIMIT = re.compile(r'keyword:"((?:max|min)\w+)",params:\{[^}]*limit:([-\de]+)\}')
FACTS: tuple[tuple[re.Pattern[str], str, Callable[[str], Any]], ...] = (
    (re.compile(r'params:\{type:"(\w+)"\}'), "type", str),
    (re.compile(r'params:\{format:"(\w+)"\}'), "format", str),
    (re.compile(r'params:\{pattern:("(?:[^"\\]|\\.)*")\}'), "pattern", json.loads),
)

# The markers `listType` and `listMapKey` of the published Go types are not in the package. All other lists are atomic.
KEYED = {
    "GatewaySpec.listeners": "name",
    "GatewayStatus.listeners": "name",
    "GatewayClassStatus.supportedFeatures": "name",
    "GRPCRouteMatch.headers": "name",
    "HTTPHeaderFilter.add": "name",
    "HTTPHeaderFilter.set": "name",
    "HTTPRouteMatch.headers": "name",
    "HTTPRouteMatch.queryParams": "name",
    "FrontendTLSConfig.perPort": "port",
}
SETS = {
    "HTTPHeaderFilter.remove",
    *(f"HTTPCORSFilter.{field}" for field in ("allowHeaders", "allowMethods", "allowOrigins", "exposeHeaders")),
}

LOST = {"GatewayClassSpec": {"description": {"type": "string", "maxLength": 64}}}  # the package lacks these fields


COMMON: Mapping[str, Any] = {
    field: {key: value for key, value in schema.items() if key != "description"}
    for field, schema in kind("")["properties"].items()
}


class Package:
    """The type definitions of an unpacked npm package."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.definitions: dict[str, dict[str, Any]] = {}

    def define(self, type_name: str) -> dict[str, Any]:
        """Return the schema of a property: a reference if its type has fields, else the type's schema."""
        if found := META.fullmatch(type_name):
            return {"$ref": f"{REF}io.k8s.apimachinery.pkg.apis.meta.v1.{found[1]}"}
        version, name = OWN.fullmatch(type_name).groups()  # type: ignore[union-attr]  # no match is a bug
        full = definition_name(GATEWAY, version.lower(), name)
        if full not in self.definitions:
            self.definitions[full] = {}  # stops the recursion for a type that refers to itself
            self.definitions[full] = self._schema(type_name, name)
        schema = self.definitions[full]
        if "properties" in schema:
            return {"$ref": f"{REF}{full}"}
        return self.definitions.pop(full)

    def _schema(self, type_name: str, name: str) -> dict[str, Any]:
        code = (self._root / f"_schemas/{type_name}.js").read_text()
        schema = Validators(code, self).entry()
        if name in LOST:
            schema["properties"] |= LOST[name]
        for field, part in schema.get("properties", {}).items():
            mark_list(part, f"{name}.{field}", field)
        return schema


class Validators:
    """The generated code of a validator, in which each function validates one schema."""

    def __init__(self, code: str, package: Package) -> None:
        self._package = package
        self._imports = dict(IMPORT.findall(code))
        self._enums = {name: json.loads(values) for name, values in ENUM.findall(code)}
        self._entry = re.findall(r"export const validate=(\w+)", code)[0]
        starts = [*FUNCTION.finditer(code)]
        ends = [*(found.start() for found in starts[1:]), len(code)]
        self._bodies = {found[1]: code[found.end() : end] for found, end in zip(starts, ends, strict=True)}

    def entry(self) -> dict[str, Any]:
        """Return the schema of the entry function, with the fields of embedded types."""
        found = self.schema(self._entry)
        while "$ref" in found:
            embedded = self._package.definitions[found.pop("$ref").removeprefix(REF)]
            found = {**embedded, **found, "properties": embedded["properties"] | found.get("properties", {})}
        return found

    def schema(self, function: str) -> dict[str, Any]:
        """Return the schema that a function validates."""
        if function in self._imports:
            return self._package.define(self._imports[function])
        body = self._bodies[function]
        found: dict[str, Any] = {}
        for called in re.findall(r"(validate\d+)\(data,", body):
            found |= self.schema(called)
        for expression, key, read in FACTS:
            for value in expression.findall(body):
                found[key] = read(value)
        found |= {name: int(float(limit)) for name, limit in LIMIT.findall(body)}
        for name in re.findall(r"allowedValues:(\w+)", body):
            found["enum"] = self._enums[name]
        if required := re.findall(r'missingProperty:"(\w+)"', body):
            found["required"] = required
        if fields := re.findall(r"(validate\d+)\(data\.(\w+),", body):
            found["properties"] = {field: self.schema(name) for name, field in fields}
        for name, key in re.findall(r"(validate\d+)\(data\[(i0|key0)\],", body):
            found["items" if key == "i0" else "additionalProperties"] = self.schema(name)
        return found


def mark_list(part: dict[str, Any], path: str, field: str) -> None:
    """Add `x-kubernetes-list-type`, and the keys of a list of type map, to the schema of a list."""
    if part.get("type") != "array":
        return
    key = "type" if field == "conditions" else KEYED.get(path)
    part["x-kubernetes-list-type"] = "map" if key else "set" if path in SETS else "atomic"
    if key:
        part["x-kubernetes-list-map-keys"] = [key]


def roots() -> Iterator[tuple[str, str, str]]:
    """Yield version, name and type of each kind that headgate offers."""
    for known in KINDS:
        for version in known.versions if known.group == GATEWAY else ():
            yield version, known.kind, f"{TYPE}{version.capitalize()}{known.kind}"


def kind_schema(schema: Mapping[str, Any], version: str, name: str) -> dict[str, Any]:
    """Return the schema of a kind with the fields that all kinds have, and its group, version and kind."""
    properties = schema["properties"] | {field: COMMON[field] for field in ("apiVersion", "kind", "metadata")}
    gvk = {"group": GATEWAY, "version": version, "kind": name}
    required = {"required": ["spec"]} if "spec" in schema["required"] else {}
    rest = {name: part for name, part in schema.items() if name != "required"}
    return {**rest, **required, "properties": properties, "x-kubernetes-group-version-kind": [gvk]}


def main() -> int:
    """Read the package; write the schemas."""
    root = Path(sys.argv[1])
    origin = json.loads((root / "package.json").read_text())
    package = Package(root)
    for version, name, type_name in roots():
        package.define(type_name)
        full = definition_name(GATEWAY, version, name)
        package.definitions[full] = kind_schema(package.definitions[full], version, name)
    document = {
        "source": f"sigs.k8s.io/gateway-api, by npm {origin['name']} {origin['version']}",
        "version": VERSION,
        "license": "Apache-2.0",
        "definitions": package.definitions,
    }
    TARGET.write_text(json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n")
    print(f"{TARGET.name}: {len(package.definitions)} definitions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
