"""Let the embedded policy learn from tasks that have a verdict, next to a control and a placebo."""
