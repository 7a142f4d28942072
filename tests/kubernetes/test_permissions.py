"""Missing permissions: the messages of an API server, and the sentences about them."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from headgate.errors import HeadgateError, Unavailable
from headgate.kubernetes import permissions
from headgate.kubernetes.client import AccessDenied
from headgate.kubernetes.install.roles import roles
from headgate.kubernetes.permissions import (
    DeniedRequests,
    MissingPermissions,
    Permission,
    Reviewer,
    denied_permission,
    describe,
    permissions_of,
)
from headgate.options import MeshOptions
from headgate.resources.meta import Object

ROLES = roles(MeshOptions())
USER = 'User "system:serviceaccount:headgate-system:headgate"'
LIST_PODS = f'pods is forbidden: {USER} cannot list resource "pods" in API group "" at the cluster scope'
UPDATE_STATUS = (
    f'trafficsplits "canary" is forbidden: {USER} cannot update resource "trafficsplits/status"'
    ' in API group "split.smi-spec.io" in the namespace "shop"'
)
QUOTA = "exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"
UNRESOLVED = 'RBAC: role.rbac.authorization.k8s.io "gone" not found'


def denied(message: str, **details: str) -> Permission | None:
    return denied_permission(message, details, "/api/v1/namespaces/shop/things/one?force=true")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (denied(LIST_PODS), Permission("list", "", "pods")),
        (
            denied(UPDATE_STATUS, name="canary"),
            Permission("update", "split.smi-spec.io", "trafficsplits/status", "shop", "canary"),
        ),
        (
            denied('configmaps "roots" is forbidden: ', name="roots", kind="configmaps"),
            Permission("create", "", "configmaps", "shop", "roots"),
        ),
        (
            denied(
                f'deployments.apps "edge" is forbidden: {UNRESOLVED}', name="edge", group="apps", kind="deployments"
            ),
            Permission("create", "apps", "deployments", "shop", "edge"),
        ),
        (denied(f'pods "web" is forbidden: {QUOTA}', name="web", kind="pods"), None),
    ],
)
def test_the_answer_to_a_denied_request_contains_the_permission(
    found: Permission | None, expected: Permission | None
) -> None:
    assert found == expected


def test_the_role_that_a_user_needs_is_named_with_its_rule() -> None:
    """Without a namespace in the message, only a ClusterRole gives the permission."""
    found = Permission("get", "inspect.headgate.dev", "pods/sidecar", "shop").grant
    assert found == (
        "a Role with this rule allows it: apiGroups: [inspect.headgate.dev], resources: [pods/sidecar], verbs: [get]"
    )
    assert Permission("list", "", "pods").grant.startswith('a ClusterRole with this rule allows it: apiGroups: [""]')


def test_a_sentence_names_the_verbs_the_resources_the_consequence_and_the_remedy() -> None:
    missing = MissingPermissions(ROLES)
    for verb, resource in (("list", "pods"), ("watch", "pods"), ("list", "secrets")):
        missing.add(Permission(verb, "", resource, "shop"))  # the ClusterRole includes the namespace
    missing.add(Permission("create", "coordination.k8s.io", "leases", "headgate-system"))
    pods, lease = describe(missing.current.get(), ROLES)
    assert pods.startswith("permission missing: list, watch pods; list secrets: changes have no effect, and a replica")
    assert pods.endswith(
        "; run `headgate install` again, or `helm upgrade`, or add the verb to the ClusterRole headgate"
    )
    assert "create leases.coordination.k8s.io in the namespace headgate-system: no replica becomes active" in lease
    assert lease.endswith(", or add the verb to the Role headgate in headgate-system")


def test_the_remedy_for_a_role_of_kubernetes_is_its_binding() -> None:
    missing = MissingPermissions(ROLES)
    missing.add(Permission("create", "authentication.k8s.io", "tokenreviews"))
    (text,) = describe(missing.current.get(), ROLES)
    assert text.endswith(
        ", or create the ClusterRoleBinding headgate-auth-delegator to the ClusterRole system:auth-delegator"
    )


def test_a_permission_that_no_role_has_is_named_too() -> None:
    missing = MissingPermissions(ROLES)
    missing.add(Permission("create", "authorization.k8s.io", "selfsubjectaccessreviews"))
    (text,) = describe(missing.current.get(), ROLES)
    assert text.startswith(
        "permission missing: create selfsubjectaccessreviews.authorization.k8s.io: a request was denied;"
    )


@pytest.mark.parametrize(
    ("option", "name"),
    [("custom_metrics", "v1beta2.custom.metrics.k8s.io"), ("external_metrics", "v1beta1.external.metrics.k8s.io")],
)
def test_a_requested_group_adds_permissions_for_one_object(option: str, name: str) -> None:
    more = set(permissions_of(roles(MeshOptions(**{option: True})))) - set(permissions_of(ROLES))
    assert {permission.name for permission in more} == {name}


def test_records_about_denied_requests_are_dropped_and_all_else_is_logged() -> None:
    """The store raises Unavailable from the client's error."""
    denied, quota, unreachable = Unavailable("1"), Unavailable("2"), Unavailable("3")
    denied.__cause__ = AccessDenied(403, "forbidden", Permission("list", "", "pods"))
    quota.__cause__ = AccessDenied(403, "exceeded quota")
    logged = [
        error
        for error in (denied, quota, unreachable)
        if DeniedRequests().filter(logging.LogRecord("a", logging.WARNING, "a.py", 1, "%s: %s", ("x", error), None))
    ]
    assert logged == [quota, unreachable]


class Authorizer:
    """An API server with the rules that its account has in each namespace; `*` has those for all namespaces.

    It allows what the rules and `unlisted` have. `reviews` has the kind of each request. Rules reviews fail if it is `restricted`.
    """

    def __init__(
        self,
        rules: Mapping[str, list[Object]],
        *,
        unlisted: frozenset[Permission] = frozenset(),
        incomplete: bool = False,
        restricted: bool = False,
    ) -> None:
        self.reviews: list[str] = []
        self._rules = rules
        self._unlisted = unlisted
        self._incomplete, self._restricted = incomplete, restricted

    async def post(self, _path: str, review: Object) -> Object:
        self.reviews.append(review["kind"])
        spec: dict[str, Any] = review["spec"]
        if review["kind"] == "SelfSubjectRulesReview":
            if self._restricted:
                raise AccessDenied(403, "forbidden")
            rules = self._rules.get(spec["namespace"], [])
            return {"status": {"incomplete": self._incomplete, "resourceRules": rules}}
        attributes = dict(spec["resourceAttributes"])
        subresource = attributes.pop("subresource")
        resource = "/".join(filter(None, (attributes.pop("resource"), subresource)))
        return {"status": {"allowed": Permission(resource=resource, **attributes) in self._unlisted}}


def access_rule(group: str, resource: str, *verbs: str, **more: list[str]) -> Object:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs), **more}


async def test_one_review_of_rules_shows_the_permissions_of_a_namespace_and_another_those_of_all() -> None:
    """A rule with names grants only these objects, and the rules of a namespace nothing in others."""
    everywhere = [
        access_rule("", "pods", "get", "list"),
        access_rule("apps", "*", "list"),
        access_rule("split.smi-spec.io", "*/status", "update"),
        access_rule("", "secrets", "get", resourceNames=["roots"]),
    ]
    server = Authorizer({"*": everywhere, "shop": [*everywhere, access_rule("*", "configmaps", "*")]})
    allowed = {
        Permission("list", "", "pods"),
        Permission("list", "apps", "deployments"),
        Permission("update", "split.smi-spec.io", "trafficsplits/status"),
        Permission("get", "", "secrets", name="roots"),
        Permission("get", "", "pods", "shop"),
        Permission("create", "", "configmaps", "shop"),
    }
    denied = {
        Permission("watch", "", "pods"),
        Permission("list", "batch", "jobs"),
        Permission("update", "split.smi-spec.io", "trafficsplits"),
        Permission("get", "", "secrets"),
        Permission("get", "", "secrets", name="keys"),
        Permission("create", "", "configmaps"),
    }
    assert await Reviewer(server.post).missing(allowed | denied) == denied
    assert sorted(server.reviews) == ["SelfSubjectAccessReview"] * len(denied) + ["SelfSubjectRulesReview"] * 2


@pytest.mark.parametrize("status", [{"incomplete": False, "resourceRules": None}, {"incomplete": False}])
async def test_an_account_without_rules_lacks_every_permission(status: Object) -> None:
    async def post(_path: str, review: Object) -> Object:
        return {"status": status if review["kind"] == "SelfSubjectRulesReview" else {"allowed": False}}

    pods = Permission("get", "", "pods")
    assert await Reviewer(post).missing({pods}) == {pods}


@pytest.mark.parametrize("limit", ["incomplete", "restricted"])
async def test_each_permission_is_reviewed_if_the_api_server_does_not_list_all_rules(limit: str) -> None:
    """The authorizer before the rules may deny what they allow."""
    allowed, denied = Permission("get", "", "pods"), Permission("list", "", "pods")
    rules = {"*": [access_rule("", "pods", "*")]}
    server = Authorizer(rules, unlisted=frozenset({allowed}), **{limit: True})
    assert await Reviewer(server.post).missing([allowed, denied]) == {denied}
    assert server.reviews.count("SelfSubjectAccessReview") == 2


async def test_later_reviews_ask_only_for_what_the_rules_do_not_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "REVIEW_PAUSE_S", 0)
    needed = frozenset(permissions_of(ROLES))
    server = Authorizer({"*": [access_rule("*", "*", "*")]})
    missing = await Reviewer(server.post).missing_in_turn(needed)
    assert {permission.namespace for permission in missing}
    assert missing == {permission for permission in needed if permission.namespace}


async def test_an_api_server_that_does_not_respond_leaves_the_permissions_unknown() -> None:
    async def fail(_path: str, _review: Object) -> Object:
        raise Unavailable("refused")

    with pytest.raises(HeadgateError):
        await Reviewer(fail).missing(permissions_of(ROLES))
