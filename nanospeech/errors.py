"""Errors: everything nanospeech raises for a user's mistake. Our own bugs are assertions."""


class NanospeechError(Exception):
    """Base of all errors below; the CLI prints its message on one line and exits with 2."""


class InputError(NanospeechError, ValueError):
    """A text, option, reference recording or path that cannot be used as given."""


class VoiceError(InputError):
    """Files of a voice that cannot be used; it names them, which a server's client may not know."""


class CheckpointError(NanospeechError):
    """A release folder, checkpoint or config that is missing, damaged or of another model."""


class BackendError(NanospeechError):
    """A backend, device or optional package that is not there; the message says how to get it."""


class DataError(NanospeechError):
    """Training data from which nothing useful can be read."""


def reason(error: Exception) -> str:
    """Why a file cannot be read, without its path: the message that it goes into has that."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def require(module: str, extra: str = "", package: str = ""):
    """Imports an optional package, or raises BackendError with the pip command that installs it.

    Args:
        module: import name, for example "datasets".
        extra: the extra of nanospeech that brings it, for example "train".
        package: what pip installs instead, where no extra brings it.

    Returns:
        The imported module.
    """
    import importlib

    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name is not None and e.name.split(".")[0] != module.split(".")[0]:
            raise
        wanted = package or f"'nanospeech-tts[{extra}]'"
        raise BackendError(f"{module} is not installed; run: pip install {wanted}") from e
