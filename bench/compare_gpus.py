#!/usr/bin/env python3
"""compare_gpus.py: puts what make gpu-check measured on two GPUs side by side.

    python3 bench/compare_gpus.py A.json B.json
    python3 bench/compare_gpus.py A.json            the two images of one: native code, then PTX

The files are gpu-NAME.json of bench/results or of the archive that gpu-check makes. Prints a line for
all that both measured: what, A, B, and how many times as fast B is. At first it tells what else
differs: cards, commits, images, clocks, failed steps, and layers of the model, whose rates can be compared
only where these are equal. Tested by tests/cli/cli_gpu_check.sh.
"""
import json
import sys

# A list of the report; what tells its lines apart; its measures, of which more is better; those of which less is.
LISTS = [
    ("engine", ["test"], ["tokens_per_second"], []),
    ("depth", ["n_depth", "n_gen"], ["avg_ts"], []),
    ("strategies", ["strategy"], ["prompt_median_ts", "gen_median_ts"], []),
    ("strategies_experts", ["strategy"], ["prompt_median_ts", "gen_median_ts"], []),
    ("link", ["test", "pinned", "block_bytes"], ["gb_per_second"], ["us", "both_us"]),
    ("peak", ["instruction"], ["teraops"], []),
    ("kernels_of_a_prompt", ["kernel"], [], ["ms"]),
    ("kernels_of_tokens", ["kernel"], [], ["ms"]),
    ("ops", ["op", "type", "shape", "tokens"], [], ["us"]),
]
OF_IMAGES = ["engine", "ops"]  # measured with the second image too
TOLD = ["name", "commit", "dry_run", "image", "second_image", "first_start_ms", "second_start_ms",
        "speed_model_layers", "clocks_least_and_most", "failed", "skipped"]


def measures(report, name, source):
    """{(words of a line, measure): (value, whether more is better)} of a list of a report."""
    _, keys, more, less = next(rule for rule in LISTS if rule[0] == name)
    found = {}
    for line in report.get(source) or []:
        words = " ".join(str(line[key]) for key in keys if line.get(key) not in (None, "", "-"))
        for measure in more + less:
            if isinstance(line.get(measure), (int, float)):
                found[words, measure] = line[measure], measure in more
    return found


def compare(name, one, other):
    """Prints the lines that both have, and returns how many only one has."""
    both = [key for key in one if key in other]
    if both:
        print(f"\n## {name.replace('_', ' ')}\n\n| | | A | B | B is faster by |\n|---|---|---|---|---|")
    for words, measure in both:
        (a, better), (b, _) = one[words, measure], other[words, measure]
        by = (b / a if better else a / b) if a and b else float("nan")
        print(f"| {words} | {measure} | {a:g} | {b:g} | {by:.2f} |")
    return len(one) + len(other) - 2 * len(both)


def main():
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    reports = [json.load(open(path)) for path in sys.argv[1:]]
    a, b = reports[0], reports[-1]
    alone = len(reports) == 1
    print("| | A | B |\n|---|---|---|")
    for key in ["image", "second_image"] if alone else TOLD:
        print(f"| {key.replace('_', ' ')} | {a.get(key)} | {b.get(key)} |")
    left = 0
    for name, *_ in LISTS:
        if alone and name not in OF_IMAGES:
            continue
        source = f"{name}_second_image" if alone else name
        left += compare(name, measures(a, name, name), measures(b, name, source))
    print(f"\n{left} lines are of one only.")


main()
