"""An S3 server for tests, with passwords and a quota: ``python -m tests.flows.s3_double PORT FOLDER``.

moto answers. Once ``FOLDER/keys.json`` is written, only its key may do anything. While ``FOLDER/full`` is there nothing
can be written, and the error is the one that SeaweedFS, Ceph and MinIO give for a bucket over its quota.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

KEYS = "keys.json"
FULL = "full"
_OVER_QUOTA = b"<Error><Code>QuotaExceeded</Code><Message>The bucket quota has been exceeded</Message></Error>"
_UNSIGNED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


def with_quota(application: WSGIApplication, full: Path) -> WSGIApplication:
    """``application``, refusing to store anything while the file ``full`` is there."""

    def serve(environ: WSGIEnvironment, start_response: StartResponse):
        over = full.exists() and environ["REQUEST_METHOD"] in ("PUT", "POST")
        unsigned = "HTTP_AUTHORIZATION" not in environ  # moto would fail on it
        if not over and not unsigned:
            return application(environ, start_response)
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"].read(length)  # else the client sees a broken connection and not the answer
        start_response("403 Forbidden", [("Content-Type", "application/xml")])
        return [_OVER_QUOTA if over else _UNSIGNED]

    return serve


def a_key() -> dict[str, str]:
    """A user of S3 and nobody else: from here on a request without a right signature is refused."""
    from moto import settings
    from moto.iam.models import iam_backends

    account = iam_backends["123456789012"]["aws"]
    account.create_user(region_name="us-east-1", user_name="agentprm", path="/", tags=[])
    allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    account.put_user_policy("agentprm", "s3", json.dumps(allowed))
    key = account.create_access_key("agentprm")
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0.0
    return {"AWS_ACCESS_KEY_ID": key.access_key_id, "AWS_SECRET_ACCESS_KEY": key.secret_access_key}


def main() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple

    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    key = a_key()
    aside = folder / f".{KEYS}"
    aside.touch(mode=0o600)
    aside.write_text(json.dumps(key))
    aside.replace(folder / KEYS)
    application = with_quota(DomainDispatcherApplication(create_backend_app), folder / FULL)
    run_simple("127.0.0.1", port, application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
