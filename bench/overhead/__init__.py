"""The cost of the proxy: see `bench.overhead.__main__`."""
