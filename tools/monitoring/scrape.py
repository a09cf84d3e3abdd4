"""Reads the operator's metrics as Prometheus does: over HTTPS, with a token that may."""

import ssl
import time
import urllib.error
import urllib.request

from muster.serve import RENDERED_SECONDS

ANSWER_SECONDS = 30.0


def scrape(port: int, token: str) -> tuple[int, str]:
    """Status and text of the answer; status 0 where nothing answers. An empty token is not sent."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{port}/metrics")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=trust) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def scrape_now(port: int, token: str) -> tuple[int, str]:
    """The same as `scrape`, of this moment: what it answers may be a second old, so it is asked when that has
    passed."""
    time.sleep(RENDERED_SECONDS + 0.05)
    return scrape(port, token)
