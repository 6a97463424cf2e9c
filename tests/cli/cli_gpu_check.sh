#!/bin/sh
# cli_gpu_check.sh: tests/gpu_check.sh, which make gpu-check runs, with the emulated NVIDIA GPU and one
# op, and with programs that fail on purpose: what it checks, what it keeps, what it says and packs.
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# result NAME: prints whether the test before it succeeded.
result() {
    if [ $? -eq 0 ]; then echo "ok gpu_check_$1"; else
        echo "not ok gpu_check_$1"
        tail -n 40 "$work/out"
    fi
}
# Programs of NVIDIA's, as far as the script knows them.
mkdir -p "$work/bin"
cat >"$work/bin/nvidia-smi" <<'Y'
#!/bin/sh
case $1 in
-q) echo 'Driver Version : 550.54' ;;
*)
    echo 'timestamp, index, clocks.current.sm [MHz], power.draw [W], pcie.link.gen.current'
    echo '2026/01/01 00:00:00.0, 0, 210 MHz, 20.5 W, 1'
    echo '2026/01/01 00:00:00.5, 0, 1800 MHz, 165.0 W, 4'
    exec sleep 100 ;;
esac
Y
cat >"$work/bin/compute-sanitizer" <<'Y'
#!/bin/sh
echo "$@" >>"$SANITIZED"
Y
cat >"$work/bin/df" <<'Y'
#!/bin/sh
printf 'Filesystem 1024-blocks Used Available\n/dev/disk 20000000 0 20000000\n'
Y
chmod +x "$work/bin"/*
SANITIZED=$work/sanitized
export SANITIZED PATH="$work/bin:$PATH"

# ---- Programs that fail on purpose ---------------------------------------------------------------
tree=$work/tree
mkdir -p "$tree/tests/golden" "$tree/build/gpu-pack/lib"
cp tests/gpu_check.sh tests/gpu_report.sh "$tree/tests"
cp tests/golden/prompt_prose.txt "$tree/tests/golden"
pack=$tree/build/gpu-pack
# A card of 4 GB; what runs a model is here, but fails.
cat >"$pack/tandem" <<'Y'
#!/bin/sh
case "$*" in
*--json) printf '{"devices": [\n{\n"free_bytes": 16000000000\n},\n{\n"free_bytes": 3900000000\n}]}\n' ;;
devices*)
    printf 'cpu  A processor\ncuda A card of 4 GB\n'
    echo '     kernels: sm_86 (others: compute_80: not needed; compute_75: not needed)' ;;
*) exit 1 ;;
esac
Y
cat >"$pack/check_ops" <<'Y'
#!/bin/sh
echo "check_ops $* ${CUDA_LAUNCH_BLOCKING:-}" >>"$CALLED"
case "$*" in *image=*) exit 0 ;; esac
echo 'not ok matmul q4_k cuda : computing: CUDA_ERROR_ILLEGAL_ADDRESS (700)'
exit 1
Y
cat >"$pack/bench_device" <<'Y'
#!/bin/sh
printf '[\n  {"op": "copy", "type": "-", "shape": "", "tokens": 0, "us": 1.00, "gflops": 0.0},\n'
printf '  {"op": "matmul", "type": "Q4_K", "shape": "8 x 8", "tokens": 16, "us": 2.00, "gflops": 500.0},\n  {"op": "mat'
exit 124
Y
cat >"$pack/bench_peak" <<'Y'
#!/bin/sh
printf '[\n  {"instruction": "mma", "teraops": 1.0, "types": "Q4_K Q6_K"}\n]\n'
Y
cat >"$pack/make_model" <<'Y'
#!/bin/sh
echo "make_model $*" >>"$CALLED"
: >"$1"
Y
for name in bench_engine bench_link bench_prediction compare_logits; do
    printf '#!/bin/sh\nexit 1\n' >"$pack/$name"
done
chmod +x "$pack"/*
CALLED=$work/called
export CALLED
(cd "$tree" && env -u DRY MODEL=/nowhere DEVICE=cuda RESULTS=results sh tests/gpu_check.sh) >"$work/out" 2>&1
[ $? -eq 1 ]
result fails
json=$tree/results/gpu-a-card-of-4-gb.json
grep -q '^ok logits_of_model # SKIP /nowhere is not here: make model' "$work/out"
result tells_of_a_missing_model
grep -q 'not ok ops: no end after 600 s; what it printed is kept' "$work/out" &&
    python3 - "$json" <<'Y'
import json, sys
run = json.load(open(sys.argv[1]))
assert [line["op"] for line in run["ops"]] == ["copy", "matmul"], run["ops"]
assert run["ops"][1]["percent_of_peak"] == 50.0 and run["ops"][1]["instruction"] == "mma"
assert run["clocks_least_and_most"]["clocks.current.sm"] == [210, 1800]
assert "550.54" in run["nvidia_smi"] and run["image"] == "sm_86" and run["second_image"] == "compute_80"
assert {"step": "ops", "ok": False, "exit_code": 124}.items() <= run["steps"][[s["step"] for s in run["steps"]].index("ops")].items()
Y
result keeps_lines_of_what_has_no_end
grep -q '^check_ops --device cuda:graphs=0 *1$' "$CALLED" && grep -q 'once more with graphs=0' "$work/out"
result names_the_kernel_on_a_second_run
grep -q '^check_ops --device cuda:image=compute_80' "$CALLED"
result checks_ptx_beside_native_code
[ "$(grep -c 'check_ops --quick' "$SANITIZED")" -eq 4 ] && grep -q -- '--tool initcheck' "$SANITIZED" &&
    grep -q -- '--tool synccheck' "$SANITIZED"
result sanitizes_every_op
grep -q 'make_model.*layers=23$' "$CALLED" && grep -q 'writing a model of 23 layers, 3743 MB' "$work/out"
result makes_a_model_that_fits
grep -q '^to send: build/gpu-check/gpu-a-card-of-4-gb.tar.gz' "$work/out" &&
    tar -tzf "$tree/build/gpu-check/gpu-a-card-of-4-gb.tar.gz" >"$work/files" &&
    for file in gpu-a-card-of-4-gb.json gpu-a-card-of-4-gb.md check_ops_again.err nvidia_smi_after.log clocks.csv ops.log; do
        grep -qx "./$file" "$work/files" || { echo "  no $file"; false; break; }
    done
result packs_one_archive
[ -z "$(ls "$tree"/build/gpu-check/*.gguf 2>/dev/null)" ] && [ -d "$tree/build/gpu-check/jit" ]
result removes_models

# ---- The emulated GPU, with one op ---------------------------------------------------------------
emulator=$(dirname "$TANDEM")/emulator
if ! [ -f "$emulator/libcuda.so.1" ] || [ "$TANDEM" != "$PWD/build/tandem" ] || [ -d build/gpu-pack ]; then
    echo 'ok gpu_check_dry_run # SKIP there is no emulator (it needs x86-64 and a C++ compiler)'
    exit 0
fi
LD_LIBRARY_PATH="$emulator:${LD_LIBRARY_PATH:-}" DRY=1 OP=swiglu PARTS='right speed' MODEL=/nowhere \
    SCRATCH="$work/dry" sh tests/gpu_check.sh >"$work/out" 2>&1
result dry_run
! grep '^not ok' "$work/out" && grep -q 'ok engine_compute_75' "$work/out" && grep -q 'ok split_experts' "$work/out"
result dry_run_steps
python3 - "$work/dry/gpu-dry-run.json" <<'Y'
import json, sys
run = json.load(open(sys.argv[1]))
assert run["failed"] == 0 and run["dry_run"]
assert len(run["engine"]) == 2 and len(run["engine_second_image"]) == 2 and len(run["depth"]) == 1
assert [line["op"] for line in run["ops"]] == ["copy", "swiglu", "swiglu"]
for what, only in ("kernels_of_a_prompt", "narrow_mma_q4_k"), ("kernels_of_tokens", "matmul_one_q4_k"):
    kernels = run[what]
    assert 99 < sum(k["percent"] for k in kernels) < 101 and all(k["launches"] > 0 for k in kernels), kernels
    assert only in [k["kernel"] for k in kernels], kernels
told = [line for line in run["logits"].split("\n") if " nmse " in line]
assert len(told) >= 11 and all("bad 0" in line for line in told), told
assert any(line.startswith("mixed streamed nmse") for line in told)
Y
result dry_run_report
# Another GPU, whose ops take half as long and which has one op less.
python3 - "$work/dry/gpu-dry-run.json" "$work/other.json" <<'Y'
import json, sys
run = json.load(open(sys.argv[1]))
run["ops"] = run["ops"][1:]
for line in run["ops"]:
    line["us"] /= 2
json.dump(run, open(sys.argv[2], "w"))
Y
python3 bench/compare_gpus.py "$work/dry/gpu-dry-run.json" "$work/other.json" >"$work/out" 2>&1 &&
    [ "$(grep -c '^| swiglu .* | us | .* | 2.00 |$' "$work/out")" -eq 2 ] && grep -q '^1 lines are of one only' "$work/out" &&
    grep -q '^| pp[0-9]* | tokens_per_second | .* | 1.00 |$' "$work/out" && grep -q '^| commit | ' "$work/out"
result compares_two_gpus
python3 bench/compare_gpus.py "$work/dry/gpu-dry-run.json" >"$work/out" 2>&1 &&
    [ "$(grep -c '^| [pt][pg][0-9]* | tokens_per_second ' "$work/out")" -eq 2 ]
result compares_two_images

# ---- The tool that compares logits ---------------------------------------------------------------
python3 - "$work" <<'Y'
import struct, sys
rows = [1.0, 2.0, 3.0, 4.0, 6.0, 5.0]
other = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
for name, values in ("one", rows), ("other", other), ("bad", [float("nan")] + rows[1:]):
    open(f"{sys.argv[1]}/{name}.f32", "wb").write(struct.pack("<6f", *values))
Y
compare=$TOOLS/lib/compare_logits
"$compare" "$work/one.f32" "$work/other.f32" 3 0.03 >"$work/out" &&
    grep -q 'nmse 2.198e-02 .*argmax 50.00% first_other 1 positions 2 bad 0' "$work/out" &&
    ! "$compare" "$work/one.f32" "$work/other.f32" 3 0.02 >"$work/out" &&
    ! "$compare" "$work/one.f32" "$work/bad.f32" 3 1 >"$work/out" &&
    ! "$compare" "$work/one.f32" "$work/one.f32" 4 1 >"$work/out" 2>&1 &&
    "$compare" "$work/one.f32" "$work/one.f32" 3 0 >"$work/out"
result compares_logits
