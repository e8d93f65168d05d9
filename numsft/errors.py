"""The one exception that means "the user can mend this": commands print it and exit with status 2."""


class UserError(ValueError):
    """A mistake in a recipe, on the command line or in the data, said in one sentence.

    The message names what was found, what was expected and what to do. Commands print it on stderr without a
    traceback and exit with status 2.
    """
