"""`[ops] token`: what may guard the operator's API, and that it is never shown."""

from __future__ import annotations

import pytest

from relay.config import ConfigFault, changed, check

TOKEN = "a-token-of-twenty-ch"


def test_a_token_of_sixteen_characters_is_taken() -> None:
    """And one of any length above; none at all means that there is no API."""
    assert check({"ops": {"token": "0123456789abcdef"}}).ops.token == "0123456789abcdef"
    assert check({}).ops.token == ""


@pytest.mark.parametrize(
    "token", ["0123456789abcde", "with a blank in it", "ünsichtbar-ist-es-nicht", "0123456789abcdef\n"]
)
def test_a_token_that_is_short_or_fits_no_header_is_refused(token: str) -> None:
    """By its path, with what to do, and without showing it."""
    with pytest.raises(ConfigFault, match=r"^ops\.token: ") as fault:
        check({"ops": {"token": token}})
    assert token not in str(fault.value)


def test_a_token_is_never_shown() -> None:
    """Not in a repr, not by ``check-config``, not where it has the wrong type."""
    settings = check({"ops": {"token": TOKEN}})
    assert TOKEN not in repr(settings)
    assert dict(changed(settings)) == {"ops.token": '"***"'}
    with pytest.raises(ConfigFault) as fault:
        check({"ops": {"token": [TOKEN]}})
    assert TOKEN not in str(fault.value)
