"""Reports permissions that the control plane's ServiceAccount does not have: each once, with its consequence and remedy.

All permissions are checked at the start and every ALL_S seconds. A denied request adds its permission at once, and missing
permissions are checked again every MISSING_S seconds.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headgate.errors import HeadgateError
from headgate.latest import Latest
from headgate.resources.meta import Object

ALL_S, MISSING_S = 300.0, 10.0
MAX_CONCURRENT_REVIEWS = 8  # limits the load on the API server
REVIEW_PAUSE_S = 0.1  # between two reviews of a later check of all permissions
NO_NAMESPACE = "*"
"""A name that no namespace can have: a rules review of it returns the rules of ClusterRoleBindings only."""
REMEDY = "run `headgate install` again, or `helm upgrade`"
_REVIEWS = "/apis/authorization.k8s.io/v1"
_DENIED = re.compile(
    r'cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
_DENIED_CREATION = re.compile(r'" is forbidden: (?:RBAC: |$)')
_NAMESPACE = re.compile(r"/namespaces/([^/]+)/")

log = logging.getLogger(__name__)


class Permission(NamedTuple):
    """A verb on a resource, which may have a subresource (`gateways/status`). An empty namespace means all, an empty name any."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        place = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.target}{place}"

    @property
    def target(self) -> str:
        """The resource with its group and the name, as kubectl writes them: `gateways.gateway.networking.k8s.io/status`."""
        resource, _, subresource = self.resource.partition("/")
        parts = (f"/{part}" for part in (subresource, self.name) if part)
        return "".join((f"{resource}.{self.group}" if self.group else resource, *parts))

    @property
    def grant(self) -> str:
        """The role that gives the permission, in words."""
        kind, group = "Role" if self.namespace else "ClusterRole", self.group or '""'
        return f"a {kind} with this rule allows it: apiGroups: [{group}], resources: [{self.resource}], verbs: [{self.verb}]"


class RoleRule(NamedTuple):
    """A rule of a role: verbs on resources of one API group, if `names` is not empty on the objects with these names.

    `without` says what does not work without one of the verbs.
    """

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    without: str
    names: tuple[str, ...] = ()


class Role(NamedTuple):
    """A role of the control plane's ServiceAccount. `kind` is ClusterRole or Role; `namespace` is that of its binding.

    `binding` is empty for headgate's own roles, whose bindings have the same name. Kubernetes' own roles need only a binding.
    """

    kind: str
    name: str
    namespace: str
    rules: tuple[RoleRule, ...]
    binding: str = ""

    @property
    def remedy(self) -> str:
        """The object that gives the permissions, in words."""
        place = f" in {self.namespace}" if self.namespace else ""
        if not self.binding:
            return f"add the verb to the {self.kind} {self.name}{place}"
        kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        return f"create the {kind} {self.binding}{place} to the {self.kind} {self.name}"


def permissions_of(roles: Iterable[Role]) -> Iterator[Permission]:
    """Yield each permission of the roles."""
    for role in roles:
        for rule in role.rules:
            yield from _permissions(rule, role.namespace)


def _permissions(rule: RoleRule, namespace: str) -> Iterator[Permission]:
    for resource in rule.resources:
        for verb in rule.verbs:
            for name in rule.names or ("",):
                yield Permission(verb, rule.group, resource, namespace, name)


def denied_permission(message: str, details: Mapping[str, Any], path: str) -> Permission | None:
    """Return the permission that a 403 for the request at `path` is about; None if it is about none.

    `message` and `details` come from the Status. The API server also answers with 403 for other reasons, such as a
    ResourceQuota. Without the permission to create the object of an apply, its message is `KIND "NAME" is forbidden: `.
    """
    name = str(details.get("name", ""))
    if match := _DENIED.search(message):
        return Permission(**match.groupdict(default=""), name=name)
    if _DENIED_CREATION.search(message) and (resource := details.get("kind")):
        place = _NAMESPACE.search(path)
        return Permission("create", str(details.get("group", "")), str(resource), place[1] if place else "", name)
    return None


def describe(missing: Collection[Permission], roles: Iterable[Role]) -> tuple[str, ...]:
    """Return a sentence for the missing verbs of each rule, with the consequence and the remedy."""
    return tuple(f"permission missing: {text}: {end}" for text, end in _grouped(missing, roles))


def _grouped(permissions: Collection[Permission], roles: Iterable[Role]) -> Iterator[tuple[str, str]]:
    """Yield the permissions of each rule as text, with the consequence and the remedy if they are missing."""
    named: set[Permission] = set()
    for role in roles:
        for rule in role.rules:
            if missing := [
                permission for permission in _permissions(rule, role.namespace) if permission in permissions
            ]:
                named.update(missing)
                yield _list(missing), f"{rule.without}; {REMEDY}, or {role.remedy}"
    for permission in sorted(set(permissions) - named):
        yield str(permission), f"a request was denied; {REMEDY}"


def _list(permissions: Sequence[Permission]) -> str:
    """Return permissions of one rule as text; those with the same verbs are joined."""
    targets = dict.fromkeys(permission.target for permission in permissions)
    verbs = {
        target: ", ".join(permission.verb for permission in permissions if permission.target == target)
        for target in targets
    }
    texts = (
        f"{words} {', '.join(target for target in verbs if verbs[target] == words)}"
        for words in dict.fromkeys(verbs.values())
    )
    return "; ".join(texts) + (f" in the namespace {permissions[0].namespace}" if permissions[0].namespace else "")


class GrantedRule(NamedTuple):
    """A rule of an API server's response to a rules review. `*` stands for all names in a field; no `names` for all objects."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...]

    def grants(self, permission: Permission) -> bool:
        """Return whether the rule allows a permission, as RBAC decides it (`*/status` is that subresource of all resources)."""
        _, _, subresource = permission.resource.partition("/")
        resources = {permission.resource, *([f"*/{subresource}"] if subresource else [])}
        return (
            not {permission.verb, "*"}.isdisjoint(self.verbs)
            and not {permission.group, "*"}.isdisjoint(self.groups)
            and not {*resources, "*"}.isdisjoint(self.resources)
            and (not self.names or permission.name in self.names)
        )


class Reviewer(NamedTuple):
    """Queries the API server for permissions by `post`: those of its own user, or those of the user `name` in `groups`.

    One request returns the rules of its own user in a namespace. Only what these do not allow is reviewed one by one: the
    control plane has 190 permissions.
    """

    post: Callable[[str, Object], Awaitable[Object]]
    name: str = ""
    groups: tuple[str, ...] = ()

    async def missing(self, permissions: Iterable[Permission]) -> frozenset[Permission]:
        """Return the permissions that the user does not have. Raises HeadgateError."""
        turns = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)

        async def review(permission: Permission) -> bool:
            async with turns:
                return await self._is_allowed(permission)

        needed = await self._not_granted(permissions)
        allowed = await asyncio.gather(*map(review, needed))
        return frozenset(permission for permission, is_allowed in zip(needed, allowed, strict=True) if not is_allowed)

    async def missing_in_turn(self, permissions: Iterable[Permission]) -> frozenset[Permission]:
        """Return the same as `missing`, with one review every `REVIEW_PAUSE_S` seconds. Raises HeadgateError.

        All reviews at once delay the changes to routes by 50 ms.
        """
        missing = set()
        for permission in await self._not_granted(permissions):
            if not await self._is_allowed(permission):
                missing.add(permission)
            await asyncio.sleep(REVIEW_PAUSE_S)
        return frozenset(missing)

    async def _not_granted(self, permissions: Iterable[Permission]) -> Sequence[Permission]:
        """Return the permissions, sorted, without those that the rules of the API server allow."""
        needed = sorted(set(permissions))
        namespaces = dict.fromkeys(permission.namespace for permission in needed)
        if self.name or len(needed) <= len(namespaces):
            return needed
        rules = {namespace: await self._rules(namespace) for namespace in namespaces}
        return [
            permission
            for permission in needed
            if not any(rule.grants(permission) for rule in rules[permission.namespace])
        ]

    async def _rules(self, namespace: str) -> Sequence[GrantedRule]:
        """Return the rules in a namespace, or those for all namespaces; none if the API server does not know all of them.

        An authorizer that can't list its rules, such as a webhook, may deny what the rules of another one allow.
        """
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace or NO_NAMESPACE},
        }
        try:
            response = await self.post(f"{_REVIEWS}/selfsubjectrulesreviews", body)
        except HeadgateError:  # the reviews of single permissions report why
            return ()
        status = response.get("status") or {}
        if status.get("incomplete", True) or status.get("evaluationError"):
            return ()
        fields = ("verbs", "apiGroups", "resources", "resourceNames")
        # Go writes null for an empty list.
        rules = status.get("resourceRules") or ()
        return [GrantedRule(*(tuple(rule.get(field) or ()) for field in fields)) for rule in rules]

    async def _is_allowed(self, permission: Permission) -> bool:
        resource, _, subresource = permission.resource.partition("/")
        attributes = {**permission._asdict(), "resource": resource, "subresource": subresource}
        spec = {"resourceAttributes": attributes, **({"user": self.name, "groups": self.groups} if self.name else {})}
        kind = "SubjectAccessReview" if self.name else "SelfSubjectAccessReview"
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        answer = await self.post(f"{_REVIEWS}/{kind.lower()}s", body)
        return bool((answer.get("status") or {}).get("allowed"))


class MissingPermissions:
    """The permissions of `roles` that are missing, `current`. Clients add those of denied requests."""

    def __init__(self, roles: Sequence[Role]) -> None:
        self.current: Latest[frozenset[Permission]] = Latest(frozenset())
        self.needed = frozenset(permissions_of(roles))
        self.roles = roles

    def add(self, denied: Permission) -> None:
        """Add the permission of a denied request, or the permission of a role that includes it."""
        wider = (
            denied,
            denied._replace(name=""),
            denied._replace(namespace=""),
            denied._replace(namespace="", name=""),
        )
        recorded = next((permission for permission in wider if permission in self.needed), denied)
        self.current.set(self.current.get() | {recorded})


async def report_permissions(reviewer: Reviewer, missing: MissingPermissions) -> None:
    """Check the permissions from time to time, and log changes, until canceled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_check(reviewer, missing), name="permission checks")
        tasks.create_task(_log(missing), name="missing permissions")


async def _check(reviewer: Reviewer, missing: MissingPermissions) -> None:
    review, due, clock = reviewer.missing, 0.0, asyncio.get_running_loop().time
    while True:
        before, now = missing.current.get(), clock()
        try:
            denied = await review(before | missing.needed if now >= due else before)
            missing.current.set(denied | missing.current.get() - before)  # those of requests denied meanwhile
            due = now + ALL_S if now >= due else due
            review = reviewer.missing_in_turn
        except HeadgateError as error:
            log.debug("the permissions can't be checked: %s", error)
        await asyncio.sleep(MISSING_S)


async def _log(missing: MissingPermissions) -> None:
    before: frozenset[Permission] = frozenset()
    async for current in missing.current.changes():
        for text in describe(current - before, missing.roles):
            log.warning("%s", text)
        for text, _ in _grouped(before - current, missing.roles):
            log.warning("permission granted: %s", text)
        before = current


class DeniedRequests(logging.Filter):
    """Drops log records about requests that the API server denied: `report_permissions` logs a missing permission once."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        arguments = record.args if isinstance(record.args, tuple) else ()
        return not any(is_denied(argument) for argument in arguments if isinstance(argument, BaseException))


def is_denied(error: BaseException | None) -> bool:
    """Return whether an error was caused by a missing permission."""
    while error is not None:
        if getattr(error, "permission", None):
            return True
        error = error.__cause__
    return False
