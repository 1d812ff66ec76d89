"""No token leaves the house, in whatever file and form, and nothing that is published points at others' code."""

import base64
import json
import re
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from card_factory import FIGURE
from safetensors.numpy import load_file, save_file

from hf_recurrent.benchmarks.export import export_benchmark
from hf_recurrent.hub.disclosure import check_disclosure
from hf_recurrent.hub.publish import publish_benchmark, publish_checkpoint, publish_metric
from hf_recurrent.metrics import export as metric_export
from support.families import slow

TOKEN = "hf_" + "aB3" * 11
TOKENS = [
    TOKEN,
    "api_org_" + "a" * 34,
    "ghp_" + "a1" * 18,
    "github_pat_" + "11AAAAAA0_" * 4,
    "sk-ant-api03-" + "a_" * 12,
    "sk-" + "aB3" * 16,
    "glpat-" + "a1" * 10,
    "pypi-AgEI" + "a1" * 30,
    "xoxb-" + "1234567890-" * 2 + "a1",
    "AIza" + "aB3_x" * 7,
    "AKIA" + "A1B2" * 4,
    "-----BEGIN OPENSSH PRIVATE KEY-----",
]


def chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def text(content: str):
    return lambda path: path.write_text(content)


def weights(names=("w",), **metadata):
    return lambda path: save_file({name: np.zeros(2) for name in names}, path, metadata)


def table(column="text", value="", metadata=None):
    rows = pa.table({"pair": [{"en": ["a"]}, {"en": ["a"]}, {"en": [value]}], column: ["a", value, "a"]})
    return lambda path: pq.write_table(rows.replace_schema_metadata(metadata), path)


def figure(*chunks: bytes):
    return lambda path: path.write_bytes(FIGURE[:33] + b"".join(chunks) + FIGURE[33:])


def base64_of(content: str) -> str:
    return base64.b64encode(content.encode()).decode()


ESCAPED = "\\u0068f_" + TOKEN[3:]
FILES = [
    ("chat_template.jinja", text(f"{{# {TOKEN} #}}"), "it holds an access token"),
    ("vocab.txt", text(f"a\n{TOKEN}\nb"), "it holds an access token"),
    ("merges.txt", text(f"a b\n{TOKEN} c"), "it holds an access token"),
    ("vocab.json", text(f'{{"{ESCAPED}": 1}}'), "its vocabulary holds an access token"),
    ("tokenizer.json", text(f'{{"model": {{"vocab": {{"{ESCAPED}": 1}}}}}}'), "its vocabulary holds an access token"),
    ("config.json", text(f'{{"a": [{{"{TOKEN}": 1}}]}}'), r"the key a\[0\].\*\*\* holds an access token"),
    ("config.json", text(f'{{"a": "{ESCAPED}"}}'), "a holds an access token"),
    ("config.json", text('{"a": {"/home/ada": 1}}'), "the key a./home/ada holds a local path: /home/ada"),
    ("generation_config.json", text(f'{{"a": "{TOKEN}", "a": 1}}'), r"an object has \['a'\] more than once"),
    ("card.json", text("[" * 5000), "it cannot be read .*levels of nesting"),
    (".eval_results/a.yaml", text(f'"\\x68f_{TOKEN[3:]}": 1'), r"the key \*\*\* holds an access token"),
    (".eval_results/a.yaml", text("a: &a [*a]"), "it cannot be read .*holds an alias"),
    ("model.safetensors", weights(**{TOKEN: "1"}), r"its metadata '\*\*\*' holds an access token"),
    ("model.safetensors", weights(run="/home/ada/run"), "its metadata 'run' holds a local path: /home/ada"),
    ("model.safetensors", weights(names=[f"a.{TOKEN}"]), "the name of a weight holds an access token"),
    ("spiece.model", lambda path: path.write_bytes(b"\x80\xff" + TOKEN.encode()), "it holds an access token"),
    ("notes.unknown", text(TOKEN), "it holds an access token"),
    *(
        ("config.json", text(f'{{"a": "{base64_of(before + TOKEN)}"}}'), "a holds an access token")
        for before in ("", ":", "a:")
    ),
    ("chat_template.jinja", text(f"https://ada:{TOKEN.replace('_', '%5F')}@hub.co"), "it holds an access token"),
    ("spiece.model", lambda path: path.write_bytes(TOKEN.encode("utf-16-be")), "it holds an access token"),
    ("README.md", lambda path: path.write_bytes(b"\xff\xfe"), "it cannot be read .*utf-8"),
    ("index.html", text("<!-- /home/ada/page -->"), "it holds a local path: /home/ada"),
    ("a.png", lambda path: path.write_bytes(FIGURE + TOKEN.encode()), "36 bytes behind its end"),
    ("b.png", figure(chunk(b"iCCP", b"anything")), r"data of its own \(iCCP\)"),
    ("c.png", figure(chunk(b"tEXt", b"Software\0/home/ada/plot")), "its text holds a local path: /home/ada"),
    ("e.png", figure(chunk(b"pHYs", TOKEN.encode())), r"it carries data of its own \(pHYs\)"),
    ("f.png", figure(chunk(b"IDAT", b"more")), "its pixels are more or fewer than|incorrect header"),
    (
        "g.png",
        lambda path: path.write_bytes(FIGURE[:-12] + chunk(b"IDAT", b"more") + FIGURE[-12:]),
        "more or fewer than",
    ),
    ("h.png", figure(FIGURE[8:33]), "it has two sizes"),
    ("notes.bin", text(f"x{TOKEN}"), "it holds an access token"),
    (".eval_results/b.yaml", text("# from /home/ada/run\na: 1"), "it holds a local path: /home/ada"),
    ("README.md", text("</home/ada/run> or log:/home/ada"), "it holds a local path: /home/ada"),
    ("README.md", text(r"c:\Users\ada"), r"it holds a local path: c:.Users"),
    ("d.png", figure(chunk(b"tEXt", b"Author\0ada")), r"data of its own \(tEXt\)"),
    ("a/train-00000-of-00001.parquet", table(value=TOKEN), "row 2, text holds an access token"),
    ("a/train-00000-of-00001.parquet", table(column=TOKEN), r"its schema holds an access token"),
    ("a/train-00000-of-00001.parquet", table(metadata={"k": TOKEN}), "its schema holds an access token"),
    ("a/train-00000-of-00001.parquet", text("PAR1"), "it cannot be read .*as Parquet"),
    (f"{TOKEN}.txt", text(""), "its name holds an access token"),
]


@pytest.mark.parametrize(("name", "write", "problem"), FILES)
def test_every_kind_of_file_is_read(name, write, problem, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    write(path)
    shown = name.replace(TOKEN, "***")
    with pytest.raises(ValueError, match=f"(?s)this cannot be published:\n- {re.escape(shown)}: .*{problem}") as caught:
        check_disclosure(tmp_path)
    assert TOKEN[:12] not in str(caught.value)


@pytest.mark.parametrize("token", TOKENS)
def test_every_kind_of_token_is_known(token, tmp_path):
    for name, content in {"a.py": json.dumps([token]), "a.bin": token, "a.json": json.dumps([token])}.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match="an access token: take it out, and revoke it"):
            check_disclosure(tmp_path)
        (tmp_path / name).unlink()


def test_what_only_looks_like_a_token_or_path(tmp_path):
    (tmp_path / "README.md").write_text("shelf_" + "a" * 30 + " hf_recurrent/hub and/or\n```\n/usr/bin/python\n```\n")
    (tmp_path / "vocab.txt").write_text(f"/usr/bin/python\nhf_short\n{base64_of('hf_' + '-' * 40)}\n")
    (tmp_path / "merges.txt").write_text("")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend", "pad_token": "</s>"}')
    (tmp_path / "a.png").write_bytes(FIGURE)
    table(value="see /home/ada/notes")(tmp_path / "a.parquet")
    check_disclosure(tmp_path)


POINTERS = [
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["x/y--tok.Tok", None]}}, "auto_map"),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["tok.Tok", None]}}, "auto_map"),
    ("tokenizer_config.json", {"tokenizer_class": {"a": "b"}}, "tokenizer_class"),
    ("generation_config.json", {"deep": [{"auto_map": {}}]}, r"deep\[0\].auto_map"),
    ("config.json", {"text_config": {"auto_map": {"AutoModel": "x/y--m.M"}}}, "text_config.auto_map"),
    ("config.json", {"custom_pipelines": {"t": {"impl": "x/y--p.P"}}}, "custom_pipelines"),
    ("config.json", {"anything": "x/y--m.M"}, "anything"),
    ("config.json", {"attn_implementation": "someone/kernel"}, "attn_implementation"),
    ("special_tokens_map.json", {"auto_map": "x"}, "auto_map"),
]


@pytest.mark.parametrize(("name", "fields", "place"), [*POINTERS[:3], *(slow(*values) for values in POINTERS[3:])])
def test_nothing_points_at_the_code_of_others(run_folder, name, fields, place):
    path = run_folder / name
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | fields))
    with pytest.raises(ValueError, match=rf"{name}: {place}\S* points at code"):
        publish_checkpoint(run_folder, "org/x", dry_run=True)


def test_models_benchmarks_and_metrics_are_read_alike(run_folder, tmp_path, monkeypatch):
    values = load_file(run_folder / "model.safetensors")
    values[next(iter(values))].view(np.uint8).reshape(-1)[: len(TOKEN)] = list(TOKEN.encode())
    save_file(values, run_folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"model\.safetensors: it holds an access token"):
        publish_checkpoint(run_folder, "org/x", dry_run=True)
    sizes = {"num_train": 2, "num_validation": 2, "num_test": 2}
    folder = export_benchmark("flip_flop", tmp_path / "out", configs=["original"], params=sizes)
    with open(folder / "README.md", "a") as file:
        file.write(TOKEN)
    with pytest.raises(ValueError, match=r"README\.md: it holds an access token"):
        publish_benchmark(folder, "org/flip_flop", dry_run=True)
    monkeypatch.setattr(metric_export, "TAGS", [*metric_export.TAGS, TOKEN])
    with pytest.raises(ValueError, match=r"README\.md: it holds an access token"):
        publish_metric("bits_per_token", "org/bits_per_token", dry_run=True)
