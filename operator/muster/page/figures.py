"""Measure the page itself. Labels come from this code alone: no request and no user becomes a time series."""

import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import Counter, Gauge, Histogram

OTHER = "other"

_requests = Counter(
    "muster_page_requests_total", "Requests to the page, by the status of the response.", ["route", "code"]
)
_seconds = Histogram(
    "muster_page_request_seconds",
    "Time until a response of the page was ready, the API server's check of the reader included.",
    ["route"],
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
_open = Gauge("muster_page_requests_open", "Requests to the page that are not answered yet.")
_refused = Counter("muster_page_logins_refused_total", "Requests to the page without a token that the cluster accepts.")
_age = Gauge(
    "muster_page_data_age_seconds",
    "Age of the page's data: the longest time without news from the API server, over the kinds that the page shows.",
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def measured(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count every request, also one whose client has gone: that has no answer and counts as code 0."""
    resource = request.match_info.route.resource
    route = resource.canonical if resource is not None else OTHER
    began, code = time.monotonic(), 0
    _open.inc()
    try:
        response = await handler(request)
        code = response.status
    finally:
        _open.dec()
        _requests.labels(route, str(code)).inc()
        _seconds.labels(route).observe(time.monotonic() - began)
    if code == 401:
        _refused.inc()
    return response


def publish_age(age_seconds: Callable[[], float]) -> None:
    """Publish the age that this function returns at each scrape."""
    _age.set_function(age_seconds)
