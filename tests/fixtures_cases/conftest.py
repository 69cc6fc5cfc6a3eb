"""The folders below are cases for workers under test, not tests of this repository."""

collect_ignore_glob = ["*"]
