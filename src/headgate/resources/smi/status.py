"""Parts of statuses that several kinds have."""

from headgate.resources.schema.builders import Schema, record, text, whole

PROXIES = record(
    "The progress of the object's configuration on proxies.",
    programmed=whole("The number of proxies that acknowledged the configuration."),
    total=whole("The number of proxies that need the configuration."),
)
SELECTED_PODS = record(
    "The pods that the object selects.",
    total=whole("The number of pods."),
    sidecars=whole("The number of these pods with a sidecar; nothing is enforced at pods without a sidecar."),
)


def summary(**texts: str) -> Schema:
    """Return the schema of `status.summary`: the description of each text in it."""
    fields = {name: text(description) for name, description in texts.items()}
    return record("Texts that `kubectl get` shows.", **fields)
