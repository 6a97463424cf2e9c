"""graph.py: finds circles of files and of rooms (folders), and calls against the directions.

    python3 tests/graph.py [DIRECTIONS] < paths      prints "path:line: rule: what is wrong"
    python3 tests/graph.py --rooms                   prints the rooms of the tree, lowest first

DIRECTIONS is a file with the table of tidy.sh. A line of --rooms is the floor of a room, its name
and the rooms that it uses. Tested by tests/cli/cli_tidy.sh.

A file is all that has one name in one folder (x.c, x.h, x.def, ...). It uses another file if it
includes a part of it, or if it calls it: its code has a name that a .c of the other file makes
public (a function or data) and that is declared where the code can see it. A declaration uses
nothing. So a header without a .c of its own, such as planner/planner.h, is a file that others
include but do not call: a caller uses the .c that is behind. A room uses what its files use.

This reads text, not C. Comments, strings, members (a.x, a->x) and tags (struct x) are left out;
calls through pointers and names that macros paste together are not seen.
"""

import bisect
import collections
import os
import re
import subprocess
import sys

ROOTS = ("base/", "kernels/", "planner/", "runtime/")  # bench/ and tests/ use these as they like
KINDS = (".c", ".h", ".cu", ".cuh", ".inc", ".def")
# The one circle that is meant: the registry names the backends, and they stand on what it serves.
REGISTRY = re.compile(r"kernels/drivers\.c$")
BACKENDS = re.compile(r"kernels/(cpu|cuda|metal)/")

QUOTED = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
SKIPPED = re.compile(r"(#[ ]*include[^\n]*)|//[^\n]*|/\*.*?\*/|" + QUOTED, re.S)
DIRECTIVE = re.compile(r"^[ ]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
INCLUDE = re.compile(r'[ ]*#[ ]*include[ ]*"([^"]+)"')
PARENS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
ATTRIBUTE = re.compile(r"\b__attribute__\s*" + PARENS)
# The head of a function: a type, unless a macro stands for all of it, the name, the parameters.
HEAD = re.compile(r"(\w[\s*]+)?(\w+)\s*" + PARENS + r"\s*$")
VARIABLE = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$")
PRIVATE = re.compile(r"\b(static|inline|INLINE|OUT_OF_LINE)\b")
NAME = re.compile(r"(?:\.|->|\b(?:struct|enum|union)\b)\s*\w+|\b([A-Za-z_]\w*)")

Edge = collections.namedtuple("Edge", "path line how target")


def blank(pattern, text):
    """Spaces for what fits, so that positions and lines stay. Group 1 is kept, if there is one."""
    return pattern.sub(lambda m: (m.re.groups and m[1]) or re.sub(r"[^\n]", " ", m[0]), text)


class Source:
    """What one file includes, declares, makes public and uses, with the first line of each use."""

    def __init__(self, path):
        self.path = path
        self.includes, self.declares, self.defines, self.uses = {}, set(), set(), {}
        with open(path, encoding="utf-8", errors="replace") as file:
            text = blank(SKIPPED, file.read())
        self.ends = [m.start() for m in re.finditer("\n", text)]
        for m in DIRECTIVE.finditer(text):
            self.read_directive(m[0], m.start())
        if not path.endswith((".cu", ".cuh")):  # a GPU calls nothing of the host
            self.read_code(blank(ATTRIBUTE, blank(DIRECTIVE, text)))

    def line(self, position):
        return bisect.bisect_left(self.ends, position) + 1

    def use(self, text, position):
        for m in NAME.finditer(text):
            if m[1]:
                self.uses.setdefault(m[1], self.line(position + m.start()))

    def read_directive(self, text, position):
        include = INCLUDE.match(text)
        if include:
            self.includes.setdefault(include[1], self.line(position))
        elif re.match(r"[ ]*#[ ]*define\b", text):
            self.use(text, position)

    def read_code(self, code):
        """Cuts the code into statements outside of braces; a function's body ends one."""
        depth = start = 0
        brace = equals = None  # the first ones of the statement
        for m in re.finditer(r"[{};=]", code):
            if depth == 0 and m[0] == "{" and brace is None:
                brace = m.start()
            if depth == 0 and m[0] == "=" and equals is None:
                equals = m.start()
            depth += (m[0] == "{") - (m[0] == "}")
            is_function = brace is not None and equals is None and "(" in code[start:brace]
            if depth == 0 and (m[0] == ";" or m[0] == "}" and is_function):
                end = brace if is_function else equals or m.start()
                self.read_statement(start, end, code[start : m.end()], is_function)
                start, brace, equals = m.end(), None, None

    def read_statement(self, start, end, text, is_function):
        """Up to end it says what it is; what follows uses names."""
        head, rest = text[: end - start], text[end - start :]
        function, variable = HEAD.search(head), VARIABLE.search(head.rstrip())
        name = function[1] and function[2] if function else variable and variable[1]
        if re.match(r"\s*\w+\s*\(", head):  # a macro
            self.use(head, start)
        elif rest == ";":
            if name and (function or "extern" in head):
                self.declares.add(name)
        elif name and self.path.endswith(".c") and not PRIVATE.search(head):
            self.defines.add(name)
        self.use(rest, end)


# ---- Edges --------------------------------------------------------------------------------------


def names_seen(sources, path):
    """What is declared in a file and in all that it includes."""
    files, names = [path], set()
    for file in files:
        names |= sources[file].declares
        files += [f for f in sources[file].includes if f in sources and f not in files]
    return names


def find_edges(sources):
    """Every use of another file, sorted; the target is the header or the .c."""
    definers = collections.defaultdict(list)
    for s in sources.values():
        for name in s.defines:
            definers[name].append(s.path)
    edges = []
    for s in sources.values():
        edges += [Edge(s.path, n, "includes", t) for t, n in s.includes.items() if t in sources]
        for name in s.uses.keys() & definers.keys() & names_seen(sources, s.path) - s.defines:
            edges += [Edge(s.path, s.uses[name], f"calls {name} of", t) for t in definers[name]]
    return sorted(e for e in edges if file_of(e.path) != file_of(e.target))


def read_edges(listed):
    paths = [p for p in listed.split("\n") if p.startswith(ROOTS) and p.endswith(KINDS)]
    return find_edges({path: Source(path) for path in paths})


def report_calls(edges, table):
    """Calls that the direction of the caller's room does not allow."""
    with open(table, encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip()]
    for e in edges:
        allowed = next((pattern for prefix, pattern in rows if e.path.startswith(prefix)), None)
        if e.how != "includes" and not (allowed and re.search(allowed, e.target)):
            print(f"{e.path}:{e.line}: call: {e.path} {e.how} {e.target}, which it may not use")


# ---- Graphs: {place: {place: an edge that leads there}}, for places that are files or rooms -----


def file_of(path):
    return os.path.splitext(path)[0]


def room_of(path):
    return os.path.dirname(path) + "/"


def link(edges, place_of):
    graph = collections.defaultdict(dict)
    for e in edges:
        targets, target = graph[place_of(e.path)], place_of(e.target)
        graph[target]  # is a place even if it uses nothing
        is_meant = REGISTRY.match(e.path) and BACKENDS.match(e.target)
        if target != place_of(e.path) and not is_meant:
            targets.setdefault(target, e)
    return graph


def walk(graph, first):
    """{place: the one before it} for all that first reaches, nearest first."""
    before, queue = {}, [first]
    for place in queue:
        for target in sorted(graph[place]):
            if target not in before:
                before[target] = place
                queue.append(target)
    return before


def way_round(before, place):
    way = [place, before[place]]
    while way[-1] != place:
        way.append(before[way[-1]])
    return way[::-1]


def report_circles(graph, what):
    """Of all places that reach each other: a shortest way round, with one edge for each step."""
    reached = {place: walk(graph, place) for place in sorted(graph)}
    done = set()
    for place, before in reached.items():
        if place not in before or place in done:
            continue
        circle = sorted(p for p in before if place in reached[p])
        done.update(circle)
        way = min((way_round(reached[p], p) for p in circle), key=len)
        steps = [graph[a][b] for a, b in zip(way, way[1:])]
        text = "; ".join(f"{e.path}:{e.line} {e.how} {e.target}" for e in steps)
        print(f"{steps[0].path}:{steps[0].line}: circle: {len(circle)} {what}: {text}")


def print_rooms(graph):
    floors = {}
    for room in sorted(graph, key=lambda r: len(walk(graph, r))):
        floors[room] = 1 + max((floors.get(r, 0) for r in graph[room]), default=-1)
    for room in sorted(floors, key=lambda r: (floors[r], r)):
        print(f"{floors[room]:2} {room:20} {' '.join(sorted(graph[room]))}".rstrip())


def main(arguments):
    if arguments == ["--rooms"]:
        listed = subprocess.check_output(["git", "ls-files"], text=True)
        print_rooms(link(read_edges(listed), room_of))
        return
    edges = read_edges(sys.stdin.read())
    report_circles(link(edges, file_of), "files")
    report_circles(link(edges, room_of), "rooms")
    for table in arguments:
        report_calls(edges, table)


if __name__ == "__main__":
    main(sys.argv[1:])
