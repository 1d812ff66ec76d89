"""Queries of Compositional Freebase Questions: what is written for them, and that nothing of them is lost."""

from itertools import product
from random import Random

import pytest
from sequence_files import MARRIED, QUESTIONS

from hf_recurrent.benchmarks.cfq.benchmark import make_example, spaced_question
from hf_recurrent.benchmarks.cfq.sparql import (
    INVERSES,
    Triple,
    grouped,
    normalize_inverses,
    parse,
    plain,
    spaced,
)

# what the pre-processing of Zheng and Lapata's published code writes for QUESTIONS
GROUPED = [
    "SELECT count ( * ) WHERE { ?x0 a people.person . ?x0 influence.influence_node.influenced M1 M2 . "
    f"?x0 {MARRIED} ?x1 . ?x1 a film.cinematographer . FILTER ( ?x0 != ?x1 ) }}",
    "SELECT DISTINCT ?x0 WHERE { ?x0 a people.person . ?x0 film.director.film ?x1 M0 . ?x1 film.film.prequel M1 }",
    "SELECT count ( * ) WHERE { M0 film.film.directed_by film.film.edited_by M1 M2 }",
    "SELECT DISTINCT ?x0 WHERE { ?x0 influence.influence_node.influenced_by M0 . ?x0 people.person.gender m_05zppz . "
    "?x0 people.person.nationality m_03rjj }",
]
NORMALIZED = [
    GROUPED[0],
    GROUPED[1],
    "SELECT count ( * ) WHERE { M1 M2 film.director.film film.editor.film M0 }",
    "SELECT DISTINCT ?x0 WHERE { ?x0 people.person.gender m_05zppz . ?x0 people.person.nationality m_03rjj . "
    "M0 influence.influence_node.influenced ?x0 }",
]


def queries(count=300):
    """Random queries of many triples over few names, so that they fall into groups."""
    rng = Random(0)
    predicates = [*list(INVERSES)[:3], *list(INVERSES.values())[:3], MARRIED]
    names = ["M0", "M1", "?x0", "?x1"]
    triples = [" ".join(parts) for parts in product(names, predicates, names)]
    triples += [f"{name} a {kind}" for name in names[2:] for kind in ("people.person", "film.actor")]
    triples += ["?x0 people.person.gender m_02zsn", "?x1 people.person.gender m_02zsn"]
    for _ in range(count):
        clauses = rng.sample(triples, rng.randint(1, 12))
        if rng.random() < 0.3:
            clauses.insert(rng.randint(0, len(clauses)), "FILTER ( ?x0 != M1 )")
        yield f"SELECT count ( * ) WHERE {{ {' . '.join(clauses)} }}"


@pytest.mark.parametrize("place", range(len(QUESTIONS)))
def test_targets_are_those_of_the_published_code(place):
    question, query = QUESTIONS[place]
    row = make_example(question, query, True, False, "here")
    assert row["target"] == GROUPED[place]
    normalized = make_example(question, query, True, True, "here")
    assert normalized["target"] == NORMALIZED[place]
    assert row["num_triples"] == normalized["num_triples"] == query.count("\n") - 1 - query.count("FILTER")
    assert row["target_length"] == len(GROUPED[place].split())
    untouched = make_example(question, query, False, False, "here")
    assert untouched["target"] == " ".join(query.split()).replace("count(*)", "count ( * )").replace(
        " ns:", " "
    ).replace(" m.", " m_")


def test_a_question_is_cut_at_punctuation():
    row = make_example("Was M0's  co-star M1?", QUESTIONS[2][1], True, False, "here")
    assert row["source"] == "Was M0 ' s co - star M1 ?"
    assert row["length"] == 9
    assert spaced_question("a (b),c") == "a ( b ) , c"


def test_only_prefixes_of_words_are_dropped():
    assert spaced("SELECT count(*) WHERE {\nM0 ns:a.b|ns:c.d ns:m.0_x\n}") == (
        "SELECT count ( * ) WHERE { M0 a.b|ns:c.d m_0_x }"
    )


def crossed(group):
    """The triples that a group of the queries above stands for."""
    words = group.split()
    places = [i for i, word in enumerate(words) if not word.startswith(("M", "?", "m_"))]
    start, end = (places[0], places[0] + 1) if "a" in words else (places[0], places[-1] + 1)
    return product(words[:start], words[start:end], words[end:])


def test_grouping_keeps_the_set_of_triples():
    saved = 0
    for text in queries():
        query = parse(text)
        assert plain(query) == text
        written = grouped(query)
        saved += len(text.split()) - len(written.split())
        clauses = written.partition(" { ")[2].removesuffix(" }").split(" . ")
        assert clauses == sorted(clauses)
        triples = [triple for clause in clauses if "FILTER" not in clause for triple in crossed(clause)]
        assert sorted(triples) == sorted(set(query.triples))
    assert saved > 500


def test_ten_inverses():
    assert len(INVERSES) == 10
    assert not set(INVERSES) & set(INVERSES.values())
    assert len(set(INVERSES.values())) == 10
    for predicate, inverse in INVERSES.items():
        query = parse(f"SELECT ?x0 WHERE {{ ?x0 {predicate} M1 . FILTER ( ?x0 != M1 ) . ?x0 {inverse} M2 }}")
        normalized = normalize_inverses(query)
        assert normalized.triples == (Triple("M1", inverse, "?x0"), Triple("?x0", inverse, "M2"))
        assert normalized.filters == query.filters
        assert normalize_inverses(normalized) == normalized


@pytest.mark.parametrize(
    "text",
    ["", "SELECT ?x0 WHERE { M0 a.b M1 } .", "SELECT ?x0 WHERE { }", "SELECT ?x0 WHERE { M0 a.b M1 . . M0 a.b M2 }"],
)
def test_texts_that_are_no_queries(text):
    with pytest.raises(ValueError, match="expected "):
        parse(text)


def test_a_dot_behind_the_last_clause_is_none():
    assert parse("SELECT ?x0 WHERE { M0 a.b M1 . }") == parse("SELECT ?x0 WHERE { M0 a.b M1 }")
