"""Every GraphQL document is valid against the schema of the installed Dagster, and asks each error
for its message.
"""

import pytest
from graphql import FieldNode, GraphQLUnionType, InlineFragmentNode, parse, validate
from graphql.language import Visitor, visit
from graphql.utilities import TypeInfo, TypeInfoVisitor

from backfill_assets.dagster_client import documents
from tests.worlds.station import QUESTIONS

DOCUMENTS = QUESTIONS | {
    name: text
    for name, text in vars(documents).items()
    if name.isupper() and not name.startswith("_")
}


@pytest.fixture(scope="module")
def schema():
    # The import takes more than a second of each test process.
    from dagster_graphql.schema import create_schema

    return create_schema().graphql_schema


@pytest.mark.parametrize(
    "document", [pytest.param(text, id=name) for name, text in DOCUMENTS.items()]
)
def test_a_document_is_valid_against_the_installed_schema(schema, document):
    assert validate(schema, parse(document)) == []


@pytest.mark.parametrize(
    "document", [pytest.param(text, id=name) for name, text in DOCUMENTS.items()]
)
def test_every_type_that_can_come_back_is_asked_something(schema, document):
    """`... on Error` misses some of the error types, and an answer of a type not asked for says
    nothing at all.
    """
    info = TypeInfo(schema)
    missed = []

    class Unions(Visitor):
        def enter_field(self, node: FieldNode, *_: object) -> None:
            kind = info.get_type()
            kind = getattr(kind, "of_type", kind)
            if (
                isinstance(kind, GraphQLUnionType)
                and node.selection_set
                and kind.name != "DagsterRunEvent"
            ):
                parts = node.selection_set.selections
                asked = {
                    p.type_condition.name.value
                    for p in parts
                    if isinstance(p, InlineFragmentNode) and p.type_condition
                }
                missed.extend(sorted({t.name for t in kind.types} - asked - PLAIN))

    visit(parse(document), TypeInfoVisitor(info, Unions()))
    assert missed == []


# Our tables have one time dimension; of the other shapes nothing is asked.
PLAIN = {"DefaultPartitionStatuses", "MultiPartitionStatuses"}
