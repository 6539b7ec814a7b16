"""Makes the policy that ships in `trainer_local/embedded/policy`: its dialogues, tokenizer, training and measurements.

python -m bench.shipped_policy.tokenizer      the tokenizer (its text is found on the machine, so it is committed)
python -m bench.shipped_policy.pretrain       the weights and `card.json`
python -m bench.shipped_policy.measure        the figures of `card.json` alone
"""

from __future__ import annotations

from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY as POLICY

__all__ = ["POLICY"]
