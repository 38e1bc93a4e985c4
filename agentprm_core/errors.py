"""The one kind of error that is not a fault of the code."""


class DataError(ValueError):
    """Data that cannot be used, or that params.yaml asks too much of.

    Says what, where, and the key of params.yaml to change where one decides it: it is shown without a traceback.
    """
