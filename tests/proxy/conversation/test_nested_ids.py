"""JSON in a client's ids that is nested thousands of levels deep is no session, and no error."""

from __future__ import annotations

import pytest

from openclaw_rl.proxy.conversation.programs import purpose_headers
from openclaw_rl.proxy.conversation.session_id import _session_in

DEEP = ['{"a":' * 5000, '{"a":' * 5000 + "1" + "}" * 5000, '{"a": "\udc80"}', "{" + '"session_id": [' * 9000]


@pytest.mark.parametrize("text", DEEP)
def test_a_users_id_without_a_readable_session_has_none(text: str) -> None:
    assert _session_in(text) == ""


@pytest.mark.parametrize("text", DEEP)
def test_a_header_that_cannot_be_read_is_taken_as_it_is(text: str) -> None:
    assert list(purpose_headers._fields("x-purpose", text))[-1] == ("x-purpose", text)
