"""The compiler: `compile.compile_mesh` turns objects into a mesh and a report. It is a pure function."""
