"""Self subject reviews (`kubectl auth can-i`, `whoami`). The only user of the embedded API may do everything."""

from collections.abc import Mapping
from typing import Any

REVIEWS: Mapping[tuple[str, str, str], str] = {
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    ("authorization.k8s.io", "v1", "selfsubjectrulesreviews"): "SelfSubjectRulesReview",
    ("authentication.k8s.io", "v1", "selfsubjectreviews"): "SelfSubjectReview",
}
"""Kinds of reviews by group, version and resource."""
_EVERY_RULE = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
_ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "selfsubjectaccessreviews": {"allowed": True, "reason": "the user of the embedded API may do everything"},
    "selfsubjectrulesreviews": _EVERY_RULE,
    "selfsubjectreviews": {"userInfo": {"username": "headgate:admin", "groups": ["system:masters"]}},
}


def review_response(resource: str, review: Mapping[str, Any]) -> dict[str, Any]:
    """Return the review with a status that describes the API's only user."""
    return {**review, "status": _ANSWERS[resource]}
