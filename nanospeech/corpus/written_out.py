"""Written out: texts of recordings as the languages that they name read numbers and signs."""

from __future__ import annotations

import dataclasses

from nanospeech.text.languages import base_code
from nanospeech.text.sentences import prepare
from nanospeech.text.tokenizer import Tokenizer

from .layouts import Sample


def written_out(sample: Sample, tokenizer: Tokenizer) -> Sample:
    """A recording with its text as a model reads it, by the language that the recording names.

    A model of several languages has no other way to know it. Texts without a language are left as
    they are.

    Raises:
        InputError: it names what is no code of a language, or its text is not valid Unicode.
    """
    if (language := sample.extra.get("language")) in (None, ""):
        return sample
    own = tokenizer.with_language(base_code(str(language)))
    return dataclasses.replace(sample, text=prepare(sample.text, own))
