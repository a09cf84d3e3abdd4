"""`report --prometheus`: the energy of a job's nodes, as a Prometheus tells it; a server that is none is no figure."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.unit.cli.test_report import HOUR, PATH, a_job
from typer.testing import Result

HELD = 99 * HOUR * 16
"""GPU-seconds that the job has held: all but its hour in the queue."""


def a_sample(value: float) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, str(value)]}]}}


NOTHING = {"status": "success", "data": {"resultType": "vector", "result": []}}


class FakePrometheus:
    """Answers by the name of the rule that a query has; keeps what it was asked.

    Attributes:
        watts: its answer to the sum of the power's samples.
        gpus: likewise, of the numbers of GPUs.
    """

    def __init__(self) -> None:
        self.watts: Any = a_sample(500 * HELD / 30)
        self.gpus: Any = a_sample(HELD / 30)
        self.status = 200
        self.location = ""
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.url = ""

    def answer(self, path: str) -> bytes:
        parts = urlsplit(path)
        self.asked.append((parts.path, parse_qs(parts.query)))
        found = self.watts if "muster_job_power_watts" in path else self.gpus
        return found if isinstance(found, bytes) else json.dumps(found).encode()


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    fake = FakePrometheus()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = fake.answer(self.path)
            self.send_response(fake.status)
            if fake.location:
                self.send_header("Location", fake.location)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield fake
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def job(api: Any) -> dict[str, Any]:
    """54,000 steps of 400,000 tokens; what launchers have read is less than what Prometheus has."""
    body = a_job(steps=54_000, joules=5, meteredGpuSeconds=5)
    body["spec"]["throughput"] = {"tokensPerStep": 400_000}
    body["status"] |= {
        "completion": {"result": "Succeeded", "reason": "Completed", "time": "2026-01-05T04:00:00Z", "attempt": 1}
    }
    api.put(PATH, body)
    return body


@pytest.mark.usefixtures("job")
def test_the_energy_of_a_token_is_that_of_the_nodes(command: Callable[..., Result], prometheus: FakePrometheus) -> None:
    """16 GPUs of 500 W for the 99 hours in which the job held them: 792 kWh, for 21.6 billion tokens."""
    result = command("report", "llama", "--prometheus", f"{prometheus.url}/", "-o", "json")
    assert result.exit_code == 0, result.output
    energy = json.loads(result.output)["energy"]
    assert energy == {
        "source": "prometheus",
        "joules": 792 * 3_600_000,
        "wattsPerGpu": 500.0,
        "metered": 1.0,
        "joulesPerToken": pytest.approx(792 * 3.6e6 / 21.6e9),
        "joulesPerTokenUnknown": "",
    }
    assert [path for path, _ in prometheus.asked] == ["/api/v1/query"] * 2
    query = prometheus.asked[0][1]
    assert query["query"] == [
        'sum(sum_over_time(namespace_job_name:muster_job_power_watts:sum{namespace="team-a",job_name="llama"}[360000s]))'
    ]
    assert query["time"] == ["1767585600.000"], "2026-01-05 04:00, the end of the figures"
    text = command("report", "llama", "--prometheus", prometheus.url).stdout
    assert "792 kWh (500 W for each GPU)" in text
    assert "0.132 J" in text


@pytest.mark.usefixtures("job")
def test_where_it_has_little_or_nothing_the_reason_is_told(
    command: Callable[..., Result], prometheus: FakePrometheus
) -> None:
    prometheus.watts, prometheus.gpus = a_sample(500 * HELD / 60), a_sample(HELD / 60)
    text = command("report", "llama", "--prometheus", prometheus.url).stdout
    assert "metered for 50% of the time" in text
    assert "unknown: only 50% of the time was metered" in text
    prometheus.watts = prometheus.gpus = NOTHING
    found = json.loads(command("report", "llama", "--prometheus", prometheus.url, "-o", "json").output)
    assert "energy" not in found
    assert found["energyUnknown"].startswith("Prometheus has no sample of the power of this job's nodes")


@pytest.mark.usefixtures("job")
def test_of_two_prometheus_that_answer_as_one_there_is_no_energy(
    command: Callable[..., Result], prometheus: FakePrometheus
) -> None:
    prometheus.watts, prometheus.gpus = a_sample(2 * 500 * HELD / 30), a_sample(2 * HELD / 30)
    found = json.loads(command("report", "llama", "--prometheus", prometheus.url, "-o", "json").output)
    assert "energy" not in found
    assert found["energyUnknown"].startswith("Prometheus has 200% of the time in which the job held accelerators")
    assert "kWh" not in command("report", "llama", "--prometheus", prometheus.url).stdout


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    ("answer", "status"),
    [
        pytest.param(b"<html>log in</html>", 200, id="a page"),
        pytest.param({"status": "error", "errorType": "bad_data", "error": "no"}, 400, id="an error"),
        pytest.param({"status": "success", "data": {"resultType": "matrix", "result": []}}, 200, id="another type"),
        pytest.param(a_sample(float("nan")), 200, id="no number"),
        pytest.param(json.dumps(a_sample(1)).replace('"1"', "9" * 400).encode(), 200, id="an integer of 400 digits"),
        pytest.param(b"x" * 2_000_000, 200, id="no end"),
        pytest.param(b"[" * 100_000, 200, id="nested without end"),
    ],
)
def test_what_is_no_answer_of_a_prometheus_is_no_figure(
    command: Callable[..., Result], prometheus: FakePrometheus, answer: Any, status: int
) -> None:
    prometheus.watts, prometheus.status = answer, status
    result = command("report", "llama", "--prometheus", prometheus.url)
    assert result.exit_code == 1
    assert "does not answer as a Prometheus does" in result.output
    assert len(result.output) < 1000


@pytest.mark.usefixtures("job")
def test_a_prometheus_that_is_not_there_is_told_without_its_password(command: Callable[..., Result]) -> None:
    result = command("report", "llama", "--prometheus", "http://me:secret@127.0.0.1:1")
    assert result.exit_code == 1
    assert "no answer from the Prometheus at 127.0.0.1:1" in result.output
    assert "secret" not in result.output


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    "location",
    [
        "http://me:secret@127.0.0.1:99999/",
        "http://me:secret@127.0.0.1:abc/",
        "ftp://me:secret@127.0.0.1/",
    ],
)
def test_a_password_in_a_redirect_is_not_printed(
    command: Callable[..., Result], prometheus: FakePrometheus, location: str
) -> None:
    prometheus.status, prometheus.location = 302, location
    result = command("report", "llama", "--prometheus", prometheus.url)
    assert result.exit_code == 1
    assert f"no answer from the Prometheus at {urlsplit(prometheus.url).netloc}" in result.output
    assert "secret" not in result.output


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    ("url", "host"),
    [
        pytest.param("http://me:s€cret@127.0.0.1:1", "127.0.0.1:1", id="password beyond Latin-1"),
        pytest.param("http://me:secret@a..b:1", "a..b:1", id="empty label in the host"),
        pytest.param(f"http://me:secret@{'a' * 64}.b:1", f"{'a' * 64}.b:1", id="label of 64 characters in the host"),
    ],
)
def test_an_address_that_no_request_can_go_to_is_an_error_without_its_password(
    command: Callable[..., Result], url: str, host: str
) -> None:
    result = command("report", "llama", "--prometheus", url)
    assert result.exit_code == 1
    assert not isinstance(result.exception, ValueError)
    assert f"no answer from the Prometheus at {host}: the address" in " ".join(result.output.split())
    assert "cret" not in result.output


@pytest.mark.parametrize(
    "url",
    [
        "http://me:secret@127.0.0.1:99999",
        "http://me:secret@127.0.0.1:abc",
        "http://me:sec/ret@127.0.0.1:1",
        "http://me:123/secret@127.0.0.1:1",
        "http://me:secret@[::1",
        "http://me:secret\u2100@127.0.0.1:1",
    ],
)
def test_an_address_that_is_refused_is_not_printed(command: Callable[..., Result], api: Any, url: str) -> None:
    result = command("report", "llama", "--prometheus", url)
    assert result.exit_code == 2
    assert "write" in result.output
    assert not any(part in result.output for part in ("sec", "123", "99999", "abc"))
    assert api.asked == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("llama", "--prometheus", "localhost:9090"), "write the address of a Prometheus"),
        (("llama", "--prometheus", "file:///etc/passwd"), "write the address of a Prometheus"),
        (("llama", "--prometheus", "http://p/?query=up"), "write the address of a Prometheus"),
        (("--fleet", "--prometheus", "http://p"), "--prometheus is for a job"),
        (("--experiment", "lr", "--prometheus", "http://p"), "--prometheus is for a job"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(
    command: Callable[..., Result], api: Any, arguments: tuple[str, ...], says: str
) -> None:
    result = command("report", *arguments)
    assert result.exit_code == 2
    assert says in " ".join(result.output.replace("│", " ").split())
    assert api.asked == []
