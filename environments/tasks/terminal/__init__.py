"""Terminal tasks: eight families of one to three commands without end, and ten written by hand."""
