"""Reads the operator's metrics as Prometheus does: over HTTPS, with a token that may."""

import ssl
import urllib.error
import urllib.request

ANSWER_SECONDS = 30.0


def scrape(port: int, token: str, host: str = "127.0.0.1") -> tuple[int, str]:
    """Status and text of the answer; status 0 where nothing answers. An empty token is not sent."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://{host}:{port}/metrics")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=trust) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""
