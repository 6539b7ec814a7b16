"""The dashboard: the page at `/ui/`, and how a person signs in to it."""
