"""Tasks of ours as folders in Harbor's layout: terminal tasks, and repositories with a fault."""
