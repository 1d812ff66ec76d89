"""Small corpora as users have them: folders, zip files, and tables of the Hub's kind."""

import gzip
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

NAME = "long_documents"
# all documents of a small corpus in one split
ONE_SPLIT = {"validation_share": 0, "test_share": 0}


def write_files(folder, files):
    for name, content in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(folder)


def write_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_table(path, rows):
    """A table in the form that its name says."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


def texts(rows):
    return dict(zip(rows["name"], rows["text"], strict=True))


def book(number, text, title="A Title"):
    """A row of emozilla/pg19."""
    return {
        "short_book_title": title,
        "publication_date": 1900,
        "url": f"http://www.gutenberg.org/ebooks/{number}",
        "text": text,
    }


def paper(name, text, subset="arxiv"):
    """A line of hoskinson-center/proof-pile."""
    return {"text": text, "meta": {"config": subset, "file": name}}


def source_file(repository, path, content):
    """A line of codeparrot/codeparrot-clean."""
    return {
        "repo_name": repository,
        "path": path,
        "copies": "1",
        "size": str(len(content)),
        "content": content,
        "license": "mit",
    }
