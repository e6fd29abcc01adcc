"""Messages of a cockpit's page (shore): fields and ranges, all checked before any of them acts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raglab.store.files import Where, input_error, read_text, shown_value
from raglab.store.policies import MAX_POLICY_BYTES, Policy
from raglab.store.strict_yaml import load_yaml
from raglab.words.characters import is_unicode, visible

LARGEST = 2.0**53  # of a number: past it a browser counts in steps of two
SUFFIXES = (".yaml", ".yml")
MOST_FILE = 100  # characters of a file's name
# of the same; a file system takes 255, and a new file has a longer name until it is whole
MOST_FILE_BYTES = 200
_NOT_PLAIN = frozenset('/\\:*?"<>|')

Text = Annotated[str, Field(max_length=1_000)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]


class Message(BaseModel):
    """What a page asks; `do` names it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    do: str


class SetMessage(Message):
    """Set a threshold to a value; null switches it off."""

    path: Text
    value: Whole | Number | None


class DropMessage(Message):
    """Set a threshold to a step of its axis; number: of the page that the axis was of."""

    path: Text
    step: Whole
    number: Whole = 0


class SwitchMessage(Message):
    """Switch a gate, or lock a threshold."""

    path: Text
    on: bool


class CostMessage(Message):
    """Change a cost."""

    label: Text
    outcome: Text
    value: Number


class FilterFields(BaseModel):
    """Which cases are listed; null is any."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    kind: Text | None = None
    label: Text | None = None
    decision: Text | None = None
    decided_by: Text | None = None
    slice: Annotated[list[Text], Field(min_length=2, max_length=2)] | None = None
    search: Text | None = None


class FilterMessage(Message):
    """List other cases."""

    filter: FilterFields


class PathMessage(Message):
    """Ask for the axis of a threshold."""

    path: Text


class CaseMessage(Message):
    """Open a case."""

    id: Text


class SaveMessage(Message):
    """Save the policy as a file of the notebook's folder."""

    file: Text = ""


MESSAGES: Mapping[str, type[Message]] = {
    "set": SetMessage,
    "drop": DropMessage,
    "switch": SwitchMessage,
    "lock": SwitchMessage,
    "cost": CostMessage,
    "filter": FilterMessage,
    "undo": Message,
    "redo": Message,
    "reset": Message,
    "ready": Message,
    "enter": PathMessage,
    "case": CaseMessage,
    "flips": CaseMessage,
    "save": SaveMessage,
    "report": Message,
    "certify": Message,
    "tune": Message,
    "stop": Message,
}


def checked(message: object) -> Message:
    """The message with all its fields checked.

    Raises:
      ValueError: it names nothing that a page may ask, or a field is unknown, missing, of another
        type or out of range.
    """
    name = message.get("do") if isinstance(message, Mapping) else None
    kind = MESSAGES.get(name) if isinstance(name, str) else None
    if kind is None or not isinstance(message, Mapping):
        msg = (
            f"a message must say what to do, one of {', '.join(MESSAGES)}, got "
            f"{visible(shown_value(name))}."
        )
        raise ValueError(msg)
    try:
        model = kind.model_validate({str(key): value for key, value in message.items()})
    except (ValidationError, RecursionError) as error:
        raise ValueError(_broken_rule(kind, str(name), error)) from None
    if not is_unicode(_texts(model.model_dump())):
        msg = f"a message {name} must be of whole characters, got half of a surrogate pair."
        raise ValueError(msg)
    return model


def _texts(value: Any) -> list[str]:  # noqa: ANN401 - a value of JSON
    """All texts in a value of JSON."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _broken_rule(kind: type[Message], name: str, error: ValidationError | RecursionError) -> str:
    """The first rule that a message breaks, on one line."""
    if isinstance(error, RecursionError):
        return f"a message {name} must be flat, got one that is nested too deep."
    first = error.errors(include_url=False, include_context=False)[0]
    # of a field's name, which has no place to be named, or of a value
    if first["type"] == "string_unicode":
        return f"a message {name} must be of whole characters, got half of a surrogate pair."
    path = ".".join(
        str(part)
        for part in first["loc"]
        if part in (*kind.model_fields, *FilterFields.model_fields)
    )
    path = path or str(first["loc"][-1])
    if first["type"] == "extra_forbidden":
        fields = ", ".join(kind.model_fields)
        return visible(
            f"a message {name} must have the fields {fields} alone, got {shown_value(str(path))}."
        )
    if first["type"] == "missing":
        return f"a message {name} must have {path}."
    rule = first["msg"][:1].lower() + first["msg"][1:]
    return visible(
        f"{path} of a message {name} must be right: {rule}, got {shown_value(first['input'])}."
    )


def plain_file(name: str, folder: Path) -> Path:
    """Path of a policy file in a folder; where there is a file already, it is a policy's.

    Args:
      name: a plain name; without a suffix it gets .yaml.

    Raises:
      ValueError: a name with parts of a path, odd characters, a leading dot, dash or tilde, or
        another suffix; one that is too long; a link, or a file that holds no policy.
    """
    rule = "a file must have a plain name in the notebook's folder, such as policy.yaml"
    # A name that begins with a dash is an option to whoever removes or copies all files of the
    # folder.
    is_plain = (
        bool(name) and name[0] not in ".-~" and name == name.strip() and name == visible(name)
    )
    is_short = len(name) <= MOST_FILE and len(name.encode("utf-8", "replace")) <= MOST_FILE_BYTES
    if not is_plain or not is_short or _NOT_PLAIN & set(name):
        msg = f"{rule}; got {visible(shown_value(name))}."
        raise ValueError(msg)
    path = folder / (name if Path(name).suffix else f"{name}.yaml")
    if path.suffix not in SUFFIXES:
        msg = f"{rule}: it ends in {' or '.join(SUFFIXES)}; got {shown_value(name)}."
        raise ValueError(msg)
    remedy = "choose another name"
    if path.is_symlink():
        raise input_error(Where(str(path)), "a policy must not be written through a link", remedy)
    if path.exists():
        rule = "a file must hold a policy to be written over"
        try:
            Policy.load(path)
            stated = load_yaml(read_text(path, MAX_POLICY_BYTES), str(path), "a policy")
        except (OSError, ValueError) as error:
            raise input_error(Where(str(path)), rule, remedy) from error
        # Notes alone may be anybody's file: a policy says something of a gate, too.
        if not set(stated) - {"notes"}:
            raise input_error(Where(str(path)), rule, remedy, "notes alone")
    return path
