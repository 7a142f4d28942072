"""The resource and verb of a request, as a SubjectAccessReview describes them (R99, R100)."""

from collections.abc import Mapping

from headgate.resources.meta import Value

AUTHORIZE = "authorize"
"""The name in the state of a request under which a server keeps a function that authorizes the request again, for streams."""
USER = "user"
"""The name in the state of a request under which a server keeps the name of the user, if there are several."""


class ResourceAttributes(Value, frozen=True, kw_only=True):
    """The resource that a request accesses. `subresource`, `namespace` and `name` are empty when the path has none."""

    group: str
    version: str
    resource: str
    subresource: str = ""
    verb: str
    namespace: str = ""
    name: str = ""

    @property
    def full_resource(self) -> str:
        """The resource as RBAC Roles name it: `pods`, `pods/edges`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def to_object(self) -> Mapping[str, str]:
        """Return the `resourceAttributes` of a SubjectAccessReview, without empty fields."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name))}
