"""How well each method learns: arms side by side on the embedded policy, against a control, a placebo and noise."""
