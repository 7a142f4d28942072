"""SMI's kinds: a room for each, and what they share."""
