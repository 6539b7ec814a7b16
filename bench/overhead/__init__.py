"""Measure the cost of the proxy."""
