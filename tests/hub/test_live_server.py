"""The server of `hf-recurrent serve`, spoken to over HTTP."""

import http.client
import json
import re
import threading
from contextlib import closing, contextmanager

import pytest

from hf_recurrent.analysis.explain.inside import look_inside
from hf_recurrent.hub.gallery.live_server import LiveServer
from support.families import BY_NAME, make_model
from support.tokenizer import make_tokenizer

TEXT = "w4 w9 w5 w21"
JSON = {"Content-Type": "application/json"}


@contextmanager
def serving(name, model, tokenizer):
    """A server in a thread of its own."""
    with LiveServer(name, model, tokenizer, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def live(name, title):
    return title, make_model(BY_NAME[name]).eval(), make_tokenizer()


@pytest.fixture(scope="module")
def server():
    with serving(*live("ndr", "runs/<b>ndr")) as server:
        yield server


def ask(server, method="GET", path="/", body=None, **headers):
    """-> status, headers and text of the answer."""
    with closing(http.client.HTTPConnection(*server.server_address[:2], timeout=20)) as connection:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()


def explain(server, data, **headers):
    body = data if isinstance(data, (str, bytes)) else json.dumps(data)
    return ask(server, "POST", "/explain", body, **{**JSON, **headers})


def test_the_page_loads_nothing_else(server):
    status, headers, text = ask(server)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "<h1>Inside &lt;b&gt;ndr</h1>" in text
    assert re.findall(r"https?://\S+", text) == ['http://www.w3.org/2000/svg";']
    # one text alone
    assert text.count("<textarea") == 1


def test_a_text_is_looked_into(server):
    status, headers, text = explain(server, {"text": TEXT})
    assert (status, headers["Content-Type"]) == (200, "application/json")
    expected = look_inside(server.model, server.tokenizer, TEXT)
    assert json.loads(text) == expected
    # an empty field is none
    assert explain(server, {"text": TEXT, "text_pair": ""})[2] == text


def test_pairs_have_two_fields():
    with serving(*live("ut_siamese", "ut")) as server:
        assert ask(server)[2].count("<textarea") == 2
        status, _, text = explain(server, {"text": TEXT, "text_pair": "w7"})
        assert status == 200
        assert json.loads(text)["tokens"] == ["[BOS]", *TEXT.split(), "[EOS]", "[BOS]", "w7", "[EOS]"]
        status, _, text = explain(server, {"text": TEXT})
        assert status == 400
        assert text.startswith("text_pair is missing: this model compares two sentences")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"text": "w4 banana"}, "text: word 2 of it, 'banana' at character 4, is not in the vocabulary"),
        ({"text": "<script>alert(1)</script>"}, "text: word 1 of it, '<script>alert(1)</script>' at character 1"),
        ({"text": "w4 " * 127}, "text has 129 tokens, special tokens included: pass at most 128"),
        ({"text": TEXT, "more": 1}, 'the request is not {"text": ...}'),
        (b"[]", 'the request is not {"text": ...}'),
        (b'{"text": "\xff"}', "'utf-8' codec can't decode"),
    ],
)
def test_bad_input_gets_the_reason_in_one_line(server, data, reason):
    status, headers, text = explain(server, data)
    assert (status, headers["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert reason in text
    assert "\n" not in text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{}", "127.0.0.1.evil.example:{}", "127.0.0.1:1", ""])
def test_other_names_do_not_lead_here(server, host):
    port = server.server_address[1]
    for path, method, body in (("/", "GET", None), ("/explain", "POST", json.dumps({"text": TEXT}))):
        assert ask(server, method, path, body, Host=host.format(port), **JSON)[0] == 421
        assert ask(server, method, path, body, Host=f"localhost:{port}", **JSON)[0] == 200


def test_there_is_nothing_else(server):
    assert explain(server, {"text": TEXT}, **{"Content-Type": "text/plain"})[0] == 400
    for method, path, status in (("GET", "/explain", 404), ("POST", "/", 404), ("PUT", "/", 501)):
        assert ask(server, method, path, "{}", **JSON)[0] == status


def test_a_port_that_is_taken_is_named(server):
    port = server.server_address[1]
    with pytest.raises(ValueError, match=f"port {port} cannot be used: Address already in use"):
        LiveServer("ndr", server.model, server.tokenizer, port)


def test_models_without_attention_are_refused():
    with pytest.raises(ValueError, match="architecture 'rnn', which has no attention"):
        LiveServer(*live("rnn_lstm", "rnn"), 0)
