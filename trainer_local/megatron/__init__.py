"""The Megatron-core trainer (`trainer_local.megatron.trainer`)."""

import warnings

# What it would rather be called with, and which faster kernels are not installed, is nothing a person can act on.
warnings.filterwarnings("ignore", module=r"megatron\.core")
