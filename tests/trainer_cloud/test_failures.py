"""Errors of a provider that concern the account, by the words of its answer."""

from __future__ import annotations

import pytest

from openclaw_rl.trainer_cloud.failures import ACCOUNTS, account_error


@pytest.mark.parametrize(
    ("status", "words", "trouble"),
    [
        (429, "insufficient balance", "billing"),
        (429, "the load balancer has too many requests", "limit"),
        (403, "insufficient permissions", "key"),
        (402, "pay first", "billing"),
        (500, "the load balancer failed", None),
    ],
)
def test_errors_of_an_account(status: int, words: str, trouble: str | None) -> None:
    error = account_error(ACCOUNTS["fireworks"], status, words)
    assert (error.trouble if error else None) == trouble
