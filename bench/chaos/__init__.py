"""Faults of a whole service under live traffic, and a checker of what is left that shares no code with it."""
