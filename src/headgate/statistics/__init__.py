"""Statistics that stay valid however often they are computed: pure functions of counts."""
