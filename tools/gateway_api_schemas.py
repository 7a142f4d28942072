"""Write the schemas of the Gateway API's kinds to resources/schema/gateway_api.json.

The tool reads the CustomResourceDefinitions of a release: types and limits. The descriptions are headgate's own, in
gateway_api_texts.json; the rooms of the kinds have the defaults and the rules between fields.

    python tools/gateway_api_schemas.py experimental-install.yaml
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from headgate.kinds import GATEWAY
from headgate.resources.registry import KINDS
from headgate.resources.schema.builders import META, REF, kind
from headgate.resources.schema.catalog import definition_name

TARGET = Path(__file__).parent.parent / "src/headgate/resources/schema/gateway_api.json"
VERSION = "v1.6.1"
TYPES_VERSION = "v1"
"""The version in the names of types."""

# The definitions contain no names of types, which headgate has as in the published Go package. Here is the type of each field
# with an object or a list of objects: by its type and name if types differ, else by its name.
TYPES = {
    "add": "HTTPHeader",
    "allowedListeners": "AllowedListeners",
    "allowedRoutes": "AllowedRoutes",
    "ancestorRef": "ParentReference",
    "ancestors": "PolicyAncestorStatus",
    "backendRef": "BackendObjectReference",
    "caCertificateRefs": "ObjectReference",
    "certificateRefs": "SecretObjectReference",
    "clientCertificateRef": "SecretObjectReference",
    "conditions": META + "Condition",
    "budget": "BudgetDetails",
    "cookieConfig": "CookieConfig",
    "cors": "HTTPCORSFilter",
    "default": "TLSConfig",
    "extensionRef": "LocalObjectReference",
    "externalAuth": "HTTPExternalAuthFilter",
    "forwardBody": "ForwardBodyConfig",
    "fraction": "Fraction",
    "from": "ReferenceGrantFrom",
    "frontend": "FrontendTLSConfig",
    "grpc": "GRPCAuthConfig",
    "http": "HTTPAuthConfig",
    "infrastructure": "GatewayInfrastructure",
    "kinds": "RouteGroupKind",
    "metadata": META + "ObjectMeta",
    "minRetryRate": "RequestRate",
    "method": "GRPCMethodMatch",
    "parametersRef": "LocalParametersReference",
    "parentRef": "ParentReference",
    "parentRefs": "ParentReference",
    "parents": "RouteParentStatus",
    "path": "HTTPPathModifier",
    "perPort": "TLSPortConfig",
    "queryParams": "HTTPQueryParamMatch",
    "requestHeaderModifier": "HTTPHeaderFilter",
    "requestMirror": "HTTPRequestMirrorFilter",
    "requestRedirect": "HTTPRequestRedirectFilter",
    "responseHeaderModifier": "HTTPHeaderFilter",
    "retry": "HTTPRouteRetry",
    "selector": META + "LabelSelector",
    "sessionPersistence": "SessionPersistence",
    "set": "HTTPHeader",
    "subjectAltNames": "SubjectAltName",
    "supportedFeatures": "SupportedFeature",
    "supportedKinds": "RouteGroupKind",
    "timeouts": "HTTPRouteTimeouts",
    "to": "ReferenceGrantTo",
    "urlRewrite": "HTTPURLRewriteFilter",
    "AllowedListeners.namespaces": "ListenerNamespaces",
    "AllowedRoutes.namespaces": "RouteNamespaces",
    "BackendTLS.validation": "BackendTLSPolicyValidation",
    "BackendTLSPolicySpec.targetRefs": "LocalPolicyTargetReferenceWithSectionName",
    "BackendTLSPolicySpec.validation": "BackendTLSPolicyValidation",
    "BackendTLSPolicyValidation.caCertificateRefs": "LocalObjectReference",
    "GRPCBackendRef.filters": "GRPCRouteFilter",
    "GRPCRouteMatch.headers": "GRPCHeaderMatch",
    "GRPCRouteRule.backendRefs": "GRPCBackendRef",
    "GRPCRouteRule.filters": "GRPCRouteFilter",
    "GRPCRouteRule.matches": "GRPCRouteMatch",
    "GRPCRouteSpec.rules": "GRPCRouteRule",
    "GatewayClassSpec.parametersRef": "ParametersReference",
    "GatewaySpec.addresses": "GatewaySpecAddress",
    "GatewaySpec.listeners": "Listener",
    "GatewaySpec.tls": "GatewayTLSConfig",
    "GatewayStatus.addresses": "GatewayStatusAddress",
    "GatewayStatus.listeners": "ListenerStatus",
    "GatewayTLSConfig.backend": "GatewayBackendTLS",
    "HTTPBackendRef.filters": "HTTPRouteFilter",
    "HTTPRouteMatch.headers": "HTTPHeaderMatch",
    "HTTPRouteMatch.path": "HTTPPathMatch",
    "HTTPRouteRule.backendRefs": "HTTPBackendRef",
    "HTTPRouteRule.filters": "HTTPRouteFilter",
    "HTTPRouteRule.matches": "HTTPRouteMatch",
    "HTTPRouteSpec.rules": "HTTPRouteRule",
    "Listener.tls": "ListenerTLSConfig",
    "ListenerEntry.tls": "ListenerTLSConfig",
    "ListenerSetSpec.listeners": "ListenerEntry",
    "ListenerSetSpec.parentRef": "ParentGatewayReference",
    "ListenerSetStatus.listeners": "ListenerEntryStatus",
    "TCPRouteRule.backendRefs": "BackendRef",
    "TCPRouteSpec.rules": "TCPRouteRule",
    "TLSConfig.validation": "FrontendTLSValidation",
    "TLSPortConfig.tls": "TLSConfig",
    "TLSRouteRule.backendRefs": "BackendRef",
    "TLSRouteSpec.rules": "TLSRouteRule",
    "UDPRouteRule.backendRefs": "BackendRef",
    "UDPRouteSpec.rules": "UDPRouteRule",
    "XBackendSpec.externalHostname": "BackendExternalHostname",
    "XBackendSpec.port": "BackendPort",
    "XBackendSpec.tls": "BackendTLS",
    "XBackendStatus.parents": "BackendParentStatus",
    "XBackendTrafficPolicySpec.retryConstraint": "RetryConstraint",
    "XBackendTrafficPolicySpec.targetRefs": "LocalPolicyTargetReference",
    "XMeshSpec.parametersRef": "ParametersReference",
}
LEFT_OUT = ("default", "description", "oneOf", "x-kubernetes-map-type", "x-kubernetes-validations")
"""Keys of schemas that don't come from the release, or have no effect."""
COMMON: Mapping[str, Any] = {
    field: {key: value for key, value in schema.items() if key != "description"}
    for field, schema in kind("")["properties"].items()
}


class Definitions:
    """The definitions of types, by their names."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, Any]] = {}

    def define(self, name: str, schema: Mapping[str, Any]) -> None:
        """Define a type of the Gateway API. Raises ValueError if it is defined differently."""
        full = definition_name(GATEWAY, TYPES_VERSION, name)
        converted = {key: value for key, value in schema.items() if key not in {*LEFT_OUT, "properties"}}
        fields = schema["properties"].items()
        converted["properties"] = {field: self._field(name, field, part) for field, part in fields}
        if self.by_name.setdefault(full, converted) != converted:
            raise ValueError(f"{name} has several definitions: give its fields types of their own in TYPES")

    def _field(self, owner: str, field: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema of a field of a type; objects become references."""
        converted = {key: value for key, value in schema.items() if key not in {*LEFT_OUT, "items", "properties"}}
        if "properties" in schema:
            return {"$ref": self._reference(owner, field, schema)}
        if "items" in schema:
            converted["items"] = self._field(owner, field, schema["items"])
            converted.setdefault("x-kubernetes-list-type", "atomic")
        if "additionalProperties" in schema:
            converted["additionalProperties"] = self._field(owner, field, schema["additionalProperties"])
        return converted

    def _reference(self, owner: str, field: str, schema: Mapping[str, Any]) -> str:
        name = TYPES.get(f"{owner}.{field}") or TYPES.get(field)
        if name is None:
            raise ValueError(f"name the type of {owner}.{field} in TYPES")
        if name.startswith(META):
            return f"{REF}{name}"
        self.define(name, schema)
        return f"{REF}{definition_name(GATEWAY, TYPES_VERSION, name)}"


def schemas(release: Path) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Yield group, version, kind and schema of each version of headgate's kinds in a release: the schema of the newest version."""
    offered = {(kind.group, kind.kind, version) for kind in KINDS for version in kind.versions}
    for document in yaml.safe_load_all(release.read_text()):
        if document:
            group, name = document["spec"]["group"], document["spec"]["names"]["kind"]
            versions = document["spec"]["versions"]
            for version in versions:
                if (group, name, version["name"]) in offered:
                    yield group, version["name"], name, versions[0]["schema"]["openAPIV3Schema"]


def kind_schema(
    definitions: Definitions, gvk: Mapping[str, str], name: str, schema: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the schema of a kind: its spec and status, the fields that all kinds have, and its group, version and kind."""
    parts = {field: f"{name}{field.capitalize()}" for field in ("spec", "status") if field in schema["properties"]}
    for field, part in parts.items():
        definitions.define(part, schema["properties"][field])
    references = {
        field: {"$ref": f"{REF}{definition_name(GATEWAY, TYPES_VERSION, part)}"} for field, part in parts.items()
    }
    required = {"required": ["spec"]} if "spec" in schema.get("required", ()) else {}
    own = {field: COMMON[field] for field in ("apiVersion", "kind", "metadata")}
    return {"type": "object", **required, "properties": own | references, "x-kubernetes-group-version-kind": [gvk]}


def main() -> int:
    """Read the definitions of a release; write the schemas."""
    definitions = Definitions()
    for group, version, name, schema in schemas(Path(sys.argv[1])):
        gvk = {"group": group, "version": version, "kind": name}
        definitions.by_name[definition_name(group, version, name)] = kind_schema(definitions, gvk, name, schema)
    document = {
        "source": "sigs.k8s.io/gateway-api, the CustomResourceDefinitions of its experimental channel",
        "version": VERSION,
        "license": "Apache-2.0",
        "definitions": definitions.by_name,
    }
    TARGET.write_text(json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n")
    print(f"{TARGET.name}: {len(definitions.by_name)} definitions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
