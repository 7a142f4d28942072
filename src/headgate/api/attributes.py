"""A request in the words of RBAC: what a SubjectAccessReview is about (R99, R100)."""

from collections.abc import Mapping

from headgate.resources.meta import Value


class Attributes(Value, frozen=True, kw_only=True):
    """The resource that a request is about; `subresource`, `namespace` and `name` are empty where it has none."""

    group: str
    version: str
    resource: str
    subresource: str = ""
    verb: str
    namespace: str = ""
    name: str = ""

    @property
    def full_resource(self) -> str:
        """The resource as Roles name it: `pods`, `pods/edges`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def written(self) -> Mapping[str, str]:
        """Return `resourceAttributes`, without what is empty."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name))}
