#!/bin/sh
# gpu_report.sh: puts what the steps of gpu_check.sh printed into gpu-<name>.json and gpu-<name>.md, so
# that two cards can be compared. Run by gpu_check.sh, whose variables it takes.
#
# A list that a program did not finish has the lines that it printed.
set -u

# A list of JSON, whole or cut off; null if nothing was printed.
list() {
    [ -s "$1" ] || { echo null; return; }
    awk '{ line[NR] = $0 }
        END {
            n = NR
            if (line[n] != "]") {
                if (line[n] !~ /[}],?$/) n-- # in the middle of a line
                sub(/,$/, "", line[n])
                line[++n] = "]"
            }
            for (i = 1; i <= n; i++) print line[i]
        }' "$1"
}
# Objects of one line each as a list.
lines() { if [ -s "$1" ]; then printf '['; grep '}$' "$1" | paste -sd, - | tr -d '\n'; echo ']'; else echo null; fi; }
whole() { if [ -s "$1" ]; then cat "$1"; else echo null; fi; }
# As a string of JSON.
text() { if [ -s "$1" ]; then awk 'BEGIN { printf "\"" } { gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); gsub(/[\t\r]/, " "); printf "%s\\n", $0 } END { print "\"" }' "$1"; else echo null; fi; }

# Matmuls of more than 8 tokens are made of tiles: they get their share of what the instruction
# behind them reaches alone.
shares() { # file of ops
    awk '
    function field(line, key) {
        if (!match(line, "\"" key "\": *\"?[^\",}]*")) return ""
        value = substr(line, RSTART, RLENGTH)
        sub(/^"[a-z_]*": *"?/, "", value)
        return value
    }
    FILENAME == ARGV[1] {
        if (!match($0, /"instruction"/)) next
        split($0, quoted, "\"")
        teraops = quoted[7]
        gsub(/[^0-9.]/, "", teraops)
        n = split(quoted[10], types, " ")
        for (i = 1; i <= n; i++) { peak[types[i]] = 1000 * teraops; instruction[types[i]] = quoted[4] }
        next
    }
    field($0, "op") == "matmul" && peak[field($0, "type")] > 0 && field($0, "tokens") + 0 > 8 {
        type = field($0, "type")
        sub(/}/, sprintf(", \"instruction\": \"%s\", \"percent_of_peak\": %.1f}", instruction[type],
                         100 * field($0, "gflops") / peak[type]))
    }
    { print }' "$SCRATCH/peak.log" "$1"
}
[ -f "$SCRATCH/peak.log" ] || : >"$SCRATCH/peak.log"
for log in "$SCRATCH"/ops.log "$SCRATCH"/ops_compute_*.log; do
    [ -f "$log" ] && shares "$log" >"${log%.log}.made.json"
done

# Clocks and power: least, median and most of the samples while the GPU worked.
clocks() {
    [ -s "$SCRATCH/clocks.csv" ] || { echo null; return; }
    awk -F ', *' '
    NR == 1 { for (i = 1; i <= NF; i++) { sub(/ *\[.*/, "", $i); name[i] = $i }; next }
    { for (i = 1; i <= NF; i++) { sub(/ [A-Za-z%]*$/, "", $i); value[n[i]++, i] = $i } }
    END {
        printf "{"
        for (i = 1; i in name; i++) {
            if (name[i] !~ /clocks.*(sm|mem|current)|power|temperature|pcie/) continue
            low = high = value[0, i] + 0
            for (k = 1; k < n[i]; k++) {
                v = value[k, i] + 0
                if (v < low) low = v
                if (v > high) high = v
            }
            printf "%s\"%s\": [%g, %g]", some++ ? ", " : "", name[i], low, high
        }
        print "}"
    }' "$SCRATCH/clocks.csv"
}

json=$RESULTS/gpu-$slug.json
{
    echo '{'
    printf '"name": "%s", "commit": "%s", "dry_run": %s, "failed": %d, "skipped": %d, "seconds": %d,\n' "$name" \
        "$(git rev-parse --short HEAD 2>/dev/null)" "$([ "$DRY" = 1 ] && echo true || echo false)" \
        "$failed" "$skipped" $(($(date +%s) - started))
    printf '"image": "%s", "second_image": "%s", "first_start_ms": %d, "second_start_ms": %d, "speed_model_layers": %d,\n' \
        "$image" "$other" "$first_ms" "$second_ms" "$layers"
    printf '"steps": '; lines "$SCRATCH/steps.jsonl"
    printf ',\n"system": '; text "$SCRATCH/system.log"
    printf ',\n"compilers": '; text "$SCRATCH/compilers.log"
    printf ',\n"nvidia_smi": '; text "$SCRATCH/nvidia_smi.log"
    printf ',\n"clocks_least_and_most": '; clocks
    printf ',\n"devices": '; whole "$SCRATCH/devices.json"
    printf ',\n"logits": '; text "$SCRATCH/logits.log"
    printf ',\n"engine": '; lines "$SCRATCH/engine.log"
    printf ',\n"engine_second_image": '; lines "$SCRATCH/engine_$other.log"
    printf ',\n"kernels_of_a_prompt": '; lines "$SCRATCH/kernels_prompt.jsonl"
    printf ',\n"kernels_of_tokens": '; lines "$SCRATCH/kernels_token.jsonl"
    printf ',\n"depth": '; lines "$SCRATCH/depth.log"
    printf ',\n"link": '; list "$SCRATCH/link.log"
    printf ',\n"calibration": '; whole "$SCRATCH/calibrate.log"
    printf ',\n"strategies": '; lines "$SCRATCH/strategies_dense.log"
    printf ',\n"strategies_experts": '; lines "$SCRATCH/strategies_experts.log"
    printf ',\n"prediction": '; text "$SCRATCH/prediction.log"
    printf ',\n"streamed": '; text "$SCRATCH/streamed.err"
    printf ',\n"peak": '; list "$SCRATCH/peak.log"
    printf ',\n"ops": '; list "$SCRATCH/ops.made.json"
    printf ',\n"ops_second_image": '; list "$SCRATCH/ops_$other.made.json"
    echo '}'
} >"$json"

code_block() { [ -s "$2" ] && { printf '\n## %s\n\n' "$1"; sed 's/^/    /' "$2"; }; }
# A table of the fields of objects of one line each.
table() { # title, file, fields
    [ -s "$2" ] || return 0
    printf '\n## %s\n\n' "$1"
    echo "$3" | awk '{ gsub(/_/, " "); n = split($0, f, ","); for (i = 1; i <= n; i++) printf "| %s ", f[i]; print "|"
        for (i = 1; i <= n; i++) printf "|---"; print "|" }'
    awk -v fields="$3" '
    BEGIN { n = split(fields, field, ",") }
    /[{]/ && /}/ {
        for (i = 1; i <= n; i++) {
            found = match($0, "\"" field[i] "\": *(\"[^\"]*\"|[^,}]*)")
            value = found ? substr($0, RSTART, RLENGTH) : ""
            sub(/^"[a-z_]*": */, "", value)
            gsub(/"/, "", value)
            printf "| %s ", value
        }
        print "|"
    }' "$2"
}
{
    printf '# %s\n\n' "$name"
    [ "$DRY" = 1 ] && printf 'A dry run: emulated, not run on a GPU.\n\n'
    sed 's/^/    /' "$SCRATCH/devices.log"
    printf '\nKernels %s, second image %s; first start %d ms, second %d ms; clocks (least, most): ' "$image" \
        "${other:-none}" "$first_ms" "$second_ms"
    clocks
    code_block 'Logits beside the CPU' "$SCRATCH/logits.log"
    code_block "A model of 8B shape, $layers of 32 layers, Q4_K_M" "$SCRATCH/engine.log"
    code_block "The same with $other" "$SCRATCH/engine_$other.log"
    table 'Decode behind a context' "$SCRATCH/depth.log" n_depth,n_gen,avg_ts
    table 'Kernels of a prompt' "$SCRATCH/kernels_prompt.jsonl" kernel,percent,ms,launches
    table 'Kernels of tokens one by one' "$SCRATCH/kernels_token.jsonl" kernel,percent,ms,launches
    table 'The link' "$SCRATCH/link.log" test,pinned,block_bytes,us,gb_per_second,copy_us,compute_us,both_us,percent_hidden
    for kind in dense experts; do
        table "Strategies, $kind" "$SCRATCH/strategies_$kind.log" \
            strategy,prompt_planned_ts,prompt_median_ts,gen_planned_ts,gen_median_ts,tokens_agree,nmse,refused
    done
    code_block 'Predictions' "$SCRATCH/prediction.log"
    table 'Instructions alone' "$SCRATCH/peak.log" instruction,teraops,types
    table Ops "$SCRATCH/ops.made.json" \
        op,type,shape,tokens,us,gb_per_second,percent_of_copy,gflops,instruction,percent_of_peak
    [ -f "$SCRATCH/ops_$other.made.json" ] && table "Matmuls with $other" "$SCRATCH/ops_$other.made.json" \
        type,shape,tokens,us,gb_per_second,gflops,percent_of_peak
} >"$RESULTS/gpu-$slug.md"
[ "$RESULTS" = "$SCRATCH" ] || cp "$json" "$RESULTS/gpu-$slug.md" "$SCRATCH"
