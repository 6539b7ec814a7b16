"""Families of small tasks at a computer, drawn without end: eight for a shell, four mutations of a one-file module.

The embedded policy's pre-training (`bench.shipped_policy`) and the task folders draw from the same families, so their
words are the same. Training draws the split `train`; the combinations of values in `held-out` are never seen.
"""
