from __future__ import annotations

import pytest

from evaluation.service import ServiceFailed, own_service


async def test_a_service_that_cannot_start_says_why() -> None:
    with pytest.raises(ServiceFailed, match="method"):
        async with own_service({"method": "no-such-method"}):
            pytest.fail("it must not get here")
