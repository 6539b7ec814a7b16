"""Repositories with a fault: those of ours, made by mutation, and rows in the fields of SWE-bench and SWE-Gym."""
