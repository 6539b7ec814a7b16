"""How many likeliest tokens a provider tells at each position of a scored text: nobody documents it, so it is tried."""

from __future__ import annotations

from openclaw_rl.trainer_cloud.provider import CloudError, Sampler

_FEWER = (100, 50, 20, 10, 5)
_TEXT = (1, 2, 3)


class TopsProbe:
    """Asks once for each count, on a text of three tokens."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    async def most(self, sampler: Sampler, wanted: int) -> int:
        """The largest count up to `wanted` that the provider tells; 0 if it tells none. Raises `CloudError` where it
        cannot be asked.
        """
        if wanted not in self._known:
            self._known[wanted] = await self._tried(sampler, wanted)
        return self._known[wanted]

    async def _tried(self, sampler: Sampler, wanted: int) -> int:
        for count in (wanted, *(fewer for fewer in _FEWER if fewer < wanted)):
            try:
                told = (await sampler.score(_TEXT, 1, tops=count)).tops
            except CloudError as error:
                if error.trouble != "refused":
                    raise
                continue
            return min((len(row) for row in told), default=0)
        return 0
