"""What goes over the line of a launcher or a checker."""

import http.client
import io
import ssl
from pathlib import Path

import pytest

from muster.protocol import channel
from muster.protocol.channel import Channel, Endpoint
from muster.protocol.messages import IDLE, REPORT_PATH, Directive, Report, decode_directive, encode


class Socket:
    """Notes what is sent, and answers each request that is whole."""

    def __init__(self, answer: bytes) -> None:
        self.sent: list[bytes] = []
        self._answer = answer

    def sendall(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def settimeout(self, _seconds: float) -> None:
        pass

    def makefile(self, *_arguments: object, **_named: object) -> object:
        return io.BytesIO(self._answer)

    def close(self) -> None:
        pass


def test_a_request_goes_out_in_one_piece_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("good\n")
    (tmp_path / "ca").write_text("")
    body = encode(Directive("Wait", 1))
    line = Socket(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    def connect(self: http.client.HTTPConnection) -> None:
        self.sock = line

    monkeypatch.setattr(channel._NamedConnection, "connect", connect)
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    endpoint = Endpoint("127.0.0.1", 1, "c", str(tmp_path / "token"), str(tmp_path / "ca"))
    talk = Channel(endpoint, REPORT_PATH, decode_directive)
    for sequence in (1, 2):
        report = Report(sequence, IDLE)
        assert talk.exchange(report, 1.0)[0] == Directive("Wait", 1)
        head, _, sent = line.sent[-1].partition(b"\r\n\r\n")
        assert (len(line.sent), sent) == (sequence, encode(report))
        assert b"Authorization: Bearer good" in head
