"""The ports to objects, and what every implementation of them shares."""
