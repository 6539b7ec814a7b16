"""Let the embedded policy work on tasks that have a verdict, and compare what it learns with a control and a placebo."""
