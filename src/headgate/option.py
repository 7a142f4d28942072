"""An option of the mesh, declared at its field: commands, arguments of pods and the Helm chart's values derive from it."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import structs

_PERCENTAGE = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,2}))?")
_LARGEST = 10_000
_TRUST_DOMAIN = re.compile(r"[a-z0-9._-]+")
# A name or an address. A URL is rejected: its scheme could mean TLS, which is not supported.
_HOST = re.compile(r"[0-9A-Za-z._-]+|[0-9A-Fa-f:.]+")
_LAST_PORT = 65535


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """What users see of a field that is an option of the mesh.

    `help` is a sentence. `read` returns the field's value for a text; it raises ValueError with what to write. `text` is the
    default as users write it, if it is not the field's default itself. `value` is the path of the Helm chart's value, by
    default the field's name in camelCase; an empty path means that the chart has another value for it. `schema` adds to
    the JSON schema of this value. Only an installation on a cluster has an option with `cluster`.
    """

    help: str
    read: Callable[[str], Any] = str
    text: str | None = None
    metavar: str | None = None
    cluster: bool = False
    value: str | None = None
    schema: Mapping[str, Any] = {}


class DeclaredOption(NamedTuple):
    """An option with its field: the name, the type and the default."""

    field: str
    type: Any
    default: Any
    option: Option

    @property
    def flag(self) -> str:
        """The option's name in commands."""
        return "--" + self.field.replace("_", "-")

    @property
    def text(self) -> str:
        """The default as users write it."""
        if self.option.text is not None:
            return self.option.text
        return str(self.default) if self.default else ""

    @property
    def value(self) -> str:
        """The path of the chart's value; empty if the chart has another one."""
        first, *more = self.field.split("_")
        return first + "".join(map(str.capitalize, more)) if self.option.value is None else self.option.value

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the chart's value."""
        if get_origin(self.type) is Literal:
            form: Mapping[str, Any] = {"type": "string", "enum": list(get_args(self.type)), "default": self.text}
        elif self.type is bool:
            form = {"type": "boolean", "default": self.default}
        elif get_origin(self.type) is tuple:
            form = {"type": "array", "uniqueItems": True, "default": list(self.default)}
        else:
            form = {"type": "string", "default": self.text}
        return {"description": self.option.help, **form, **self.option.schema}


def declared_options(struct: type[msgspec.Struct]) -> Mapping[str, DeclaredOption]:
    """Return the options among the fields of a struct, by the fields' names."""
    hints = get_type_hints(struct, include_extras=True)
    options: dict[str, DeclaredOption] = {}
    for field in structs.fields(struct):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            for metadata in hint.__metadata__:
                if isinstance(metadata, Option):
                    options[field.name] = DeclaredOption(field.name, hint.__origin__, field.default, metadata)
    return options


class HostPort(NamedTuple):
    """The host, a name or an address, and the port of a server."""

    host: str
    port: int


def parse_collector(text: str) -> HostPort | None:
    """Return the address of an OpenTelemetry collector, `HOST:PORT`; None if the text is empty. Raises ValueError."""
    address, _, port = text.rpartition(":")
    host = address.strip("[]")
    if text and not (_HOST.fullmatch(host) and port.isdecimal() and 0 < int(port) <= _LAST_PORT):
        raise ValueError(
            f"{text!r} is not the address of a collector; write HOST:PORT without http://, for example 127.0.0.1:4317"
        )
    return HostPort(host, int(port)) if text else None


def check_collector(text: str) -> str:
    """Return the text if it is empty or the address of a collector. Raises ValueError."""
    parse_collector(text)
    return text


def parse_sampling(text: str) -> int:
    """Return the percentage in `text` as ten-thousandths: `0.5` is 50. Raises ValueError with what to write."""
    match = _PERCENTAGE.fullmatch(text)
    share = int(match[1]) * 100 + int((match[2] or "").ljust(2, "0")) if match else _LARGEST + 1
    if share > _LARGEST:
        raise ValueError(
            f"must be a percentage from 0 to 100 with at most two decimals, such as 1 or 0.25, not {text!r}"
        )
    return share


def check_trust_domain(text: str) -> str:
    """Return a trust domain. Raises ValueError when no SPIFFE ID can have it."""
    if not _TRUST_DOMAIN.fullmatch(text):
        raise ValueError(f"{text!r} is not a trust domain; write it like a DNS name, in lowercase")
    return text
