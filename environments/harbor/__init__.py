"""Harbor's task folders, agents and sandboxes: a process in an environment of its own runs them for our runner."""
