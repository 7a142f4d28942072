"""Objects in, mesh and report out: `compile.compile_mesh` is a pure function."""
