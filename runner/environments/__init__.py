"""What a cell runs in: a venv of this machine or a Docker image, both built from a lock and our vLLM plugin."""

from runner.environments.command import cli_base, cli_build, cli_clean, cli_hash, cli_list, cli_pin
from runner.environments.image import Image, ensure_image
from runner.environments.recipe import Recipe, recipe_for, shipped
from runner.environments.venv import LocalEnvironment, ensure_local

__all__ = [
    "Image",
    "LocalEnvironment",
    "Recipe",
    "cli_base",
    "cli_build",
    "cli_clean",
    "cli_hash",
    "cli_list",
    "cli_pin",
    "ensure_image",
    "ensure_local",
    "recipe_for",
    "shipped",
]
