#!/bin/sh
# cli_bench.sh: `tandem bench` by the whole program: every combination of the lists, once and in
# order, in every format; figures that add up; refusals. Nothing here depends on how fast the
# machine is.
# run: alone
set -u
: "${TANDEM:=build/tandem}" "${TANDEM_SIM:=build/tandem-sim}"
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
tiny=tests/golden/tiny
. tests/lib/results.sh
prefix=bench_

# sim ARGUMENT...: runs the program with the simulated accelerator; sets code, $out and $err.
sim() {
    timeout 300 "$TANDEM_SIM" bench "$@" >"$out" 2>"$err"
    code=$?
}
# wrong NAME TEXT ARGUMENT...: code 2, nothing on standard output, one line that holds TEXT.
wrong() {
    name=$1 text=$2
    shift 2
    sim -m $tiny/plain.gguf "$@"
    [ "$code" -eq 2 ] && ! [ -s "$out" ] && [ "$(wc -l <"$err")" -eq 2 ] &&
        grep -qF -- "$text" "$err" && grep -qF "'tandem help" "$err"
    result "refuses_$name"
}

# ---- Every combination ---------------------------------------------------------------------------
sim -m $tiny/plain.gguf -m $tiny/q8_0_rope_freqs.gguf -p 4-8+4 -n 3 -pg 5,2 -d 0,7 -ngl 0-1 -t 1 \
    -b 4 -ub 3,8 -ctk f16,f32 -ctv f16 -r 3 --delay 0 --device sim:vram=64M -o json -q
[ $code -eq 0 ] && ! [ -s "$err" ]
result runs
cp "$out" "$work/all.json"
"$TANDEM" bench -m $tiny/plain.gguf -p 4 -n 0 -r 1 --no-warmup --device none --json -q \
    >"$work/cpu.json" 2>"$err"
code=$?
[ $code -eq 0 ]
result runs_on_the_cpu
python3 - "$work" <<'X'
import itertools, json, statistics, sys

rows = json.load(open(f"{sys.argv[1]}/all.json"))
cpu = json.load(open(f"{sys.argv[1]}/cpu.json"))


def check(name, good):
    print(("ok " if good else "not ok ") + "bench_" + name)


def close(a, b):
    return abs(a - b) <= 1e-6 * abs(b) + 1e-6


tests = [(p, g, d) for d in (0, 7) for p, g in ((4, 0), (8, 0), (0, 3), (5, 2))]
models = [f"tests/golden/tiny/{m}.gguf" for m in ("plain", "q8_0_rope_freqs")]
want = [(m, layers, u, k) + t for m, layers, u, k in
        itertools.product(models, (0, 1), (3, 8), ("f16", "f32")) for t in tests]
got = [(r["model_filename"], r["n_gpu_layers"], r["n_ubatch"], r["type_k"], r["n_prompt"],
        r["n_gen"], r["n_depth"]) for r in rows]
check("every_combination_once_in_order", got == want)
check("samples_are_the_repetitions", all(len(r["samples_ns"]) == 3 == len(r["samples_ts"]) for r in rows))
check("speeds_are_tokens_by_time", all(
    close(ts * ns, (r["n_prompt"] + r["n_gen"]) * 1e9)
    for r in rows for ns, ts in zip(r["samples_ns"], r["samples_ts"])))
check("means_add_up", all(
    abs(r["avg_ns"] - statistics.mean(r["samples_ns"])) <= 1 and
    close(r["avg_ts"], statistics.mean(r["samples_ts"])) and
    abs(r["stddev_ts"] - statistics.stdev(r["samples_ts"])) <= 1e-6 * r["avg_ts"] and
    abs(r["stddev_ns"] - statistics.stdev(r["samples_ns"])) <= 1 for r in rows))
check("median_adds_up", all(
    close(r["median_ts"] * statistics.median(r["samples_ns"]), (r["n_prompt"] + r["n_gen"]) * 1e9)
    for r in rows))
check("limit_adds_up", all(
    close(r["percent_of_limit"], 100 * r["median_ts"] / r["limit_ts"]) for r in rows))
check("layers_are_where_asked", all(r["layers_on_gpu"] == r["n_gpu_layers"] for r in rows))
check("vram_is_used_for_layers", all(
    r["peak_vram_bytes"] > 0 for r in rows if r["n_gpu_layers"]))
check("one_threads", all(r["n_threads"] == 1 for r in rows))
check("cpu_alone", len(cpu) == 1 and cpu[0]["backends"] == "CPU" and cpu[0]["gpu_info"] == "" and
      cpu[0]["peak_vram_bytes"] == 0 and len(cpu[0]["samples_ns"]) == 1)
X

# ---- Formats -------------------------------------------------------------------------------------
set -- -m $tiny/plain.gguf -p 4,8 -n 2 -r 2 --device sim:vram=64M -ngl 1
sim "$@"
[ $code -eq 0 ] && awk -F '|' '
    NR == 1 && !/model .*size .*params .*backend .*ngl .*threads .*test .*t\/s/ { exit bad = 1 }
    NR == 1 { n = NF }
    NR == 2 && /[^-: |]/ { exit bad = 1 }
    NF != n || (NR > 2 && !/ ± /) { exit bad = 1 }
    END { exit bad || NR != 5 }' "$out" && grep -q ' pp4 |' "$out" && grep -q ' tg2 |' "$out"
result markdown
grep -q 'speeds of' "$err"
result says_whose_rates
sim "$@" -o csv -oe jsonl -q
python3 - "$out" "$err" <<'X'
import csv, json, sys

rows = list(csv.DictReader(open(sys.argv[1])))
objects = [json.loads(line) for line in open(sys.argv[2])]
good = len(rows) == 3 == len(objects) and all(
    all(str(v + 0 if isinstance(v, bool) else v) == r[k]
        for k, v in o.items() if isinstance(v, (int, str))) and
    set(o) - set(r) == {"samples_ns", "samples_ts"} for o, r in zip(objects, rows))
sys.exit(not good)
X
result csv_and_json_lines_agree
# Each row names the options that keep parts on the CPU, as llama-bench does.
kept() { # VALUES ARGUMENT...: n_cpu_moe, no_kv_offload and tensor_buft_overrides are VALUES
    values=$1
    shift
    sim "$@" -p 4 -n 0 -r 1 --device sim:vram=64M -o csv -oe md
    [ $code -eq 0 ] && python3 -c 'import csv, sys
[row] = csv.DictReader(open(sys.argv[1]))
names = "n_cpu_moe", "no_kv_offload", "tensor_buft_overrides"
sys.exit([row[name] for name in names] != sys.argv[2].split())' "$out" "$values"
}
kept '0 0 none' -m $tiny/plain.gguf && ! grep -qE 'nkvo|n_cpu_moe|\| ot ' "$err"
result nothing_is_kept_on_the_cpu
kept '0 1 ffn_=CPU' -m $tiny/plain.gguf -nkvo 1 -ot ffn_=CPU &&
    grep -q '| nkvo | ot *| ' "$err" && grep -q '|    1 | ffn_=CPU  *| ' "$err"
result cache_and_tensors_are_kept_on_the_cpu
kept '0 0 ffn_=CPU;attn_=CPU' -m $tiny/plain.gguf -ot 'ffn_=CPU;attn_=CPU'
result tensors_of_two_patterns_are_kept_on_the_cpu
# A comma and another -ot begin another placement, as values of other lists do; an empty one has no
# patterns.
sim -m $tiny/plain.gguf -ot ',ffn_=GPU' -ot 'blk.0=GPU;blk.1=CPU,blk.{2,3}attn=GPU;.*=CPU' \
    -p 4 -n 0 -r 1 -b 2,4 --device sim:vram=64M -o json -oe md
[ $code -eq 0 ] && python3 - "$out" "$err" <<'X'
import json, sys

rows = json.load(open(sys.argv[1]))
table = [[cell.strip() for cell in line.split("|")] for line in open(sys.argv[2]) if line[0] == "|"]
ot = table[0].index("ot")
want = ["none", "ffn_=GPU", "blk.0=GPU;blk.1=CPU", "blk.{2,3}attn=GPU;.*=CPU"]
want = [value for value in want for batch in (2, 4)]
got = [row["tensor_buft_overrides"] for row in rows]
sys.exit(not (got == want == [line[ot] for line in table[2:]] and
              len({row["peak_vram_bytes"] for row in rows[::2]}) == 4))
X
result tensors_of_each_placement
kept '1 0 none' -m $tiny/qwen3moe.gguf -ncmoe 1 && grep -q '| n_cpu_moe | ' "$err" &&
    kept '2 0 none' -m $tiny/qwen3moe.gguf --cpu-moe && grep -q '|       all | ' "$err"
result experts_are_kept_on_the_cpu
sim "$@" -o sql -q
python3 - "$out" <<'X'
import sqlite3, sys

db = sqlite3.connect(":memory:")
db.executescript(open(sys.argv[1]).read())
got = db.execute("SELECT n_prompt, n_gen FROM tandem_bench").fetchall()
sys.exit(got != [(4, 0), (8, 0), (0, 2)])
X
result sql_is_taken_by_a_data_base
sim "$@" --progress
[ $code -eq 0 ] && grep -q '^tandem: 1/3 pp4: warm-up$' "$err" &&
    grep -q '^tandem: 3/3 tg2: run 2 of 2$' "$err"
result progress
# At a terminal a bar shows it, which is gone before a row comes.
printf '%s\n' "wait(r'measure +\\[')" "wait('tg2')" 'ends(0)' 'assert not re.search(rb"\d%[^\r]*\|", raw), raw' |
    python3 tests/lib/terminal.py "$TANDEM_SIM" bench "$@" >"$work/log" 2>&1
result progress_at_a_terminal
sim --list-devices
[ $code -eq 0 ] && grep -qi 'threads' "$out"
result lists_devices

# ---- Refusals ------------------------------------------------------------------------------------
wrong list "got ''" -p 1,,2
wrong empty_range 'range 8-4 is empty' -n 8-4
wrong endless_range 'never ends' -b '1-8*1'
wrong pair 'such as 512,128' -pg 512
wrong layers 'a number of layers' -ngl 1,most
wrong size 'such as 6G' --vram 1G,big
wrong device 'expected CPU or GPU, got toaster' -ot 'ffn_=CPU,attn_=toaster'
wrong pattern 'PATTERN=DEVICE' -ot 'ffn_=CPU,attn_=CPU;output'
wrong type 'f16, f32, q8_0, q4_0' -ctk f16,f17
wrong threads 'from -1 to 1024' -t 2000
wrong format "got 'xml'" -o xml
wrong second_format "got 'xml'" -oe xml
wrong two_formats '--json and -o exclude' --json -o md
wrong nothing 'nothing to measure' -p 0 -n 0
wrong short_context 'at least 512 positions' -c 100
wrong repetitions 'from 1 to 1000' -r 0
wrong foreign_option "does not belong to 'tandem bench'" --temp 0
sim
[ $code -eq 2 ] && grep -q 'needs a model' "$err"
result needs_a_model

# A later error leaves whole JSON and what was measured before.
sim -m "$work/nowhere.gguf" -o json -q
[ $code -eq 1 ] && grep -q nowhere "$err" && [ "$(cat "$out")" = '[]' ]
result missing_model
sim -m $tiny/plain.gguf -m "$work/nowhere.gguf" -p 4 -n 0 -r 1 -o json -q --device none
[ $code -eq 1 ] && grep -q nowhere "$err" &&
    python3 -c 'import json, sys; sys.exit(len(json.load(open(sys.argv[1]))) != 1)' "$out"
result keeps_what_was_measured

# ---- Strategies ----------------------------------------------------------------------------------
wrong strategies_with_lists 'only -m and --vram are lists' --strategies -ub 1,2
wrong strategies_with_placements 'only -m and --vram are lists' --strategies -ot ffn_=CPU,attn_=CPU
wrong strategies_with_prompts 'one -p and one -n' --strategies -p 1,2
wrong strategies_with_depth 'no -d' --strategies -d 1
wrong strategies_and_strategy 'exclude each other' --strategies --strategy layers
wrong plot_of_lists 'add --strategies' --plot x.svg

set -- -m $tiny/q8_0_rope_freqs.gguf --strategies --vram 20K,1G -p 40 -n 6 -r 2 -ub 16 \
    --device sim:vram=2G
sim "$@" -o json
[ $code -eq 0 ] && grep -q 'within [0-9] of 2 limits' "$err"
result strategies
cp "$out" "$work/strategies.json"
python3 - "$work/strategies.json" <<'X'
import json, statistics, sys

rows = json.load(open(sys.argv[1]))
run = [r for r in rows if not r["refused"]]


def check(name, good):
    print(("ok " if good else "not ok ") + "bench_strategies_" + name)


def close(a, b):
    return abs(a - b) <= 1e-6 * abs(b)


names = ["cpu", "layers", "attention-first", "streamed", "row-split", "auto"]
check("every_row_in_order", [(r["vram_limit_bytes"], r["strategy"]) for r in rows] ==
      [(limit, name) for limit in (20 << 10, 1 << 30) for name in names])
check("some_run", sum(r["strategy"] == "cpu" for r in run) == 2 ==
      sum(r["strategy"] == "auto" for r in run))
check("tokens_agree", all(r["tokens_agree"] for r in run) and
      all(r["first_difference"] is None and r["nmse"] is None for r in rows))
check("samples", all(len(r["prompt_samples_ns"]) == 2 == len(r["gen_samples_ns"]) for r in run))
check("medians_add_up", all(
    close(r["prompt_median_ts"] * statistics.median(r["prompt_samples_ns"]), 40e9) and
    close(r["gen_median_ts"] * statistics.median(r["gen_samples_ns"]), 6e9) and
    close(r["first_token_ms"] * 1e6, statistics.median(r["prompt_samples_ns"])) and
    close(r["total_ms"] * 1e6, statistics.median(r["prompt_samples_ns"]) +
          statistics.median(r["gen_samples_ns"])) for r in run))
check("limits_are_kept", all(r["peak_vram_bytes"] <= r["vram_limit_bytes"] for r in run))
check("cpu_is_the_cpu", all(r["layers_on_gpu"] == 0 and r["units_streamed"] == 0 for r in run
                            if r["strategy"] == "cpu"))
X

sim "$@" --ram 1K -o jsonl
[ $code -eq 0 ] && [ "$(grep -c '"refused": "[^"]' "$out")" -eq 12 ] &&
    grep -q 'nothing fits' "$err"
result what_does_not_fit_is_a_row
sim "$@" --ram 1K
[ $code -eq 0 ] && [ "$(grep -c '^|.*does not fit: ' "$out")" -eq 12 ]
result refusals_in_markdown
sim "$@" --device none
[ $code -eq 1 ] && grep -q 'needs a GPU' "$err" && ! [ -s "$out" ]
result strategies_need_an_accelerator
sim -m $tiny/plain.gguf -p 4 -n 2 -r 1 -ngl 1 --device sim:vram=64M,fail=copy:3 -o json -q
[ $code -eq 1 ] && grep -q 'copy' "$err" && python3 -m json.tool "$out" >/dev/null
result a_device_that_fails_ends_it

# A model whose units can be split and streamed. Sanitizers are slow.
case $TANDEM_SIM in
*/asan/* | */ubsan/* | */tsan/*) ;;
*)
    sim -m "$MODEL" --strategies --vram 50M -p 40 -n 3 -r 1 --no-warmup --device sim:vram=200M \
        -o json
    [ $code -eq 0 ] && python3 - "$out" <<'X'
import json, sys

rows = {r["strategy"]: r for r in json.load(open(sys.argv[1]))}
sys.exit(not (
    len(rows) == 6 and all(r["tokens_agree"] and not r["refused"] for r in rows.values()) and
    rows["cpu"]["peak_vram_bytes"] == 0 < rows["layers"]["layers_on_gpu"] and
    rows["streamed"]["units_streamed"] > 0 and
    rows["streamed"]["feed"] != "none" == rows["row-split"]["feed"] and
    rows["row-split"]["units_split"] > 0 == rows["layers"]["units_split"]))
X
    result strategies_are_what_they_are_called ;;
esac

# ---- Plots ---------------------------------------------------------------------------------------
env PATH=/nonexistent "$TANDEM_SIM" bench "$@" --plot "$work/none.svg" >"$out" 2>"$err"
code=$?
[ $code -eq 1 ] && ! [ -s "$out" ] && ! [ -e "$work/none.svg" ] && grep -q 'gnuplot-nox' "$err"
result says_that_gnuplot_is_missing
if command -v gnuplot >/dev/null; then
    sim "$@" --plot "$work/no/where.svg"
    [ $code -eq 1 ] && ! [ -s "$out" ] && grep -q 'no/where.svg' "$err"
    result refuses_a_plot_that_cannot_be_written
    sim "$@" --plot "$work/it's.svg" -q
    [ $code -eq 0 ] && ! [ -s "$err" ] && python3 - "$work/it's.svg" <<'X'
import sys, xml.etree.ElementTree as tree

text = " ".join(tree.parse(sys.argv[1]).getroot().itertext())
sys.exit(not all(word in text for word in ("Generation", "Prompt", "row-split", "planned",
                                           "20 KiB", "1 GiB", "tokens/s", "llama")))
X
    result plot
else
    echo 'ok # SKIP bench_plot: gnuplot is not here'
fi
