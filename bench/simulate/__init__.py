"""The whole service in one process, on a virtual clock, under seeded faults. Run it as `python -m bench.simulate`."""
