"""The watch of a session: armed, it costs next to nothing, and when a gradient is not finite it says why.

A small graph on the CPU that was made before is left as it is by backward, and walked once more if a gradient is not
finite: nothing else is looked at. Its memory goes when the program lets the graph go, or walks another one.

Before backward walks another graph on the CPU, the nodes in it that may have an infinite slope are asked, by what they
have saved. Where one has, or where backward is called on what is not finite itself, the walk is recorded node by node
as the program's backward makes it. Nodes that cannot be asked, such as functions with a backward of their own, are
looked at as they run, and what lies behind the first that is not finite is recorded.

Nothing is read from other devices before a step has ended. What backward does at such nodes is kept there until the
gradients are known to be finite, which is asked one step later, so that no device is waited for; of what lies around a
line nothing is known then. The step after one that was not explained is recorded node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from subgrad.apply import pass_kernels
from subgrad.apply.autograd_nodes import PLAIN, is_memory, values
from subgrad.apply.current_pass import Pass, here
from subgrad.apply.source_line import user_frame
from subgrad.audit import graphs
from subgrad.audit.backward import Backward
from subgrad.audit.call_site import Site
from subgrad.audit.modules import Modules
from subgrad.audit.nonfinite import advice
from subgrad.audit.nonfinite.finite import are_plainly_finite, is_finite, reached
from subgrad.audit.nonfinite.known_graphs import KnownGraphs, Seen
from subgrad.audit.nonfinite.lines import Lines
from subgrad.audit.nonfinite.noting import Noting
from subgrad.audit.nonfinite.owed import Owed
from subgrad.audit.nonfinite.poles import NOTED
from subgrad.audit.nonfinite.result import INFINITE, NAN, UNKNOWN, Nonfinite, Reached, Taken, merged
from subgrad.audit.nonfinite.structures import Structures
from subgrad.audit.nonfinite.tracing import Around, findings
from subgrad.audit.nonfinite.walks import Gradients, Walk
from subgrad.torch_internals.autograd import current_node

MOST = 16  # steps in which lines are noted because a graph was new
AGAIN = 256  # in one step of so many they are noted in any case
# Names tensors as the program does.
Naming = Callable[[Sequence[Tensor]], dict[str, Tensor]]


class Armed:
    """What a session has in force to see gradients become infinite or NaN.

    Attributes:
        wants_lines: the lines of all calls of the next step are to be noted.
        is_walking: a graph that the program has walked is walked once more.
    """

    def __init__(self, modules: Modules, name: Naming):
        self.wants_lines = True
        self._modules, self._name = modules, name
        self._graphs = KnownGraphs(() if modules.given is None else modules.given.parameters())
        self._structures = Structures()
        self._optimizers: set[int] = set()
        self._noting: Noting | None = None  # in force in the step that is running
        self._is_paused, self._notings = False, 0
        self._seen: Seen | None = None  # what is being walked
        self._walk: Walk | None = None
        self._held = Walk()
        self._hooks: list[Any] = []
        self.is_walking = False
        self._twice: tuple[Backward, list[Tensor]] | None = None  # what was walked in this step, and can be once more
        self._bad: set[int] = set()  # leaves whose gradients were not finite before
        self._step, self._recorded_to = 0, -1
        self._owed: list[Owed] = []
        self._found: dict[Any, Nonfinite] = {}

    @property
    def findings(self) -> tuple[Nonfinite, ...]:
        return merged(self._found.values())

    def add(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped: its parameters are looked at as well."""
        if id(optimizer) not in self._optimizers:
            self._optimizers.add(id(optimizer))
            self._graphs.add(each for group in optimizer.param_groups for each in group["params"])

    def noting(self, inner: Pass | None) -> Pass | None:
        """A step begins: the pass for it, which is another one where lines are to be noted."""
        is_wanted = self.wants_lines and (self._notings < MOST or self._step % AGAIN == 0)
        self.wants_lines, self._noting = (self._step + 1) % AGAIN == 0, None
        if not is_wanted:
            return inner
        self._notings += 1
        pass_kernels.install(NOTED)
        self._noting = Noting(self._modules, inner)
        return self._noting

    # Around a backward.

    def before(self, run: Backward) -> bool:
        """Record the whole walk, if that is known to be of use. Whether it is to leave what the nodes have saved."""
        roots = _roots(run)
        if run.is_ours or len(roots) < len(run.tensors):
            return False
        if self._twice is not None:
            self._free()
        if self._noting is not None and here.current is self._noting and not run.is_recorded:
            here.current, self._is_paused = self._noting.inner, True  # formulas of backward are no lines of the program
        is_plain = run.accumulates and not (run.inputs or run.is_kept or run.is_recorded)
        walks_twice = is_plain and self._noting is None and self._step > self._recorded_to
        self._seen = seen = self._graphs.see(roots, walks_twice)
        if self._bad and run.accumulates:
            known = [each for each in seen.leaves if id(each) in self._bad]
            self._bad -= {id(each) for each in known if each.grad is None or is_finite(each.grad)}
        if seen.is_small:
            self._twice = run, seen.leaves
            return True
        self.wants_lines = self.wants_lines or not (seen.is_known or self._noting is not None)
        if self._noting is not None:
            self._structures.learn(graphs.nodes(roots))
        is_wanted = self._step <= self._recorded_to or are_plainly_finite(roots) is False
        if is_wanted or self._are_steep(seen):
            self._walk = Walk(graphs.nodes(roots), is_whole=True)
        return False

    def _free(self) -> None:
        """A graph that was left as it was and another one in one step: what they share is freed, as torch does."""
        self._graphs.walk_once()
        self._walk_again(Walk())

    def _walk_again(self, walk: Walk) -> Walk:
        """The walk once more, recorded, after which nothing is left of it."""
        assert self._twice is not None
        (run, leaves), self._twice = self._twice, None
        self.is_walking = True
        try:
            torch.autograd.grad(run.tensors, leaves, run.cotangents, allow_unused=True)
        except Exception:  # written into since, as by an optimizer that steps in hooks; or a hook that raises
            pass
        finally:
            self.is_walking = False
            walk.close()
        return walk

    def _are_steep(self, seen: Seen) -> bool:
        """Whether any slope may be infinite. Nodes that cannot be asked, or not yet, are looked at as they run."""
        away = seen.graph.away
        with values():
            for number, (node, pole) in enumerate(seen.asked):
                if pole is not None and pole.when is not None and not pole.when(node):
                    continue
                if number in away:
                    self._hooks.append(node.register_hook(self._after_pole))
                    continue
                try:
                    tensor: Any = None if pole is None else pole.read(node)
                except RuntimeError:  # freed, or written into since, as backward will say
                    continue
                if pole is None or type(tensor) not in PLAIN:
                    self._hooks.append(node.register_hook(self._after_opaque))
                elif not is_on_host(tensor):
                    away.add(number)
                    self._hooks.append(node.register_hook(self._after_pole))
                elif tensor.numel() and pole.test(tensor, node):
                    return True
        return False

    def _after_pole(self, gradients: Gradients, cotangents: Gradients) -> None:
        """Called by backward, maybe in a thread of its own, on a device that is not waited for."""
        if self._walk is None:
            self._held.keep(current_node(), gradients, cotangents)

    def _after_opaque(self, gradients: Gradients, cotangents: Gradients) -> None:
        if self._walk is None and are_plainly_finite(each for each in gradients if each is not None) is False:
            self._walk = Walk()
            self._walk.follow(self._walk.add(current_node(), gradients, cotangents))

    def after(self, run: Backward, given: Sequence[Any]) -> None:
        """Look at what the walk has filled; ``given`` is what it returned."""
        if run.is_ours:  # inside one of the program's, of which `before` has been told
            return
        walk, self._walk = self._walk, None
        held, self._held = self._held, Walk()
        while self._hooks:
            self._hooks.pop().remove()
        if walk is not None:
            walk.close()
        seen, self._seen = self._seen, None
        if seen is None:
            return
        if self._is_paused:
            here.current, self._is_paused = self._noting, False
        leaves = [each for each in run.inputs if isinstance(each, Tensor)] or seen.leaves
        pairs = zip(leaves, [each.grad for each in leaves] if run.accumulates else given, strict=False)
        filled = [(leaf, one) for leaf, one in pairs if isinstance(one, Tensor)]
        if self._bad:
            filled = [(leaf, one) for leaf, one in filled if id(leaf) not in self._bad]
        if not are_plainly_finite(one for _, one in filled):
            filled = [(leaf, one) for leaf, one in filled if _can_be_read(one)]
            if not all(is_on_host(one) for _, one in filled):
                self._owed.append(Owed.of(run, walk or held, self._named(filled, seen), self._step, user_frame()))
            elif filled and self._twice is not None:
                walk = self._walk_again(Walk(graphs.nodes(_roots(run)), is_whole=True))
                self._explain_now(run, walk, filled)
            else:
                self._explain_now(run, walk or held, filled)

    # Explaining.

    def _explain_now(self, run: Backward, walk: Walk, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        named = self._name([each for each, _ in pairs])
        filled = {id(each): one for each, one in pairs}
        found = reached((name, filled[id(each)]) for name, each in named.items())
        if found and run.accumulates:
            self._bad |= {id(named[each.parameter]) for each in found}
        self._explain(run, walk, found, self._step, Site.of(user_frame()))

    def _explain(self, run: Backward, walk: Walk, bad: tuple[Reached, ...], step: int, site: Site) -> None:
        if not bad:
            return
        roots = _roots(run)
        are_finite = all(is_finite(each.detach()) for each in roots)
        are_given_finite = all(each is None or is_finite(each) for each in run.cotangents)
        nodes = graphs.nodes(roots)
        lines = Lines(nodes, self._structures.marks(nodes))
        found = findings(walk, Around(lines, site, step, bad, are_finite, are_given_finite))
        if not walk.is_whole and any(each.kind == UNKNOWN for each in found):
            self._recorded_to = self._step + 1
        for each in found:
            self._keep(each)

    def _keep(self, found: Nonfinite) -> None:
        """Once a step, and as one with what it is like whose lines were not known by then."""
        like = [each for each in self._found.values() if not each.is_located and each.is_like(found)]
        known = self._found.get(found.key) or next(iter(like), None)
        if known is None:
            self._found[found.key] = found
        elif known.last < found.step:
            del self._found[known.key]
            both = known.again(found)
            self._found[both.key] = both

    # Devices that are not waited for.

    def _named(self, pairs: Sequence[tuple[Tensor, Tensor]], seen: Seen) -> dict[str, Tensor]:
        """Gradients by the names of their leaves; these are looked up once for a graph that is made again."""
        key = tuple([id(leaf) for leaf, _ in pairs])
        known = seen.graph.names.get(key) if seen.is_known else None
        if known is None:
            filled = {id(leaf): one for leaf, one in pairs}
            named = self._name([leaf for leaf, _ in pairs])
            places = {identity: place for place, identity in enumerate(key)}
            known = seen.graph.names[key] = [(name, places[id(leaf)]) for name, leaf in named.items()]
            return {name: filled[id(leaf)] for name, leaf in named.items()}
        return {name: pairs[place][1] for name, place in known}

    def close(self, step: int, is_last: bool = False) -> None:
        """A step has ended: read what those before it are owed, or all of them in the end."""
        self._step, self._twice = step + 1, None
        self.settle(step + is_last)

    def settle(self, step: int | None = None) -> None:
        """Read what all steps are owed, or those before one."""
        ready = [each for each in self._owed if step is None or each.step < step]
        del self._owed[: len(ready)]  # they are in order
        for each in ready:
            self._explain(each.run, each.walk, each.reached(), each.step, each.site)

    # What optimizers are given.

    def take(self, taken: Taken, bad: Sequence[Reached]) -> None:
        """An optimizer takes a step with gradients that are not finite: why is known, or that nobody has seen it."""
        names = {each.parameter for each in bad}
        found = [each for each in self._found.values() if each.last == self._step] or [
            each for each in self._found.values() if names & {one.parameter for one in each.reached}
        ]
        became = NAN if any(each.became == NAN for each in bad) else INFINITE
        unseen = Nonfinite(self._step, UNKNOWN, became, taken.site, tuple(bad), last=self._step)
        for each in found or [replace(unseen, advice=advice.of(unseen, ()))]:
            self._found[each.key] = replace(each, taken=each.taken or taken)


def is_on_host(tensor: Tensor) -> bool:
    """Where reading waits for nothing."""
    return tensor.is_cpu


def _roots(run: Backward) -> list[Tensor]:
    """What backward was called on, where that can be looked at: no edge of a graph, and nothing inside a transform."""
    return [each for each in run.tensors if isinstance(each, Tensor) and _can_be_read(each)]


def _can_be_read(tensor: Tensor) -> bool:
    return is_memory(tensor) or tensor.layout is not torch.strided or hasattr(tensor, "to_local")
