"""Parts of benchmarks that run a grid of cells: results on disk by the code that made them, and a service to run."""
