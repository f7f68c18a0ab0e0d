"""Imports of a changed file: those of the cluster's operators come in, old ones go when nothing uses them any more."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_flinklike.migrate.edits import Edit, Source, remove_segments
from airflow_flinklike.migrate.imports import Import, ImportStatement, dotted
from airflow_flinklike.migrate.model import Kind
from airflow_flinklike.migrate.tree import Tree

_NEW = {
    Kind.SPARK_SUBMIT: ("airflow_flinklike.operators.submit", "FlinklikeSubmitOperator"),
    Kind.LIVY: ("airflow_flinklike.operators.submit", "FlinklikeSubmitOperator"),
    Kind.SPARK_SQL: ("airflow_flinklike.operators.sql", "FlinklikeSqlOperator"),
    Kind.PYSPARK: ("airflow_flinklike.decorators.flinklike", "flinklike_task"),
}


@dataclass(frozen=True, eq=False, slots=True)
class Reference:
    """An expression that gets another name."""

    node: ast.expr
    kind: Kind


def new_names(kind: Kind) -> tuple[str, str]:
    """The module and the name that take the place of an operator."""
    return _NEW[kind]


def taken_names(tree: Tree) -> frozenset[str]:
    """New names that the file uses for something else already."""
    own = {f"{module}.{name}" for module, name in _NEW.values()}
    names = {name for _, name in _NEW.values()}
    imported = {one.local for one in tree.imports.imports if one.local in names and one.full not in own}
    defined = {node.name for node in tree.nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    stored = {node.id for node in tree.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(imported | (names & (defined | stored)))


def import_edits(source: Source, tree: Tree, references: Iterable[Reference]) -> list[Edit]:
    """Edits of the import statements, given the expressions that are renamed."""
    return list(_ImportEdits(source, tree, [*references]).edits())


class _ImportEdits:
    def __init__(self, source: Source, tree: Tree, references: list[Reference]) -> None:
        self._source = source
        self._tree = tree
        self._references = references
        self._renamed = {reference.node for reference in references}
        self._texts = {
            node.value for node in tree.nodes if isinstance(node, ast.Constant) if isinstance(node.value, str)
        }

    def edits(self) -> Iterator[Edit]:
        wanted: dict[ImportStatement, list[str]] = {}
        unused: dict[ImportStatement, list[Import]] = {}
        for one in self._tree.imports.imports:
            mine = [reference for reference in self._references if one in self._importers(reference.node)]
            if not mine:
                continue
            lines = [f"from {module} import {name}" for module, name in {new_names(each.kind) for each in mine}]
            wanted.setdefault(one.statement, []).extend(lines)
            if not self._is_used(one):
                unused.setdefault(one.statement, []).append(one)
        present: set[tuple[ast.AST | None, str]] = {
            (self._block(one.statement), f"from {one.statement.module} import {one.alias.name}")
            for one in self._tree.imports.imports
            if isinstance(one.statement, ast.ImportFrom) and one.alias.asname is None
        }
        for statement in sorted(wanted, key=lambda node: (node.lineno, node.col_offset)):
            block = self._block(statement)
            lines = sorted({line for line in wanted[statement] if (block, line) not in present})
            present |= {(block, line) for line in lines}
            yield from self._of_statement(statement, lines, unused.get(statement, []))

    def _block(self, statement: ast.stmt) -> ast.AST | None:
        """What a statement stands in: of a try, each part is a block of its own."""
        parent = self._tree.parents[statement]
        is_plain = isinstance(parent, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.With)
        return parent if is_plain else statement

    def _importers(self, node: ast.expr) -> list[Import]:
        """The imports that give an expression its meaning."""
        near = self._tree.imports_in_reach(node)
        return [one for one in near if _fits(one, node)] or near

    def _is_used(self, one: Import) -> bool:
        """True if another expression, or a text such as those of `__all__`, has the name."""
        if one.local in self._texts:
            return True
        if isinstance(one.statement, ast.Import) and one.alias.asname is None and self._has_others(one):
            return any(path.startswith(f"{one.alias.name}.") for path in self._chains(one))
        return any(True for _ in self._chains(one))

    def _has_others(self, one: Import) -> bool:
        """True if another `import` of the file gives the same first name."""
        return any(other.local == one.local and other is not one for other in self._tree.imports.imports)

    def _chains(self, one: Import) -> Iterator[str]:
        """The expressions that begin with an imported name and keep it, as `a.b.c` for `a`."""
        for node in self._tree.nodes:
            if isinstance(node, ast.Name) and node.id == one.local and one in self._tree.imports_in_reach(node):
                chain: ast.expr = node
                while chain not in self._renamed and isinstance(parent := self._tree.parents[chain], ast.Attribute):
                    chain = parent
                if chain not in self._renamed:
                    yield dotted(chain)

    def _of_statement(self, statement: ImportStatement, lines: list[str], unused: list[Import]) -> Iterator[Edit]:
        source = self._source
        start, end = source.span(statement)
        indent = source.indent(start)
        rest = source.text[end : source.line_end(max(start, end - 1))].strip()
        is_alone = indent is not None and (not rest or rest.startswith("#"))
        separator = f"{source.newline}{indent}" if is_alone else "; "
        if len(unused) == len(statement.names):
            yield from self._instead(statement, separator.join(lines))
            return
        if unused:
            yield from self._without(statement, unused)
        if lines:
            # Behind the whole line, so that a comment there stays with its import.
            position = source.line_end(end - 1) if is_alone else end
            text = "".join(f"{indent}{line}{source.newline}" for line in lines) if is_alone else "; " + "; ".join(lines)
            if is_alone and not source.text[:position].endswith(("\n", "\r")):
                text = source.newline + text
            yield Edit(position, position, text)

    def _instead(self, statement: ImportStatement, text: str) -> Iterator[Edit]:
        """Put the new import there, or nothing where the block has it already; a comment in brackets stays."""
        source = self._source
        start, end = source.span(statement)
        old = source.text[start:end]
        comments = [line[line.index("#") :].strip() for line in old.splitlines() if "#" in line]
        behind = "".join(f"  {comment}" for comment in comments)
        if text:
            yield Edit(start, end, text + behind)
            return
        line_end = source.line_end(end - 1)
        is_alone = source.indent(start) is not None and not source.text[end:line_end].strip() and not behind
        block = self._tree.parents[statement]
        if is_alone and len(getattr(block, "body", [])) > 1:
            yield Edit(source.line_start(start), line_end)
        else:
            yield Edit(start, end, "pass" + behind)

    def _without(self, statement: ImportStatement, unused: list[Import]) -> Iterator[Edit]:
        source = self._source
        start, end = source.span(statement)
        text = source.text[start:end]
        gone = [index for index, alias in enumerate(statement.names) if any(one.alias is alias for one in unused)]
        if text.rstrip().endswith(")"):
            yield from remove_segments(source, source.segments(source.bracket_after(start)), gone)
            return
        kept = [alias for index, alias in enumerate(statement.names) if index not in gone]
        names = ", ".join(source.text[slice(*source.span(alias))] for alias in kept)
        first, _ = source.span(statement.names[0])
        _, last = source.span(statement.names[-1])
        yield Edit(first, last, names)


def _fits(one: Import, node: ast.expr) -> bool:
    """True unless `import a.b` cannot be what gives `a.c.d` its meaning."""
    if isinstance(one.statement, ast.Import) and one.alias.asname is None:
        return dotted(node).startswith(one.alias.name + ".")
    return True
