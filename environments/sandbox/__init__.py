"""A sandbox for commands of agents: bubblewrap, one persistent set of namespaces, no network."""
