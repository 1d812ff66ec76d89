"""SPARQL queries of Compositional Freebase Questions: plain, and with their triples grouped.

    plain       SELECT count ( * ) WHERE { M0 film.editor.film ?x0 . M1 film.editor.film ?x0 . ?x0 a film.film }
    grouped     SELECT count ( * ) WHERE { ?x0 a film.film . M0 M1 film.editor.film ?x0 }

A group `subjects predicates objects` stands for all triples of one of each. The groups are those of the pre-processing
by Zheng and Lapata (Disentangled Sequence to Sequence Learning for Compositional Generalization, 2022): first triples
that differ in their object alone come together, then those groups that differ in their subject alone, then those that
differ in their predicate alone.
"""

from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

# each predicate, and the one that means the same with subject and object exchanged
INVERSES: Mapping[str, str] = MappingProxyType(
    {
        "film.film.directed_by": "film.director.film",
        "film.film.edited_by": "film.editor.film",
        "film.film.executive_produced_by": "film.producer.films_executive_produced",
        "film.film.written_by": "film.writer.film",
        "film.film.produced_by|ns:film.film.production_companies": (
            "film.producer.film|ns:film.production_company.films"
        ),
        "film.film.distributors/ns:film.film_film_distributor_relationship.distributor": (
            "film.film_distributor.films_distributed/ns:film.film_film_distributor_relationship.film"
        ),
        "influence.influence_node.influenced_by": "influence.influence_node.influenced",
        "organization.organization.founders": "organization.organization_founder.organizations_founded",
        "organization.organization.acquired_by/ns:business.acquisition.acquiring_company": (
            "organization.organization.companies_acquired/ns:business.acquisition.company_acquired"
        ),
        "people.person.employment_history/ns:business.employment_tenure.company": (
            "business.employer.employees/ns:business.employment_tenure.person"
        ),
    }
)
_FILTER = "FILTER"

Name = TypeVar("Name", bound=Hashable)


class Triple(NamedTuple):
    subject: str
    predicate: str
    object: str


class Query(NamedTuple):
    """`head` are the words up to the brace; a clause is a triple, or the words of a filter."""

    head: str
    clauses: tuple[Triple | str, ...]

    @property
    def triples(self) -> tuple[Triple, ...]:
        return tuple(clause for clause in self.clauses if isinstance(clause, Triple))

    @property
    def filters(self) -> tuple[str, ...]:
        return tuple(clause for clause in self.clauses if isinstance(clause, str))


def spaced(query: str) -> str:
    """A query of the data set with single spaces between its words and without the prefixes `ns:` and `m.`.

    >>> spaced("SELECT count(*) WHERE {\\nM0 ns:people.person.gender ns:m.05zppz\\n}")
    'SELECT count ( * ) WHERE { M0 people.person.gender m_05zppz }'
    """
    words = (word.removeprefix("ns:") for word in query.replace("count(*)", "count ( * )").split())
    return " ".join(f"m_{word[2:]}" if word.startswith("m.") else word for word in words)


def parse(text: str) -> Query:
    """The parts of a plain query.

    Raises ValueError for a text that is no such query.
    """
    head, clauses = _clauses(text)
    for clause in clauses:
        if clause[0] != _FILTER and len(clause) != 3:
            raise ValueError(f"expected 'subject predicate object' or a filter, got {' '.join(clause)!r:.80}")
    return Query(head, tuple(" ".join(clause) if clause[0] == _FILTER else Triple(*clause) for clause in clauses))


def plain(query: Query) -> str:
    """The words of a query with its clauses as they are."""
    return _written(query.head, (clause if isinstance(clause, str) else " ".join(clause) for clause in query.clauses))


def normalize_inverses(query: Query) -> Query:
    """The query with each predicate of `INVERSES` replaced, its subject and object exchanged."""
    return query._replace(
        clauses=tuple(
            Triple(clause.object, INVERSES[clause.predicate], clause.subject)
            if isinstance(clause, Triple) and clause.predicate in INVERSES
            else clause
            for clause in query.clauses
        )
    )


def grouped(query: Query) -> str:
    """The words of a query with its triples in groups; parts of groups, groups and filters are sorted."""
    objects = _collected(((subject, predicate), thing) for subject, predicate, thing in query.triples)
    subjects = _collected(((predicate, things), subject) for (subject, predicate), things in objects.items())
    predicates = _collected(((things, names), predicate) for (predicate, things), names in subjects.items())
    groups = [
        " ".join([*sorted(names), *sorted(relations), *sorted(things)])
        for (things, names), relations in predicates.items()
    ]
    return _written(query.head, sorted([*groups, *query.filters]))


def _collected(pairs: Iterable[tuple[Name, str]]) -> dict[Name, tuple[str, ...]]:
    """The values of each key, in the order in which they come."""
    found: dict[Name, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


def _clauses(text: str) -> tuple[str, list[list[str]]]:
    """The words before the braces, and those of each clause between them."""
    words = text.split()
    if words.count("{") != 1 or words.count("}") != 1 or words[-1] != "}":
        raise ValueError(f"expected a query with one pair of braces, the last word the closing one, got {text!r:.80}")
    start = words.index("{")
    clauses: list[list[str]] = [[]]
    for word in words[start + 1 : -1]:
        if word == ".":
            clauses.append([])
        else:
            clauses[-1].append(word)
    if len(clauses) > 1 and not clauses[-1]:
        # SPARQL allows a dot after the last clause
        clauses.pop()
    if not all(clauses):
        raise ValueError(f"expected clauses with '.' between them, got {text!r:.80}")
    return " ".join(words[:start]), clauses


def _written(head: str, clauses: Iterable[str]) -> str:
    return f"{head} {{ {' . '.join(clauses)} }}"
