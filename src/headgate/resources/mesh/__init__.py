"""headgate's own kinds: a room for each."""
