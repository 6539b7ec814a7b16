"""Scripts of the verifier: each task has its own copy of them in `tests/`, and they import nothing of ours."""
