"""The command line: ``spyre-fx plan|tile|lower|run|draw|report FILE``.

FILE is a ``.pt2`` file made by ``torch.export.save``; ``run``, ``draw`` and ``report`` take the folder of a saved
bundle as well. ``docs/command_line.md`` shows all of it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

EXIT_OK, EXIT_REFUSED, EXIT_BUG, EXIT_STOPPED = 0, 2, 70, 130
ON_FOLDERS = ("run", "draw", "report")
TOTALS = ("dispatches", "hbm_bytes", "hbm_read", "hbm_written", "unique_hbm_bytes", "reread_bytes", "lx_bytes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error is one line on stderr.

    Returns the exit code: 0, 2 (the request cannot be followed), 70 (a bug here) or 130 (stopped from the keyboard).
    """
    options = _parser().parse_args(arguments)
    from spyre_fx.errors import InternalError, SpyreFxError

    try:
        with _quiet_torch():
            result = options.command(_checked(options))
        print(json.dumps(result, indent=2, default=str) if options.json else result["text"], flush=True)
    except KeyboardInterrupt:
        return _fail("stopped", EXIT_STOPPED)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except InternalError as error:
        return _fail(error, EXIT_BUG)
    except SpyreFxError as error:
        return _fail(error, EXIT_REFUSED)
    except OSError as error:
        return _fail(f"{error.filename or 'output'}: {error.strerror or error}", EXIT_REFUSED)
    except Exception as error:
        if options.debug:
            raise
        return _fail(f"a bug: {type(error).__name__}: {error} (--debug shows where)", EXIT_BUG)
    return EXIT_OK


class _Parser(argparse.ArgumentParser):
    """Says on one line what is wrong with the options, as for every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_REFUSED, f"{self.prog.split()[0]}: error: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="spyre-fx", description="Tile, lower, run and draw torch.export files.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command, text in (
        ("plan", _plan, "list the work items of a graph, with their cost"),
        ("tile", _tile, "tile a graph and show its loops"),
        ("lower", _lower, "generate the bundle and save it"),
        ("run", _run, "run a graph or a saved bundle on the simulated device"),
        ("draw", _draw, "write a picture of the graph, tiled if groups are given"),
        ("report", _report, "run, and show what each op and loop moved"),
    ):
        sub = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        sub.set_defaults(command=command)
        sub.add_argument(
            "file",
            type=Path,
            help="a .pt2 file" + (", or a bundle folder" if name in ON_FOLDERS else ""),
        )
        sub.add_argument("--json", action="store_true", help="print data instead of text")
        sub.add_argument("--debug", action="store_true", help="show where a bug is")
        sub.set_defaults(name=name, groups=None, auto=False)
        if name == "plan":
            continue
        choice = sub.add_mutually_exclusive_group()
        choice.add_argument("--groups", type=Path, metavar="JSON", help="a file that lists the groups to tile")
        choice.add_argument("--auto", action="store_true", help="let the cost model choose the groups")
        if name in ("lower", "draw"):
            sub.add_argument(
                "-o",
                "--output",
                type=Path,
                required=True,
                help="folder of the bundle" if name == "lower" else "x.svg, .html, .dot, .md or .txt",
            )
        if name == "draw":
            sub.add_argument("--depth", type=int, default=0, help="how many levels of folded boxes are opened")
            fold = argparse.BooleanOptionalAction
            sub.add_argument("--fold", action=fold, help="fold by module always, or never; else where it is long")
        if name == "run":
            sub.add_argument("-o", "--output", type=Path, help="a file for the results, written by torch.save")
        if name in ("run", "report"):
            sub.add_argument(
                "--inputs", type=Path, help="a tuple of tensors written by torch.save; else the file's examples"
            )
    return parser


def _checked(options: argparse.Namespace) -> argparse.Namespace:
    """Refuse a folder where a graph is needed, and groups for what is lowered already."""
    from spyre_fx.errors.options import COMMAND_FOLDER, COMMAND_LOWERED

    if options.file.is_dir():
        if options.name not in ON_FOLDERS:
            raise COMMAND_FOLDER(path=options.file, command=options.name, commands=", ".join(ON_FOLDERS))
        if options.groups or options.auto:
            raise COMMAND_LOWERED(option="--groups" if options.groups else "--auto", path=options.file)
    return options


def _plan(options: argparse.Namespace) -> dict[str, Any]:
    from spyre_fx.analysis.schedule import plan

    made = plan(_graph(options))
    return {"text": str(made), "plan": made.to_dict()}


def _tile(options: argparse.Namespace) -> dict[str, Any]:
    from spyre_fx.transforms.summary import summary

    made = summary(_tiled(options))
    return {"text": str(made), "loops": [vars(loop) for loop in made.loops]}


def _lower(options: argparse.Namespace) -> dict[str, Any]:
    bundle = _bundle(options)
    folder = bundle.save(options.output)
    return {"text": f"{bundle!r}\nsaved in {folder}", "folder": folder, "programs": len(bundle.programs)}


def _run(options: argparse.Namespace) -> dict[str, Any]:
    bundle, outputs = _executed(options)
    from torch.utils import _pytree as pytree

    lines = [_tensor_line(position, leaf) for position, leaf in enumerate(pytree.tree_leaves(outputs))]
    saved = [f"saved as {_saved(outputs, options.output)}"] if options.output else []
    return {"text": "\n".join([*lines, repr(bundle), *saved]), "outputs": lines}


def _saved(outputs: Any, path: Path) -> Path:
    import torch

    with path.open("wb") as file:
        torch.save(outputs, file)
    return path


def _report(options: argparse.Namespace) -> dict[str, Any]:
    from spyre_fx.codegen.bundle import Bundle

    if options.file.is_dir() and options.inputs is None:
        bundle = Bundle.load(options.file)
    else:
        bundle, _ = _executed(options)
    with _progress("measuring"):
        text = str(bundle.report())
    return {"text": text, **_measured(bundle)}


def _measured(bundle: Any) -> dict[str, Any]:
    """What the device counted, as numbers."""
    ops = [
        {"file": site.file, "op": site.op, "loops": site.loops, "dispatches": tally.dispatches, **asdict(tally.cost)}
        for site, tally in bundle.counters.sites.items()
    ]
    totals = {name: getattr(bundle.counters, name) for name in (*TOTALS, "lx_high_water", "cores")}
    return {"ops": ops, "totals": {**totals, "compulsory_bytes": bundle.argument_bytes}}


def _draw(options: argparse.Namespace) -> dict[str, Any]:
    from spyre_fx.codegen.bundle import Bundle
    from spyre_fx.viz.drawing import draw

    if options.file.is_dir():
        picture = draw(Bundle.load(options.file))
    else:
        graph = _graph(options)
        after = _tile_graph(graph, options) if options.groups or options.auto else None
        picture = draw(graph, after=after, depth=options.depth, fold=options.fold)
    path = picture.save(options.output)
    return {"text": f"{picture!r}\nsaved as {path}", "file": path}


def _executed(options: argparse.Namespace) -> tuple[Any, Any]:
    from spyre_fx.codegen.bundle import Bundle

    is_folder = options.file.is_dir()
    bundle = Bundle.load(options.file) if is_folder else _bundle(options)
    args, kwargs = _inputs(options)
    with _progress("running on the simulated device"):
        return bundle, bundle.run(*args, **kwargs)


def _bundle(options: argparse.Namespace) -> Any:
    from spyre_fx.codegen.lower import lower

    tiled = _tiled(options)
    with _progress("lowering"):
        return lower(tiled)


def _tiled(options: argparse.Namespace) -> Any:
    return _tile_graph(_graph(options), options)


def _tile_graph(graph: Any, options: argparse.Namespace) -> Any:
    from spyre_fx.transforms.tile import tile

    with _progress("tiling"):
        groups = _groups(graph, options)
        return tile(graph, groups) if groups else graph


def _groups(graph: Any, options: argparse.Namespace) -> Any:
    if options.groups:
        from spyre_fx.group_file import read_groups

        return read_groups(options.groups)
    if not options.auto:
        return []
    from spyre_fx.choosing import auto_groups
    from spyre_fx.target import Target

    return auto_groups(graph, Target())


def _graph(options: argparse.Namespace) -> Any:
    from spyre_fx.capture import capture

    with _progress("reading the graph"):
        return capture(options.file)


def _inputs(options: argparse.Namespace) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    from spyre_fx.errors.options import COMMAND_INPUT, NO_EXAMPLES

    if options.inputs is not None:
        try:
            given = torch.load(options.inputs, weights_only=True)
        except OSError:
            raise
        except Exception as error:  # torch.load raises many kinds for a file that it cannot read
            raise COMMAND_INPUT(path=options.inputs.name, problem=f"cannot be read ({type(error).__name__})") from None
        return (tuple(given) if isinstance(given, (tuple, list)) else (given,)), {}
    examples = None if options.file.is_dir() else torch.export.load(options.file).example_inputs
    if examples is None:
        raise NO_EXAMPLES(path=options.file.name)
    args, kwargs = examples
    return tuple(args), dict(kwargs)


def _tensor_line(position: int, leaf: Any) -> str:
    if not hasattr(leaf, "shape"):
        return f"result {position}: {leaf!r}"
    values = leaf.double().flatten() if leaf.numel() else None
    spread = "" if values is None else f", {values.min():.4g} to {values.max():.4g}"
    return f"result {position}: {list(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}{spread}"


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """Keep torch from printing a traceback of its own for a file that it cannot read."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _progress(text: str) -> Iterator[None]:
    """Say on a terminal what is going on, and take it back when it is done."""
    if not sys.stderr.isatty():
        yield
        return
    start = time.perf_counter()
    print(f"{text} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(f"\r{text}: {time.perf_counter() - start:.1f} s", file=sys.stderr)


def _fail(error: Any, code: int) -> int:
    print(f"spyre-fx: error: {' '.join(str(error).split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
