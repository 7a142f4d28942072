"""The Gateway API's kinds: a room for each, and what its routes share."""
