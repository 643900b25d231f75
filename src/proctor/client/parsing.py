"""What a server says in JSON, as the models of a client, and what a client says as JSON.

Rule 1: what does not fit is a ValidationError that names the place, never a guess.
Rule 2: what travels beside an observation is joined with it here and nowhere else.
"""

from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw
from pydantic import BaseModel
from pydantic import ValidationError as ModelError

from proctor.errors import ValidationError
from proctor.models.control import Seen

ModelT = TypeVar("ModelT", bound=BaseModel)
WORDS: Final = {True: b"true", False: b"false"}


def observation_text(seen: Seen) -> bytes:
    """Return the JSON of a whole observation: what is inside, and what travelled beside it.

    A server without `hello` says only `done`: then it is taken for `terminated`.
    """
    inside = bytes(seen.observation)
    if inside[:1] != b"{" or inside[-1:] != b"}":
        raise ValidationError("the server's observation is no object", expected="a JSON object")
    terminated = seen.terminated if isinstance(seen.terminated, bool) else seen.done
    truncated = seen.truncated if isinstance(seen.truncated, bool) else False
    # Ours come last and hold if the object inside has such keys as well; but metadata may be inside (OpenEnv's are).
    fields = inside[1:-1].strip()
    return b'{"metadata":{},%b"reward":%b,"terminated":%b,"truncated":%b%b}' % (
        fields + b"," if fields else b"",
        b"null" if seen.reward is None else repr(seen.reward).encode(),
        WORDS[terminated],
        WORDS[truncated],
        b',"metadata":%b' % seen.metadata if isinstance(seen.metadata, Raw) else b"",
    )


def json_of(value: Any) -> bytes:
    """Return a value as JSON, or a ValidationError."""
    try:
        return msgspec.json.encode(value)
    except TypeError as problem:
        raise ValidationError(f"this cannot be said in JSON: {problem}", expected="JSON values") from None


def read_model(model: type[ModelT], text: bytes | Raw, word: str) -> ModelT:
    """Return what the server said as a model; `word` is what it is called."""
    try:
        return model.__pydantic_validator__.validate_json(bytes(text))  # type: ignore[no-any-return]
    except ModelError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        raise ValidationError(
            f"the server's {word} does not fit {model.__name__}: {where}: {first['msg']}",
            expected="a client whose types match the server's",
        ) from None
