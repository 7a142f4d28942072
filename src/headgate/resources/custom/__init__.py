"""CustomResourceDefinitions: the kinds that they define, and the checks of their objects."""
