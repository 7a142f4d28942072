"""The history of the mesh: revisions of the users' objects, and what leads back to an earlier one. Pure."""
