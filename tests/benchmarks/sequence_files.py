"""Small data sets of sources and targets in the forms that their authors and the Hub have."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

MARRIED = (
    "people.person.spouse_s/ns:people.marriage.spouse|ns:fictional_universe.fictional_character.married_to/"
    "ns:fictional_universe.marriage_of_fictional_characters.spouses"
)
# questions and queries as CFQ has them: an example of its card, and others made like it
QUESTIONS = [
    (
        "Did a person marry a cinematographer , influence M1 , and influence M2",
        "SELECT count(*) WHERE {\n?x0 a ns:people.person .\n?x0 ns:influence.influence_node.influenced M1 .\n"
        f"?x0 ns:influence.influence_node.influenced M2 .\n?x0 ns:{MARRIED} ?x1 .\n?x1 a ns:film.cinematographer .\n"
        "FILTER ( ?x0 != ?x1 )\n}",
    ),
    (
        "Who directed M0 and M1's sequel",
        "SELECT DISTINCT ?x0 WHERE {\n?x0 a ns:people.person .\n?x0 ns:film.director.film ?x1 .\n"
        "?x0 ns:film.director.film M0 .\n?x1 ns:film.film.prequel M1\n}",
    ),
    (
        "Was M0 directed and edited by M1 and M2",
        # in no order
        "SELECT count(*) WHERE {\nM0 ns:film.film.edited_by M2 .\nM0 ns:film.film.edited_by M1 .\n"
        "M0 ns:film.film.directed_by M2 .\nM0 ns:film.film.directed_by M1\n}",
    ),
    (
        "Which Italian man did M0 influence",
        "SELECT DISTINCT ?x0 WHERE {\n?x0 ns:influence.influence_node.influenced_by M0 .\n"
        "?x0 ns:people.person.gender ns:m.05zppz .\n?x0 ns:people.person.nationality ns:m.03rjj\n}",
    ),
]
INDICES = {"trainIdxs": [3, 0], "devIdxs": [1], "testIdxs": [2]}


def write_cfq(folder, config="mcd1", items=None, **indices):
    """An archive as Google's: every item has more than a question and a query."""
    items = QUESTIONS if items is None else items
    content = [
        {
            "complexityMeasures": {"questionTemplate": '{ [ \\" é'},
            "questionPatternModEntities": question,
            "ruleTree": {"ruleId": "x", "subTrees": [{"a": [1, 2.5, None, True]}, "}]"]},
            "sparqlPatternModEntities": query,
        }
        for question, query in items
    ]
    (folder / "splits").mkdir(parents=True, exist_ok=True)
    (folder / "dataset.json").write_text(json.dumps(content, indent=1))
    (folder / "splits" / f"{config}.json").write_text(json.dumps({**INDICES, **indices}))
    return folder


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def write_parallel(folder, pairs):
    """`<stem>.en` and `<stem>.de` of the pairs of each stem."""
    for stem, texts in pairs.items():
        for side, language in enumerate(("en", "de")):
            write_lines(folder / f"{stem}.{language}", [pair[side] for pair in texts])
    return folder


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path
