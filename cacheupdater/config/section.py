"""The base of every section of the file: frozen, and without unknown keys. `models` and `feeds` build on it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every section."""

    apart: ClassVar[tuple[str, ...]] = ()
    """Keys of this section that the file knows and this model does not: others validate them."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
        ser_json_inf_nan="null",
    )
