"""A ticket signs in once, within five minutes."""

from __future__ import annotations

from openclaw_rl.proxy.dashboard.tickets import TICKET_SECONDS, Tickets
from openclaw_rl.proxy.http.auth import Caller


def test_a_ticket_is_good_once_and_for_five_minutes() -> None:
    time = [1000.0]
    tickets = Tickets(lambda: time[0])
    used, end = tickets.issue(Caller(3))
    late, _ = tickets.issue(Caller(4))
    assert end == 1000.0 + TICKET_SECONDS == 1300.0
    assert tickets.redeem("guess") is None and tickets.redeem("") is None and tickets.redeem("\udc80") is None
    time[0] = 1299.0
    assert tickets.redeem(used) == Caller(3) and tickets.redeem(used) is None
    time[0] = 1300.0
    assert tickets.redeem(late) is None
    assert Tickets(lambda: time[0]).redeem(tickets.issue(Caller())[0]) is None  # of a service before its restart
