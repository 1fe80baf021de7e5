"""``subgrad bench``: speed and memory against torch."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subgrad.cli.arguments import Parser, file, new_command, takes_convention, whole, write
from subgrad.extras import missing

if TYPE_CHECKING:
    import torch

    from subgrad.bench.measure import Benchmark
    from subgrad.bench.rows import Row

DTYPES = ("float32", "float64", "bfloat16", "float16")
PICTURES = ("svg", "png")
LEAST, MOST = 4, 2**40  # entries: selections are of two by two at least, and no machine has a tensor of so many


def add(commands: Any) -> None:
    bench = new_command(
        commands,
        "bench",
        "speed and memory against torch, side by side in one run",
        "Measure the forward, the backward and the memory of operators under a convention against torch's own, by "
        "turns and in processes of their own, and hold both against what a copy of as many entries takes.",
        "subgrad bench --rows clamp relu --sizes 1048576 --repeats 8",
        "subgrad bench --device cuda --dtypes bfloat16,float32 --sizes 268435456 --json record.json",
    )
    bench.add_argument("--device", type=_device, default="cpu", metavar="cpu|cuda", help="(default: %(default)s)")
    bench.add_argument("--rows", type=_row, nargs="+", default=[], metavar="ROW", help="some rows (default: all)")
    bench.add_argument(
        "--sizes", type=_sizes, default="4096,1048576", metavar="N[,N...]", help="entries (default: %(default)s)"
    )
    bench.add_argument(
        "--dtypes",
        type=_dtypes,
        default="float32",
        metavar="DTYPE[,DTYPE...]",
        help=f"some of {', '.join(DTYPES)} (default: %(default)s)",
    )
    bench.add_argument("--compiled", action="store_true", help="both under torch.compile too")
    bench.add_argument(
        "--again", action="store_true", help="torch once more, in one more process: how far apart equal things are"
    )
    bench.add_argument(
        "--plain", action="store_true", help="in processes as they are started, with the allocator as it comes"
    )
    bench.add_argument(
        "--repeats",
        type=_repeats,
        default=24,
        metavar="N",
        help="turns of each, of which medians (default: %(default)s)",
    )
    bench.add_argument("--json", type=file, metavar="FILE", help="store the record")
    bench.add_argument("--picture", type=_picture, metavar="FILE.svg|png", help="draw each backward against its limit")
    bench.add_argument("--show", type=_record, metavar="RECORD.json", help="a stored record, with nothing measured")
    bench.set_defaults(command=_bench, parser=bench)
    takes_convention(bench)


def _device(text: str) -> str:
    if text not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"{text!r} is no device to measure on: cpu or cuda")
    if text == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise argparse.ArgumentTypeError("torch finds no CUDA device here: only cpu")
    return text


def _row(text: str) -> Row:
    from subgrad.bench.rows import rows

    try:
        (row,) = rows([text])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return row


def _sizes(text: str) -> list[int]:
    return list(dict.fromkeys(whole(each, LEAST, MOST) for each in text.split(",")))


def _repeats(text: str) -> int:
    return whole(text, 1, 1000)


def _dtypes(text: str) -> list[torch.dtype]:
    import torch

    unknown = [name for name in text.split(",") if name not in DTYPES]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown dtype {unknown[0]!r}. Known: {', '.join(DTYPES)}")
    return list(dict.fromkeys(getattr(torch, name) for name in text.split(",")))


def _picture(text: str) -> Path:
    if Path(text).suffix[1:] not in PICTURES:
        raise argparse.ArgumentTypeError(f"{text!r} is no picture: name it .{' or .'.join(PICTURES)}")
    return file(text)


def _record(text: str) -> Benchmark:
    from subgrad.bench.measure import Benchmark

    try:
        record = Benchmark.from_json(json.loads(Path(text).read_text()))
        times = [each.milliseconds for each in record.copies]
        times += [time for each in record.timings for time in (each.forward, each.backward, each.both)]
        if not all(time > 0 for time in times) or not {each.dtype for each in record.copies} <= set(DTYPES):
            raise ValueError
    except OSError as error:
        raise argparse.ArgumentTypeError(f"can't open {text!r}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise argparse.ArgumentTypeError(f"{text!r} is no record that subgrad bench --json wrote") from None
    return record


def _bench(options: argparse.Namespace) -> int:
    from subgrad.report.bench import has_limit, picture

    if options.picture and find_spec("matplotlib") is None:  # now, rather than when all is measured
        print(missing("subgrad bench draws its picture with", "matplotlib"), file=sys.stderr)
        return 2
    _refuse_what_does_not_go_together(options)
    names = {each.row for each in options.show.timings} if options.show else {row.name for row in _rows(options)}
    if options.picture and not any(map(has_limit, names)):
        options.parser.error("argument --picture: none of these rows has a limit to draw: entrywise rows have one")
    record = options.show or _measured(options)
    if not record.timings:
        print("subgrad bench: there is nothing to show: no row was measured.", file=sys.stderr)
        return 1
    if options.picture:
        write(options.picture, picture(record, options.picture.suffix[1:]))
    _print(record)
    return 0


def _print(record: Benchmark) -> None:
    """As rich tables, or the same in plain text without rich."""
    from subgrad.report.bench import plain, summary, tables

    try:
        from rich.console import Console
    except ModuleNotFoundError:
        print("\n\n".join((*plain(record), summary(record))))
        return
    # Lines are not broken where output is no terminal.
    console = Console(width=None if sys.stdout.isatty() else 1000)
    for table in tables(record):
        console.print(table)
    console.print(summary(record), highlight=False, markup=False)


def _measured(options: argparse.Namespace) -> Benchmark:
    import torch

    parser: Parser = options.parser
    try:
        return _measure(options)
    except RuntimeError as error:
        # A CPU that cannot allocate has no error of its own.
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        parser.error(f"argument --sizes: too large for the memory here: {str(error).splitlines()[0]}")


def _refuse_what_does_not_go_together(options: argparse.Namespace) -> None:
    if not options.show:
        return
    usual = options.parser.parse_args([])
    measuring = ("device", "rows", "sizes", "dtypes", "convention", "compiled", "again", "plain", "repeats", "json")
    for name in measuring:
        if getattr(options, name) != getattr(usual, name):
            options.parser.error(
                f"argument --show: shows what is stored; --{name} is for measuring, --picture for both"
            )


def _rows(options: argparse.Namespace) -> list[Row]:
    from subgrad.bench.rows import rows

    return list({row.name: row for row in options.rows or rows()}.values())


def _measure(options: argparse.Namespace) -> Benchmark:
    """Row after row is measured and, with ``--json``, written: what there is then is kept if that is cut off."""
    from subgrad.bench.measure import AGAIN, COMPILED, CONTENDERS, benchmark, rounds

    rows = _rows(options)
    contenders = (*CONTENDERS, *(COMPILED if options.compiled else ()), *((AGAIN,) if options.again else ()))
    steps = len(rows) * len(options.sizes) * len(options.dtypes)
    said: list[str] = []
    with _bar(steps * len(rounds(options.repeats, options.device, contenders))) as bar:

        def tell(message: str) -> None:
            said.append(message)
            bar.tell(message)

        def keep(record: Benchmark) -> None:
            bar.advance()
            if options.json and record.timings:
                write(options.json, f"{json.dumps(record.to_json(), indent=1)}\n".encode())

        record = benchmark(
            rows,
            options.sizes,
            options.dtypes,
            device=options.device,
            like=options.convention,
            contenders=contenders,
            repeats=options.repeats,
            plain=options.plain,
            command=options.line,
            progress=tell,
            measured=keep,
        )
    _name_what_is_missing(record, rows, said)
    return record


def _name_what_is_missing(record: Benchmark, rows: list[Row], said: list[str]) -> None:
    """The rows that failed, with what the measuring said of them."""
    found = {(each.row, each.dtype, each.size) for each in record.timings}
    for copy in record.copies:
        for row in rows:
            if (row.name, copy.dtype, copy.size) not in found:
                why = [each for each in said if each.startswith(f"{row.name}: {copy.dtype}")]
                print(f"not measured: {row.name}, {copy.size:,} {copy.dtype}", *why[:1], sep="\n  ", file=sys.stderr)


class _Bar:
    """What is measured and how far it is, on no terminal or without rich: nowhere."""

    def tell(self, message: str) -> None: ...

    def advance(self) -> None: ...


class _Moving(_Bar):
    """The same, on a terminal."""

    def __init__(self, progress: Any, total: int):
        self._progress = progress
        self._task = progress.add_task("measuring", total=total)

    def tell(self, message: str) -> None:
        self._progress.update(self._task, description=message)

    def advance(self) -> None:
        self._progress.advance(self._task)


@contextmanager
def _bar(total: int) -> Generator[_Bar]:
    if sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import Progress
        except ModuleNotFoundError:
            pass
        else:
            with Progress(console=Console(stderr=True), transient=True) as progress:
                yield _Moving(progress, total)
            return
    yield _Bar()
