"""Errors that are not faults of the code."""


class DataError(ValueError):
    """Data that cannot be used, or that params.yaml asks too much of.

    Says what, where, and the key of params.yaml to change where one decides it: it is shown without a traceback.
    """


class ServerError(DataError):
    """A server that does not answer, or not as it should. Names the endpoint, the request and what was said."""


EXPECTED = (
    DataError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
    FloatingPointError,
)
"""Errors that speak of the data, the folders and the parameters, not of the code: a program ends with their line. A
FloatingPointError is a training whose loss is no number any more."""
