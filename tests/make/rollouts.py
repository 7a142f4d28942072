"""The state of a rollout in the conditions of a Canary, read and written by tests."""

import json
from collections.abc import Mapping
from typing import Any

NOON = "2026-01-01T12:00:00Z"


def state_of(status: Mapping[str, Any]) -> str:
    """Return the state of a rollout: the reason of Promoted; Split without analysis, Invalid, or empty without a status."""
    found = _conditions(status)
    if not found:
        return ""
    if found["Accepted"]["status"] == "False":
        return "Invalid"
    return str(found["Promoted"]["reason"]) if "Promoted" in found else "Split"


def message_of(status: Mapping[str, Any]) -> str:
    """Return the state of a rollout in a sentence; empty without a status."""
    found, state = _conditions(status), state_of(status)
    decisive = {"": "", "Invalid": "Accepted", "Split": "Programmed"}.get(state, "Promoted")
    return str(found[decisive]["message"]) if state else ""


def conditions_of(state: str, message: str = "") -> list[dict[str, Any]]:
    """Return the conditions of a Canary in a state."""
    decided = {"Promoted": "True", "RolledBack": "False"}.get(state, "Unknown")
    accepted = ("False", "SplitExists", message) if state == "Invalid" else ("True", "Accepted", "the object is valid")
    rows = {"Accepted": accepted, "Programmed": ("True", "Programmed", message)}
    if state not in ("Split", "Invalid"):
        rows["Promoted"] = decided, state, message
    return [
        {"type": type, "status": status, "reason": reason, "message": text, "lastTransitionTime": NOON}
        for type, (status, reason, text) in rows.items()
    ]


def request(action: str, id: str) -> str:
    """Return the merge patch with a request to a rollout."""
    return json.dumps({"spec": {"request": {"action": action, "id": id}}})


def _conditions(status: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    return {row["type"]: row for row in status.get("conditions") or ()}
