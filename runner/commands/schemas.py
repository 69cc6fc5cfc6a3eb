"""The files that people write, and the JSON schema of each, for editors."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from runner import matrix
from runner.signoff import policy_document


class SchemaOf(StrEnum):
    """A kind of file that has a schema."""

    MATRIX = "matrix"
    POLICY = "policy"
    WAIVERS = "waivers"

    @property
    def schema(self) -> dict[str, Any]:
        """As plain data."""
        if self is SchemaOf.MATRIX:
            return matrix.json_schema()
        models: dict[SchemaOf, type[BaseModel]] = {
            SchemaOf.POLICY: policy_document.Document,
            SchemaOf.WAIVERS: policy_document.Waivers,
        }
        return policy_document.json_schema(models[self], str(self))
