"""Questions to Google Cloud: a machine's metadata server, and the REST interfaces, by the standard library alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from email.message import Message

_METADATA = "metadata.google.internal"
_METADATA_S, _API_S = 5.0, 30.0
_TOKEN = "instance/service-accounts/default/token"  # noqa: S105 - the token's path
_FLAVOR = {"Metadata-Flavor": "Google"}


class MissingMetadataError(LookupError):
    """The metadata server answers, and has no such value.

    Parameters
    ----------
    url : str
        The address that was asked.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"{self.url} is not there: HTTP status 404"


def metadata(path: str) -> str:
    """Return a value of the metadata server.

    Parameters
    ----------
    path : str
        Below ``computeMetadata/v1/``, such as ``instance/zone``.

    Raises
    ------
    MissingMetadataError
        The server has no such value.
    RuntimeError
        No metadata server answers.
    """
    host = os.environ.get("GCE_METADATA_HOST") or os.environ.get("GCE_METADATA_IP") or _METADATA
    url = f"http://{host}/computeMetadata/v1/{path}"
    advice = (
        "this is not a machine of Google Cloud, or its metadata server is blocked. Give what it would say as "
        "arguments, or its address in GCE_METADATA_HOST"
    )
    try:
        headers, body = _asked(url, _FLAVOR, None, _METADATA_S)
    except _StatusError as error:
        if error.status == 404:
            raise MissingMetadataError(url) from None
        raise RuntimeError(f"{url} answers {error}: {advice}") from None
    except OSError as error:
        raise RuntimeError(f"{url} does not answer ({error}): {advice}") from None
    if headers.get("Metadata-Flavor") != "Google":
        raise RuntimeError(f"{url} answers, but not as a metadata server does: {advice}")
    return body.decode("utf-8", "replace").strip()


class GoogleRest:
    """A REST interface of Google Cloud, asked as the service account of this machine, or with credentials.

    Parameters
    ----------
    base : str
        The address of the interface and its version.
    credentials : object
        ``"default"``: a token of the metadata server. A str: an access token. Else an object of ``google.auth``:
        it has `token`, `valid` and ``refresh(request)``.
    """

    def __init__(self, base: str, credentials: Any) -> None:
        self._base, self._credentials = base.rstrip("/"), credentials

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a request; POST with a body, GET without.

        Parameters
        ----------
        path : str
            Below the interface's address.
        body : mapping, optional
            To be sent as JSON.

        Raises
        ------
        RuntimeError
            It does not answer, refuses, or answers something else than a JSON object.
        """
        url = f"{self._base}/{path}"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body).encode()
        try:
            _, answer = _asked(url, headers, sent, _API_S)
        except _StatusError as error:
            advice = {
                401: "the token is not accepted: give credentials=",
                403: "the service account may not read it: give it the role of a viewer, or credentials=",
                404: "there is none of this name: check project, zone and name",
            }.get(error.status, "try again, or give service=, a client of Google's own library")
            raise RuntimeError(f"{url} answers {error}: {advice}") from None
        except OSError as error:
            raise RuntimeError(
                f"{url} does not answer ({error}): is there a way to it, through a proxy (https_proxy) perhaps?"
            ) from None
        try:
            found = json.loads(answer)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            text = f"{url} answers no JSON object: {answer[:200]!r}"
            raise RuntimeError(text)  # noqa: TRY004 - it is the server that is wrong
        return found

    @cached_property
    def _token(self) -> str:
        given = self._credentials
        if given is None or given == "default":
            try:
                found = json.loads(metadata(_TOKEN))
                return str(found["access_token"])
            except (MissingMetadataError, ValueError, KeyError, TypeError):
                raise RuntimeError(
                    f"the metadata server has no token ({_TOKEN}): this machine has no service account. Give "
                    "credentials="
                ) from None
        if isinstance(given, str):
            return given
        if not given.valid:
            given.refresh(_transport)
        return str(given.token)


class _Answered(Protocol):
    """An answer as google.auth's transports give it."""

    status: int
    headers: Mapping[str, str]
    data: bytes


def _transport(
    url: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    **_: Any,
) -> _Answered:
    """Carry a request out for the refreshing of credentials, as google.auth's own transports do."""
    from types import SimpleNamespace  # noqa: PLC0415 - only for credentials of google.auth

    try:
        found, data = _asked(url, headers or {}, body, timeout or _API_S, method)
        answer = SimpleNamespace(status=200, headers=dict(found), data=data)
    except _StatusError as error:
        answer = SimpleNamespace(status=error.status, headers={}, data=error.body)
    return cast("_Answered", answer)


class _StatusError(Exception):
    """An answer with another HTTP status than 200."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status, body)
        self.status, self.body = status, body

    def __str__(self) -> str:
        text = self.body[:300].decode("utf-8", "replace").strip()
        return f"HTTP status {self.status}" + (f", {text!r}" if text else "")


def _asked(
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    timeout: float,
    method: str | None = None,
) -> tuple[Message, bytes]:
    """Send a request; a metadata server is on this machine's own link, so it is reached without a proxy."""
    from http.client import HTTPException  # noqa: PLC0415 - here and below: td.distribute is small
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import ProxyHandler, Request, build_opener  # noqa: PLC0415

    request = Request(url, body, dict(headers), method=method)  # noqa: S310 - the schemes are ours
    opener = (
        build_opener(ProxyHandler({})) if _FLAVOR.items() <= headers.items() else build_opener()
    )
    try:
        with opener.open(request, timeout=timeout) as answer:
            return answer.headers, answer.read()
    except HTTPError as error:
        with error:
            raise _StatusError(error.code, error.read()) from None
    except HTTPException as error:
        raise OSError(f"it does not speak HTTP: {error!r}") from None
