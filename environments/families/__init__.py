"""Built-in families of tasks with tools, small enough for the embedded policy: `calls` and `sums`."""
