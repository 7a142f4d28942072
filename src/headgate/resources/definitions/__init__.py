"""The schema of each kind: published ones are read from data, the others are written here."""
