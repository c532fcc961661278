"""One request to the operator's API of a relay that runs.

Job: where it is and with which token, by the same settings as the relay's own; answers as JSON, refusals as faults.
Rules: the token goes to that address alone: no proxy, no redirect. A fault says what the relay said, and what can be
done.
Must not know: what is asked, how it is shown.
"""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from relay.config import ConfigFault, address
from relay.config.values import check_url
from relay.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relay.config import Settings

TIMEOUT_S: Final = 15.0
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a relay listens, and is found


class Place(NamedTuple):
    """Where the API is, and what opens it."""

    url: str
    token: str


def place_of(settings: Settings, url: str | None) -> Place:
    """By ``--ops``, or by where the settings say that the relay listens. Raises ConfigFault."""
    if not settings.ops.token:
        raise ConfigFault("ops.token: is not set; give RELAY_OPS__TOKEN, or --config with the relay's own file")
    if url is not None:
        check_url("--ops", url, "http", "https")
        return Place(url.rstrip("/"), settings.ops.token)
    host, port = address(settings.ops.listen, "ops.listen")
    host = _EVERYWHERE.get(host, host)
    return Place(f"http://{f'[{host}]' if ':' in host else host}:{port}", settings.ops.token)


def ask(
    place: Place,
    method: str,
    path: str,
    *,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """The answer's JSON. Raises ConfigFault for a wrong token, Fault for whatever else is against it."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    target = f"{urlsplit(place.url).path}/api{path}{'?' if given else ''}{urlencode(given)}"
    sent = {"Authorization": f"Bearer {place.token}", "Accept": "application/json", **(headers or {})}
    content = None if body is None else json.dumps(body).encode()
    if content is not None:
        sent["Content-Type"] = "application/json"
    status, text = _exchange(place, method, target, content, sent)
    try:
        answer = json.loads(text)
    except ValueError:
        raise Fault(f"{place.url} is no operator's API: it answered {status} with {text[:80]!r}") from None
    if status >= http.HTTPStatus.BAD_REQUEST:
        raise _refused(place, status, answer)
    return answer


def _exchange(
    place: Place, method: str, target: str, content: bytes | None, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    parts = urlsplit(place.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request(method, target, content, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Fault(f"no relay answers at {place.url} ({why}); give --ops, or [ops] listen by --config") from None
    finally:
        connection.close()


def _refused(place: Place, status: int, problem: Any) -> Fault:
    """A problem (RFC 9457) in lines."""
    if not isinstance(problem, dict) or "detail" not in problem:
        return Fault(f"{place.url} is no operator's API: it answered {status}")
    if status == http.HTTPStatus.UNAUTHORIZED:
        return ConfigFault(f"ops.token: {place.url} has another one")
    lines = [plain(str(problem["detail"])), *(f"  - {plain(str(way))}" for way in problem.get("ways", ()))]
    if signs := problem.get("replacement"):
        fees = ", ".join(f"{name} {int(signs[name], 16)}" for name in signs if name.startswith(("gas", "max")))
        lines += [
            f"  {plain(str(signs['words']))}:",
            f"    from {signs['from']}, nonce {int(signs['nonce'], 16)}, {fees}",
        ]
    return Fault("\n".join(lines))


def plain(text: str) -> str:
    """Words of nodes and people without what a terminal would act on."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
