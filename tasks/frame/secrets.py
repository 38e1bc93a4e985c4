"""Passwords and keys stay where they belong: in the environment, and in no process list, file, log or artifact."""

from __future__ import annotations

import json
import os
import re
from urllib.parse import unquote, urlsplit, urlunsplit

URI, USER, PASSWORD = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
_CREDENTIALS = re.compile(r"(\w[\w+.-]*://)[^/\s@\"']*@")
"""``user:password@`` of an address."""
_SECRET = re.compile(r"PASSWORD|PASSWD|TOKEN|SECRET|API_KEY|ACCESS_KEY|CREDENTIAL|AUTH_STRING", re.IGNORECASE)
"""Names of variables whose values nobody is to see."""
_SHORTEST = 8
"""Characters of such a value. A shorter one would be found in words that are no secrets."""


def hide_credentials() -> None:
    """Move user and password out of an http address in ``MLFLOW_TRACKING_URI``, into the two variables that MLflow
    reads them from. This process and those it starts then pass on an address without them."""
    parts = urlsplit(os.environ.get(URI, ""))
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return
    credentials, _, host = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    os.environ[URI] = urlunsplit(parts._replace(netloc=host))
    os.environ[USER], os.environ[PASSWORD] = unquote(user), unquote(password)


def redacted(text: str) -> str:
    """``text`` without credentials in addresses and without the values of variables that hold secrets."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and _SECRET.search(name):
            for form in (value, json.dumps(value)[1:-1]):
                text = text.replace(form, "***")
    return _CREDENTIALS.sub(r"\1***@", text)
