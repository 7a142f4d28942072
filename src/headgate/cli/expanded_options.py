"""Replace a parameter of a command by several options, whose values become one value."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def expand(
    command: Callable[..., None],
    name: str,
    parameters: Sequence[inspect.Parameter],
    read: Callable[[Mapping[str, Any]], object],
) -> Callable[..., None]:
    """Return a command with `parameters` in place of its parameter `name`, which gets what `read` makes of their values."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        values = {parameter.name: arguments.pop(parameter.name) for parameter in parameters}
        command(**arguments, **{name: read(values)})

    signature: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == name:
            signature += parameters
        else:
            signature.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in signature}
    return run
