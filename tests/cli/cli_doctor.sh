#!/bin/sh
# cli_doctor.sh: `tandem doctor`, and what `tandem calibrate` keeps, by the whole program, on this machine, on the simulated accelerator and
# on the emulated GPU: what it says is true of them.
set -u
: "${TANDEM:=build/tandem}" "${TANDEM_SIM:=build/tandem-sim}"
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
. tests/lib/results.sh
export XDG_CACHE_HOME="$work/cache"

# doctor PROGRAM ARGUMENT...: sets code, $work/out and $work/err.
doctor() {
    program=$1
    shift
    timeout 100 "$program" doctor "$@" >"$work/out" 2>"$work/err"
    code=$?
}
# names: of the findings in the JSON.
names() { python3 -c 'import json, sys
for f in json.load(open(sys.argv[1]))["findings"]: print(f["name"])' "$work/out"; }

doctor "$TANDEM" --device none
[ $code -eq 0 ] && ! [ -s "$work/err" ] && grep -q 'problems\? found$' "$work/out"
result doctor_cpu
doctor "$TANDEM" --device none --json
[ $code -eq 0 ] && names >"$work/names" && grep -q '^calibration$' "$work/names"
result doctor_json
# A file that was read is in RAM, and one that was dropped is not, unless its file system keeps all.
cp "$MODEL" "$work/model.gguf" && sync "$work/model.gguf" && cat "$work/model.gguf" >"$work/copy"
doctor "$TANDEM" --device none -m "$work/model.gguf"
[ $code -eq 0 ] && grep -q '^[0-9.]* MiB of the model.s file are in RAM, of [0-9.]* MiB$' "$work/out" &&
    grep -q '^[0-9]* major faults a second: ' "$work/out" && ! grep -q 'longer: the disk reads' "$work/out"
result doctor_file_in_ram
dd if="$work/model.gguf" iflag=nocache count=0 2>"$work/dd"
cat >"$work/resident" <<'X'
import ctypes, mmap, os, sys
libc, size = ctypes.CDLL(None, use_errno=True), os.path.getsize(sys.argv[1])
libc.mmap.restype = ctypes.c_void_p
pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
at = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, os.open(sys.argv[1], os.O_RDONLY), ctypes.c_long(0))
print(sum(p & 1 for p in pages) * mmap.PAGESIZE if libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), pages) == 0 else -1)
X
resident=$(python3 "$work/resident" "$work/model.gguf")
doctor "$TANDEM" --device none -m "$work/model.gguf" --json
[ $code -eq 0 ] && python3 - "$work/out" "$resident" <<'X'
import json, sys
told, resident = json.load(open(sys.argv[1])), int(sys.argv[2])
size, there = told["file_bytes"], told["file_bytes_in_ram"]
cold = "file-cache" in [f["name"] for f in told["findings"]]
sys.exit(not (size > 80e6 and told["major_faults_per_second"] >= 0 and resident >= 0 and
              abs(there - resident) < size / 8 and cold == (there < size * 3 / 4)))
X
result doctor_file_not_in_ram
doctor "$TANDEM" --shape nobody
[ $code -eq 2 ] && grep -q 'tandem plan --shape list' "$work/err"
result doctor_unknown_shape
doctor "$TANDEM_SIM" --device sim:vram=4G --json --shape qwen3-8b
[ $code -eq 0 ] && grep -q 'Qwen3' "$work/out" && ! names | grep -q -e '^vram$' -e '^link$'
result doctor_sim

# agrees NAME PROGRAM ARGUMENT...: doctor says of a model what `tandem plan` says: it runs, or the
# same sentence and the same way out.
agrees() {
    name=$1
    shift
    program=$1
    shift
    timeout 100 "$program" plan "$@" >"$work/plan" 2>"$work/refused"
    planned=$?
    doctor "$program" "$@" --json
    [ $code -eq 0 ] && python3 - "$planned" "$work/refused" "$work/out" <<'X'
import json, sys
code, refusal = int(sys.argv[1]), open(sys.argv[2]).read().splitlines()
found = [f for f in json.load(open(sys.argv[3]))["findings"] if f["name"] == "refused"]
same = lambda a, b: a.lower().rstrip(".") == b.lower().rstrip(".")
sys.exit(not (code == 0 and not found or code == 1 and len(found) == 1 and
              same(refusal[0], "tandem: error: " + found[0]["what"]) and
              same(refusal[1].strip(), found[0]["fix"])))
X
    result "doctor_agrees_with_plan_$name"
    echo $planned >>"$work/both"
}
: >"$work/both"
for ram in 2G 12G 64G; do
    for model in llama-3.3-70b llama-3.1-8b qwen3-30b-a3b; do
        agrees "${model}_$ram" "$TANDEM" --device none --shape $model --ram $ram
        agrees "${model}_${ram}_beside_4G" "$TANDEM_SIM" --device sim:vram=4G --shape $model --ram $ram
    done
done
agrees long_context "$TANDEM" --device none --shape llama-3.1-8b --ram 6G -c 65536
agrees little_vram "$TANDEM_SIM" --device sim:vram=4G --shape llama-3.1-8b --ram 4G --vram 512M
code=$(sort "$work/both" | uniq -c | wc -l)
[ "$code" -eq 2 ] # some run and some are refused
result doctor_agrees_both_ways

export XDG_CACHE_HOME="$work"
timeout 100 "$TANDEM" calibrate --show >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 1 ] && grep -q 'was not measured' "$work/err" && grep -q 'tandem calibrate' "$work/err"
result calibrate_show_nothing
mkdir "$work/tandem" && touch "$work/tandem/calibration-0123456789abcdef.json" "$work/tandem/mine.json"
timeout 100 "$TANDEM" calibrate --forget >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 0 ] && grep -q '^removed 1 measurement$' "$work/out" &&
    [ "$(ls "$work/tandem")" = mine.json ]
result calibrate_forget
timeout 100 "$TANDEM" calibrate --forget --json >"$work/out" 2>"$work/err" &&
    python3 -c 'import json, sys; sys.exit(json.load(sys.stdin) != {"removed": 0})' <"$work/out"
code=$?
[ $code -eq 0 ]
result calibrate_forget_as_json

# The first measurement is told of before it begins, also where no terminal reads it; Ctrl-C skips it,
# and the run goes on.
cat >"$work/skip" <<'X'
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.environ.pop("TANDEM_CALIBRATE", None)
run = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
first = run.stderr.readline()
run.send_signal(signal.SIGINT)
text, rest = run.communicate(timeout=300)
sys.stderr.write((first + rest).decode())
sys.stdout.buffer.write(text)
sys.exit(run.returncode or b"measuring this computer" not in first)
X
python3 "$work/skip" "$TANDEM" run -m "$MODEL" -p 'Once upon a time' -n 3 --temp 0 >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 0 ] && [ -s "$work/out" ] && grep -q '^tandem: generation ' "$work/err" &&
    ! ls "$work/tandem" | grep -q calibration
result calibrate_is_announced_and_skipped

# Two busy programs beside a measurement: it says so, and an earlier one, which a quiet computer
# made, stays and is shown.
timeout 200 "$TANDEM" calibrate >"$work/out" 2>"$work/err"
code=$?
kept=$(ls "$work"/tandem/calibration-*.json)
[ $code -eq 0 ] && grep -q "^saved in $kept$" "$work/out"
result calibrate_saves
sed -i -e 's/"spread": [^,]*/"spread": 0.01/' -e 's/"busy_others": [^,]*/"busy_others": 0.01/' "$kept"
cp "$kept" "$work/quiet.json"
sh -c 'while :; do :; done' & one=$!
sh -c 'while :; do :; done' & two=$!
timeout 200 "$TANDEM" calibrate >"$work/out" 2>"$work/err"
code=$?
kill $one $two
[ $code -eq 0 ] && grep -q '; noisy: .*other programs kept [0-9.]* processors busy' "$work/out" &&
    grep -q '^not saved: .*so the better measurement of 20[0-9-]* stays' "$work/out" &&
    cmp -s "$kept" "$work/quiet.json"
result calibrate_keeps_the_better
python3 - "$kept" <<'X'
import json, sys
kept = json.load(open(sys.argv[1]))
rates = kept["machine"]["devices"][0]["rates"]
rates.update(cache_bytes=20 << 20, cache_quarter_bytes=72 << 20, cache_factor=1.75)
json.dump(kept, open(sys.argv[1], "w"))
X
timeout 100 "$TANDEM" calibrate --show >"$work/out" 2>"$work/err"
code=$?
cache='the cache keeps three quarters of 20 MiB and a quarter of 72, 1.8 times as fast as memory'
[ $code -eq 0 ] && grep -q "; $cache" "$work/out"
result calibrate_shows_what_the_cache_keeps
[ $code -eq 0 ] && grep -q "^measured on 20[0-9-]*, saved in $kept$" "$work/out" &&
    timeout 100 "$TANDEM" plan -t 1 -m "$MODEL" >"$work/plan" 2>&1 &&
    grep -q '^speeds: measured on this machine$' "$work/plan" &&
    timeout 100 "$TANDEM" calibrate --forget >"$work/out" && ! [ -e "$kept" ]
result calibrate_is_shown_scaled_and_forgotten

emulator=$(dirname "$TANDEM")/emulator
if [ -f "$emulator/libcuda.so.1" ]; then
    export LD_LIBRARY_PATH="$emulator:${LD_LIBRARY_PATH:-}"
    doctor "$TANDEM" --device cuda --json
    [ $code -eq 0 ] && ! names | grep -q '^pinned-memory$'
    result doctor_emulated
    # The first memory that is pinned holds flags, which runs do without.
    EMU_CUDA_FAIL_REGISTER=2 doctor "$TANDEM" --device cuda --json -q
    [ $code -eq 0 ] && names | grep -q '^pinned-memory$'
    result doctor_no_pinned_memory
fi
