"""What does the proxy cost? See `bench.overhead.__main__`."""
