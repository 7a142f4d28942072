"""`kubectl traffic tap`: a proxy's requests as they happen."""
