"""`headgate explain pod/NAME`: why a pod has a sidecar or none, from the running mesh."""

from collections.abc import Iterator, Sequence

import typer

from headgate.cli.output import EXIT_FAILURE, Format, answer, stdout, usage_error
from headgate.kinds import names_of
from headgate.resources.inspect import AddedSidecar, PodSidecar

_WORDS = names_of("Pod").words


def parse_pod(what: Sequence[str], namespace: str) -> tuple[str, str] | None:
    """Return the namespace and name in `pod/NAME` or `pod/NAMESPACE/NAME`; None for other arguments."""
    match what[0].split("/") if len(what) == 1 else []:
        case [word, name] if word in _WORDS and name:
            return namespace, name
        case [word, own, name] if word in _WORDS and own and name:
            return own, name
        case [word, *_] if word in _WORDS and len(what[0].split("/")) > 1:
            raise usage_error(
                f"{what[0]!r} does not name a pod; write pod/NAME or pod/NAMESPACE/NAME", option="pod/NAME"
            )
        case _:
            return None


def explain_pod(found: PodSidecar, output: Format) -> None:
    """Print the answer, and exit with 1 if a sidecar is missing, or does not have its configuration."""
    answer(found, output, lambda: _show(found))
    works = found.proxy is not None and found.proxy.state == "InSync"
    if not works if found.sidecar else found.decision.injected:
        raise typer.Exit(EXIT_FAILURE)


def _show(found: PodSidecar) -> None:
    console = stdout()
    console.print(f"pod {found.metadata.namespace}/{found.metadata.name}\n", style="bold", soft_wrap=True)
    for title, text in _facts(found):
        console.print(f"{title:<11}{text}", soft_wrap=True)
    for title, lines in (("Notes", found.messages), ("What to do", found.advice_messages)):
        if lines:
            console.print(f"\n{title}", style="bold")
            for line in lines:
                console.print(f"  {line}", soft_wrap=True)


def _facts(found: PodSidecar) -> Iterator[tuple[str, str]]:
    yield "Sidecar", found.sidecar or "none"
    if found.decision.injected == bool(found.sidecar):
        yield "Reason", found.decision.message
    else:
        yield "New pods", f"get {'one' if found.decision.injected else 'none'}: {found.decision.message}"
    if found.proxy:
        yield "Proxy", f"{found.proxy.state}: {found.proxy.message or 'it has its configuration'}"
    for index, item in enumerate(found.sidecars):
        yield "" if index else "Sidecars", _sidecar(item)


def _sidecar(item: AddedSidecar) -> str:
    if item.generation == item.newest:
        state = f"generation {item.generation}"
    elif not item.newest:
        state = f"generation {item.generation}, which no longer exists or no longer selects the pod"
    elif not item.generation:
        state = f"missing, the newest is generation {item.newest}"
    else:
        state = f"generation {item.generation}, the newest is {item.newest}"
    return f"{item.name}: {state}" + (f"; not added: {', '.join(item.conflicts)}" if item.conflicts else "")
