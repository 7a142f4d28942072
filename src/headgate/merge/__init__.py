"""Field management: which manager owns which field of an object, and server-side apply. All functions are pure."""
