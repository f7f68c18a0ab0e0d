"""Tools of the suite: tests that a change needs, hunts for flaky tests, floors of coverage, the check of the changelog.

`bin/test.sh` and the hooks of a commit call them. They do not import the product.
"""
