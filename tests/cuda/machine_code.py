#!/usr/bin/env python3
"""machine_code.py: reads what ptxas makes of the kernels, without a GPU.

    machine_code.py [--update] [--nvcc NVCC] TABLE BUILD_CUDA TOOLS COMPILER [FILE...]
    machine_code.py --beside OLD_TABLE TABLE

assembles every kernel of BUILD_CUDA/compute_*/*.ptx for the architectures of TARGETS, reads the
machine code of each loop, and compares with TABLE. It fails if a kernel spills more, has more local
memory, fits fewer blocks on a multiprocessor, or has fewer loads under way before the first one is used; --update
writes the table instead. With FILEs, names of sources like attention, only their kernels are looked at.
TOOLS is the folder with ptxas and nvdisasm, and those that know 6.1, see tools.sh. COMPILER is what made the PTX,
which the first line of the table names: nothing is compared with another compiler's table.
With --nvcc, NVCC compiles the sources for those of the architectures that it knows; the PTX only tells
which there are, and the threads of their blocks.

--beside prints each kernel of TABLE with what OLD_TABLE says of it, or of the one that did its work.
Kernels that read weights or values of V must have LEAST_AHEAD loads under way.

A row: architecture, kernel, registers, bytes of spills, bytes of local memory (spills and arrays
that are not in registers), blocks that the registers of a multiprocessor hold, bytes of shared
memory, and for every loop that loads from global memory, without another such loop inside,
"loads:ahead", where ahead is the largest number of loads that are issued before the first of
them is used. The code of a loop is read in the order of its addresses, whatever its branches, and
an operand of several registers counts by its first.
"""
import concurrent.futures
import csv
import os
import re
import subprocess
import sys
import tempfile

TARGETS = [("61", "61"), ("75", "75"), ("80", "86"), ("80", "90")]  # PTX for, assembled for
REGISTERS = 65536  # of a multiprocessor, of all these architectures
COLUMNS = ["arch", "kernel", "registers", "spill_bytes", "local_bytes", "blocks", "shared_bytes", "loops"]

# The most loads that wait at once in a kernel must be as many, since memory is what these wait for.
# Kernels without a loop do nothing: those of tensor cores on 6.1.
LEAST_AHEAD = [(re.compile(r"attention_(64|128|256)$"), 8),
               (re.compile(r"(matmul|experts)_(one|vec)_|(gemm|narrow|experts)_(dp4a|mma)_"), 4)]

# The kernel that did the work of a later one: (later name, earlier name).
EARLIER = [(r"_one_(\w+)$", r"_vec_\1"), (r"^narrow_(\w+)$", r"gemm_\1"),
           (r"^attention_(tiles_|mma_)?\d+$", "attention"), (r"_(quantize|store)$", "")]

# On 6.1 two instructions that start at once stand in braces.
INSTRUCTION = re.compile(
    r"/\*[0-9a-f]{4,5}\*/\s+\{?\s*(?:@!?U?P[0-9T]\s+)?([A-Z0-9_.]+)\s*(.*?)\s*[;}]")
LABEL = re.compile(r"^(\.L_[\w.]+):")
REGISTER = re.compile(r"\bR(\d+)\b")
SHARED = -1  # where an asynchronous copy goes, whose first operand is an address; DEPBAR waits for it


def run(*command):
    """The output of a command, errors with it; SystemExit with that text if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"machine_code.py: {' '.join(command)}: {done.stdout.strip()}")
    return done.stdout


def threads_of(ptx):
    """The threads of a block of each kernel of a PTX file."""
    found = re.findall(r"\.entry (\w+)\(.*?\)\s*(?:\.maxntid (\d+))?", open(ptx).read(), re.S)
    return {name: int(threads or 1024) for name, threads in found}


def resources(report):
    """What ptxas -v says: {kernel: (registers, bytes of spills, of local, of shared memory)}."""
    out = {}
    for part in report.split("Compiling entry function '")[1:]:
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part)
        local = re.search(r"(\d+) bytes stack frame", part)
        shared = re.search(r"(\d+) bytes smem", part)
        out[part.split("'")[0]] = (int(re.search(r"Used (\d+) registers", part).group(1)),
                                   int(spills.group(1)) + int(spills.group(2)),
                                   int(local.group(1)),
                                   int(shared.group(1)) if shared else 0)
    return out


def parse(sass):
    """{kernel: (instructions, {label: index of the instruction behind it})} of a disassembly."""
    kernels, code, labels = {}, None, None
    for line in sass.splitlines():
        if line.startswith(".text."):
            code, labels = [], {}
            kernels[line[len(".text."):].rstrip(":")] = (code, labels)
        elif code is not None and (label := LABEL.match(line)):
            labels[label.group(1)] = len(code)
        elif code is not None and (instruction := INSTRUCTION.search(line)):
            code.append((instruction.group(1), instruction.group(2)))
    return kernels


def loading_loops(code, labels):
    """Ranges [first, last] of instructions with loads that a branch goes back over, without one inside."""
    loops = []
    for last, (name, operands) in enumerate(code):
        target = re.search(r"`\((\.L_[\w.]+)\)", operands)
        if name.startswith("BRA") and target and labels.get(target.group(1), last + 1) <= last:
            loops.append((labels[target.group(1)], last))
    loops = [a for a in loops if any(name.startswith("LDG") for name, _ in code[a[0]:a[1] + 1])]
    return [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]


def loads_ahead(code):
    """(loads from global memory, the most of them that wait at the first use of one)."""
    waiting, n_loads, ahead = [], 0, 0
    for name, operands in code:
        first, _, rest = operands.partition(",")
        is_load = name.startswith("LDG")
        to_shared = name.startswith("LDGSTS")
        read = operands if to_shared or name.startswith("ST") else rest
        used = {int(r) for r in REGISTER.findall(read)} | ({SHARED} if name.startswith("DEPBAR") else set())
        if any(r in used for r in waiting):
            ahead = max(ahead, len(waiting))
            last = max(i for i, r in enumerate(waiting) if r in used)
            waiting = waiting[last + 1:]  # loads return in the order in which they were issued
        target = REGISTER.search(first) if is_load and not to_shared else None
        if to_shared or target:  # nobody waits for what goes nowhere
            n_loads += 1
            waiting.append(SHARED if to_shared else int(target.group(1)))
    return n_loads, max(ahead, len(waiting))


def loops_of(cubin, nvdisasm):
    """{kernel: "loads:ahead ..."}."""
    out = {}
    for kernel, (code, labels) in parse(run(nvdisasm, "-c", cubin)).items():
        found = [loads_ahead(code[a:b + 1]) for a, b in loading_loops(code, labels)]
        out[kernel] = " ".join(f"{n}:{ahead}" for n, ahead in found)
    return out


def measure(job):
    """The rows of one PTX file for one architecture, or of its source, compiled by nvcc."""
    ptx, arch, tools, nvcc = job
    version = "-6.1" if arch == "61" else ""
    if nvcc:
        source = f"kernels/cuda/{os.path.basename(ptx)[:-len('.ptx')]}.cu"
        command = [nvcc, "-std=c++17", "-O3", "-I.", "-allow-unsupported-compiler", "-cubin", "-Xptxas=-v", source]
    else:
        command = [f"{tools}/ptxas{version}", "-v", ptx]
    with tempfile.TemporaryDirectory() as folder:
        cubin = f"{folder}/out.cubin"
        found = resources(run(*command, f"-arch=sm_{arch}", "-o", cubin))
        loops = loops_of(cubin, f"{tools}/nvdisasm{version}")
    threads = threads_of(ptx)
    for kernel, (registers, spills, local, shared) in found.items():
        per_block = -(-registers // 8) * 8 * threads[kernel]
        yield [arch, kernel, registers, spills, local, REGISTERS // per_block, shared,
               loops.get(kernel, "")]


def ahead_share(loops):
    """Loads under way at once by all loads, of all loops."""
    pairs = [tuple(map(int, loop.split(":"))) for loop in loops.split()]
    return sum(ahead for _, ahead in pairs) / max(1, sum(loads for loads, _ in pairs))


def most_ahead(loops):
    """The most loads that are under way at once in any loop."""
    return max((int(loop.split(":")[1]) for loop in loops.split()), default=0)


def worse(new, old):
    """Why a row is worse than the table's or than it may be, or None."""
    for name, least in LEAST_AHEAD:
        if name.match(new["kernel"]) and new["loops"] and most_ahead(new["loops"]) < least:
            return f"at most {most_ahead(new['loops'])} loads under way, {least} are wanted: loops {new['loops']}"
    if int(new["spill_bytes"]) > int(old["spill_bytes"]):
        return f"spills {new['spill_bytes']} bytes, {old['spill_bytes']} before"
    if int(new["local_bytes"]) > int(old.get("local_bytes", 0)):
        return f"{new['local_bytes']} bytes of local memory, {old.get('local_bytes', 0)} before"
    if int(new["blocks"]) < int(old["blocks"]):
        return (f"{new['registers']} registers, {old['registers']} before: {new['blocks']} blocks "
                f"on a multiprocessor instead of {old['blocks']}")
    if ahead_share(new["loops"]) < 0.9 * ahead_share(old["loops"]):
        return f"fewer loads under way: loops {new['loops']}, {old['loops']} before"
    return None


def read(path):
    """The compiler and the rows of a table."""
    with open(path) as file:
        compiler = file.readline()[2:].strip()
        rows = csv.DictReader(file, delimiter="\t")
        return compiler, {(row["arch"], row["kernel"]): row for row in rows}


def write(path, compiler, rows):
    with open(path, "w") as file:
        file.write(f"# {compiler}\n")
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([COLUMNS] + rows)
    print(f"{path}: {len(rows)} kernels")


def compare(name, rows, old, whole):
    """Prints as tests of that name every kernel that got worse; whole: kernels of the table must not be missing."""
    new = {(row[0], row[1]): dict(zip(COLUMNS, map(str, row))) for row in rows}
    n_worse = 0
    for key in sorted(new.keys() | (old.keys() if whole else set())):
        if key in new and key in old:
            why = worse(new[key], old[key])
        else:
            why = "is not in the table" if key in new else "is in the table only"
        n_worse += why is not None
        if why:
            print(f"not ok {name}_{key[0]}_{key[1]}\n  {why}")
    print(f"{'not ok' if n_worse else 'ok'} {name} # {len(new)} kernels, {n_worse} worse")
    return n_worse


def earlier(kernel, known):
    """The name in known of the kernel that did this one's work, or None."""
    names = [kernel] + [re.sub(later, name, kernel) for later, name in EARLIER]
    return next((name for name in names if name in known), None)


def beside(old_path, path):
    """Prints the rows of a table, each beside that of an older table."""
    (old_compiler, old), (compiler, new) = read(old_path), read(path)
    print(f"# before: {old_compiler}; after: {compiler}")
    measures = ["registers", "spill_bytes", "local_bytes", "blocks", "shared_bytes", "loops"]
    print("\t".join(["arch", "kernel", "kernel_before"] + [f"{m}_before\t{m}" for m in measures]))
    for (arch, kernel), row in new.items():
        name = earlier(kernel, {k for a, k in old if a == arch})
        before = old.get((arch, name), {})
        pairs = [f"{before.get(m, '-')}\t{row[m]}" for m in measures]
        print("\t".join([arch, kernel, name or "-"] + pairs))


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--beside"] and len(arguments) == 3:
        beside(*arguments[1:])
        return
    update = arguments[:1] == ["--update"]
    arguments = arguments[update:]
    nvcc = arguments[1] if arguments[:1] == ["--nvcc"] and len(arguments) > 1 else None
    arguments = arguments[2 if nvcc else 0:]
    if len(arguments) < 4:
        raise SystemExit(__doc__)
    table, build, tools, compiler, *files = arguments
    name = "machine_code_nvcc" if nvcc else "machine_code"
    old_compiler, old = ("", {}) if update else read(table)
    if not update and old_compiler != compiler:
        print(f"ok {name} # SKIP the table is of {old_compiler}, this is {compiler}")
        return
    known = re.findall(r"compute_(\d+)", run(nvcc, "--list-gpu-arch")) if nvcc else None
    jobs = []
    for ptx_for, arch in TARGETS:
        if nvcc and arch not in known:
            continue
        folder = f"{build}/compute_{ptx_for}"
        ptx_files = [f"{file}.ptx" for file in files] or sorted(os.listdir(folder))
        jobs += [(f"{folder}/{file}", arch, tools, nvcc) for file in ptx_files
                 if file.endswith(".ptx") and file != "peak.ptx"]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = sorted(row for found in pool.map(lambda job: list(measure(job)), jobs)
                      for row in found)
    if update:
        write(table, compiler, rows)
    else:
        sys.exit(compare(name, rows, old, not files) > 0)


main()
