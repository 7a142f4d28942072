"""A Canary of two versions of a website, and its testers."""

import json
from typing import Any

from tests.make.objects import canary, manifest

TESTER = {"x-tester": "yes"}
PATIENT = {"interval": "1s", "success": {"margin": "50%"}}  # decides after few requests


def canary_of_website(**analysis: Any) -> str:
    """Return a Canary of website-v1 and website-v2, 90 to 10."""
    chosen = {"canary": "website-v2", **PATIENT, **analysis}
    return manifest(canary("website", {"website-v1": 9, "website-v2": 1}, analysis=chosen, namespace=""))


def changed(manifest: str, **spec: Any) -> str:
    """Return a Canary with some fields of its spec replaced."""
    obj = json.loads(manifest)
    return json.dumps({**obj, "spec": {**obj["spec"], **spec}})
