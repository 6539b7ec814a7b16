"""Environments: tasks with a verdict, worked on by agents that talk to the service over HTTP."""
