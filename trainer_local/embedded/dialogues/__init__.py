"""Synthetic dialogues that the embedded policy is made from: seeded, pure Python, no torch.

`sample_dialogue(random)` draws one dialogue of the mixture below. What world they speak of (names, objects, containers,
verbs, number ranges, problem templates, ways of asking) is in `lexicon.json`, for anybody who measures the policy on
problems of the same family; hints in `held_out.json` never occur in training.
"""

from openclaw_rl.trainer_local.embedded.dialogues.mixture import Dialogue, sample_dialogue

__all__ = ["Dialogue", "sample_dialogue"]
