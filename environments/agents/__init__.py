"""Our agent at a computer, with the tools `bash` and `edit`, and settings of other agents."""
