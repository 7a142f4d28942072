"""Options of the mesh as parameters of commands: `with_mesh_options` derives them from `MeshOptions`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_origin

import typer

from headgate import __version__
from headgate.cli.expanded_options import expand
from headgate.cli.output import usage_error
from headgate.option import DeclaredOption
from headgate.options import OPTIONS, GivenOptions, MeshOptions, check_image

IMAGE = f"ghcr.io/headgate/headgate:{__version__}"
Image = Annotated[str, typer.Option("--image", metavar="IMAGE", help="Image of the control plane and of the sidecars.")]


def with_mesh_options(*fields: str, **defaults: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator of a command: options of the mesh, by default all, replace its parameter `given`.

    The command gets their values as `GivenOptions`. `defaults` has other defaults than those of the fields. An invalid text
    ends the command with a usage error.
    """
    options = [OPTIONS[field] for field in fields or OPTIONS]

    def read(given: Mapping[str, Any]) -> GivenOptions:
        texts: dict[str, str] = {}
        for declared in options:
            text = given[declared.field]
            texts[declared.field] = text if declared.type is not bool else str(text or "")
        values = {declared.field: _value(declared, texts[declared.field]) for declared in options}
        texts |= {field: ",".join(value) for field, value in values.items() if isinstance(value, tuple)}
        return GivenOptions(texts, MeshOptions(**values))

    parameters = [_parameter(declared, defaults.get(declared.field)) for declared in options]
    return lambda command: expand(command, "given", parameters, read)


def _parameter(declared: DeclaredOption, default: str | None) -> inspect.Parameter:
    option = declared.option
    names = [declared.flag] if declared.type is not bool else [f"{declared.flag}/--no-{declared.flag[2:]}"]
    text: str | bool = declared.text if default is None else default
    text = text if declared.type is not bool else bool(text)
    # Choices and booleans are read by typer, other values by `_value`.
    form = declared.type if get_origin(declared.type) is Literal or declared.type is bool else str
    annotation: Any = Annotated[
        form,
        typer.Option(*names, help=option.help, metavar=option.metavar, show_default=bool(text)),
    ]
    return inspect.Parameter(declared.field, inspect.Parameter.KEYWORD_ONLY, default=text, annotation=annotation)


def _value(declared: DeclaredOption, text: str) -> Any:
    """Return the value of an option. Raises BadParameter."""
    if declared.type is bool:
        return bool(text)
    try:
        return declared.option.read(text)
    except ValueError as error:
        raise usage_error(str(error), option=declared.flag) from error


def checked_image(image: str) -> str:
    """Return the value of `--image`. Raises BadParameter."""
    try:
        return check_image(image)
    except ValueError as error:
        raise usage_error(str(error), option="--image") from error
