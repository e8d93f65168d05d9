"""The two exceptions that a command turns into one sentence instead of a traceback."""


class UserError(ValueError):
    """A mistake in a recipe, on the command line or in the data; commands exit with status 2.

    The message names what was found, what was expected and what to do.
    """


class RunError(RuntimeError):
    """A fault while a run is under way (a non-finite loss, a full disk); commands exit with status 1.

    The message names what happened and where the last good state is.
    """
