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


def explain_pod(pod: PodSidecar, output: Format) -> None:
    """Print the answer, and exit with 1 if a sidecar is missing, or does not have its configuration."""
    answer(pod, output, lambda: _show(pod))
    works = pod.proxy is not None and pod.proxy.state == "InSync"
    if not works if pod.sidecar else pod.decision.injected:
        raise typer.Exit(EXIT_FAILURE)


def _show(pod: PodSidecar) -> None:
    console = stdout()
    console.print(f"pod {pod.metadata.namespace}/{pod.metadata.name}\n", style="bold", soft_wrap=True)
    for title, text in _facts(pod):
        console.print(f"{title:<11}{text}", soft_wrap=True)
    for title, lines in (("Notes", pod.messages), ("What to do", pod.advice_messages)):
        if lines:
            console.print(f"\n{title}", style="bold")
            for line in lines:
                console.print(f"  {line}", soft_wrap=True)


def _facts(pod: PodSidecar) -> Iterator[tuple[str, str]]:
    yield "Sidecar", pod.sidecar or "none"
    if pod.decision.injected == bool(pod.sidecar):
        yield "Reason", pod.decision.message
    else:
        yield "New pods", f"get {'one' if pod.decision.injected else 'none'}: {pod.decision.message}"
    if pod.proxy:
        yield "Proxy", f"{pod.proxy.state}: {pod.proxy.message or 'it has its configuration'}"
    for index, added in enumerate(pod.sidecars):
        yield "" if index else "Sidecars", _sidecar(added)


def _sidecar(added: AddedSidecar) -> str:
    if added.generation == added.newest:
        state = f"generation {added.generation}"
    elif not added.newest:
        state = f"generation {added.generation}, which no longer exists or no longer selects the pod"
    elif not added.generation:
        state = f"missing, the newest is generation {added.newest}"
    else:
        state = f"generation {added.generation}, the newest is {added.newest}"
    return f"{added.name}: {state}" + (f"; not added: {', '.join(added.conflicts)}" if added.conflicts else "")
