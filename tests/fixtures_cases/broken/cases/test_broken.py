"""A folder of cases whose imports fail, as with a wrong environment."""

import a_module_that_nobody_has  # noqa: F401
