"""Synthetic dialogues for the training of the embedded policy: seeded, pure Python, no torch.

`sample_dialogue(random)` draws one dialogue of the mixture. Its word problems are those of `evaluation.problems`;
`retellings.json` and `phrases.json` add how people ask and how the policy answers. Hints in `held_out.json` never occur
in training.
"""

from bench.shipped_policy.dialogues.mixture import Dialogue, sample_dialogue

__all__ = ["Dialogue", "sample_dialogue"]
