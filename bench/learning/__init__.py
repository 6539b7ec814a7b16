"""Compare how well each method learns on the embedded policy, against a control, a placebo and noise."""
