"""`headgate explain -f`: explain a request with the objects in files."""

from collections.abc import Sequence
from pathlib import Path

from headgate.cli.offline import compile_files, reject_mistakes
from headgate.cli.output import note
from headgate.compiler.explain_request import explain_request
from headgate.resources.explanations import Explanation, explanation_spec
from headgate.resources.inspect import ObjectName
from headgate.resources.request_spec import RequestSpec
from headgate.settings import Settings


def explain_files(files: Sequence[Path], settings: Settings, request: RequestSpec) -> Explanation:
    """Explain a request with the objects in files. Raises HeadgateError if they have mistakes, or no objects."""
    compiled = compile_files(files, settings)
    reject_mistakes(compiled.manifests, "explanation")
    for warning in compiled.manifests.warnings:
        note(str(warning))
    return Explanation(
        metadata=ObjectName(namespace=request.namespace),
        spec=explanation_spec(request),
        status=explain_request(compiled.compiled, compiled.snapshot, request),
    )
