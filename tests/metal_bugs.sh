#!/bin/sh
# metal_bugs.sh: proof that check_ops finds bugs in the Metal kernels. Each line below changes one
# kernel; compiled so, check_ops must say "not ok" for its op, and not without the change.
#
#   sh tests/metal_bugs.sh   through make metal-bugs, which builds check_ops and the fake Metal
#
# A line: file, op, matrix (1: with matrices of simdgroups), what is wrong, the change as a command
# of sed.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tree/build/release"
cp -a Makefile base kernels planner runtime tests bench configs "$work/tree"
cp -a build/metal "$work/tree/build"
cp -a build/release/metal build/release/emulator "$work/tree/build/release"

# check_op LIBRARY: the op in hand against its definition, on that Metal. Its output goes to a file.
check_op() {
    timeout 200 build/release/tests/kernels/check_ops --quick --tokens 33 --op "$op" --device \
        "metal:driver=$1,matrix=$matrix" >"$work/out" 2>&1
}

sound=' ' # pairs of op and matrix that pass without a change
while IFS='|' read -r file op matrix label change; do
    [ -n "$file" ] || continue
    target=$work/tree/kernels/metal/$file.metal
    sed -i "$change" "$target"
    why='' code=0
    case $sound in
    *" $op,$matrix "*) ;;
    *) check_op build/emulator/libmetal.so && sound="$sound$op,$matrix " || why='it fails unchanged' ;;
    esac
    if [ "$why" ]; then
        :
    elif cmp -s "kernels/metal/$file.metal" "$target"; then
        why='the change does not apply'
    elif ! make -s -C "$work/tree" -o build/metal/metal_source.c BUILD=release \
        CUDA=0 fake-metal >"$work/out" 2>&1; then
        why='it does not compile'
    else
        check_op "$work/tree/build/emulator/libmetal.so"
        code=$?
        { [ $code -ne 0 ] && grep -q "^not ok $op" "$work/out"; } || why='nothing was found'
    fi
    if [ -z "$why" ]; then
        echo "ok ${op}_$label"
    else
        echo "not ok ${op}_$label"
        echo "  $why, code $code"; tail -n 3 "$work/out"
    fi
    cp "kernels/metal/$file.metal" "$target"
done <<'END'
norm|rms_norm|1|without_eps|s/ + a.eps);/);/
norm|rms_norm|1|mean_is_kept|s/const T v = r.x\[c\] - mean/const T v = r.x[c]/
norm|rms_norm|1|residual_is_scaled_too|s/normed = normed + r.residual/normed = normed * r.residual/
rope|rope_table|1|positions_are_floats|s/ulong(long(position)) \* frequency/ulong(long(float(frequency) * float(position)))/
rope|rope_table|1|without_second_float|s/rope_units(high) + rope_units(low)/rope_units(high)/
rope|rope|1|turns_the_other_way|s/x \* sine + y \* cosine/y * cosine - x * sine/
rope|rope|1|head_is_of_k_too_early|s/h < a.n_heads ?/h < a.n_heads - 1 ?/
kv|kv_store|1|rounds_down|s/rint(value \* inverse)/floor(value * inverse)/
kv|kv_store|1|q4_0_has_17_steps|s/min(((int(floor(halves)) + 1) >> 1) + 8, 15)/(((int(floor(halves)) + 1) >> 1) + 8)/
kv|kv_store|1|a_negative_row_is_stored|s/if (row < 0) return;/if (row < -1) return;/
kv_cache|attention|0|window_is_one_short|s/position - window + 1/position - window + 2/
kv_cache|attention|0|window_is_one_long|s/position - window + 1 : 0/position - window : 0/
kv_cache|attention|0|cap_is_left_out|s/softcap \* tanh(score . softcap)/score/
kv_cache|attention|1|q4_0_halves_swapped|s/c . 16 % 2 \* 4/(1 - c \/ 16 % 2) * 4/
attention|attention|0|sums_are_not_shrunk|s/sums\[i\] = sums\[i\] \* job.shrink\[h\]/sums[i] = sums[i]/
attention|attention|0|sink_in_every_split|s/ && job.split == 0//
attention|attention|0|merge_forgets_maxima|s/value += exp(tails\[split \* stride\] - largest) \*/value +=/
attention|attention|0|last_key_is_not_seen|s/key <= job.last;/key < job.last;/
attention_tiles|attention|1|sums_are_not_shrunk|s/if (simd_min(own) == 1) return;/if (simd_min(own) <= 1) return;/
attention_tiles|attention|1|sequences_are_mixed|s/sequence\[next\] != sequence\[t\] ||//
attention_tiles|attention|1|sink_counts_four_times|s/t.lane % 4 == 0 ? 1.0f : 0.0f/1.0f/
attention_tiles|attention|1|future_keys_are_seen|s/at >= r.first \&\& at <= r.last/at >= r.first/
attention_tiles|attention|1|a_nan_reaches_other_rows|s/T(number_or_zero(weight))/T(weight)/
attention_tiles|attention|1|an_infinite_maximum_reaches_other_rows|s/= number_or_zero(shrink)/= shrink/
swiglu|swiglu|1|row_gate_is_left_out|s/= share \*/= (share > 2 ? share : 1.0f) */
swiglu|swiglu|1|up_is_not_clamped|s/up = max(min(up, a.limit), -a.limit) + 1/up = up + 1/
rows|gather_rows|1|last_column_is_left_out|s/c < last; c += GATHER_THREADS/c < last - 1; c += GATHER_THREADS/
rows|split_rows|1|writes_a_column_too_many|s/if (c < a.n_first)/if (c <= a.n_first)/
rows|cap_logits|1|scale_is_left_out|s/a.scale \* x\[i\]/x[i]/
route|route|1|ties_go_to_the_higher_number|s/if (ranks\[i\] <= best) continue/if (ranks[i] < best) continue/
route|route|1|one_group_too_many|s/i < a.n_groups_used; i++/i <= a.n_groups_used; i++/
route|route|1|groups_by_two_always|s/a.groups_by_best ? best : //
route|route|1|pairs_lose_their_order|s/if (i < own) place += equal_of\[i\]/if (i > own) place += equal_of[i]/
route|route|1|a_nan_is_the_best|s/RANK_NAN = 1;/RANK_NAN = 0xffffffffu;/
route|combine_experts|1|absent_experts_count|s/slots\[chosen\[pair + k\]\] >= 0;/slots[chosen[pair + k]] >= -9;/
route|combine_experts|1|rows_of_absent_experts_from_x|s/(is_here ? x : absent)/(a.absent != 0 || is_here ? x : absent)/
state|short_conv|1|state_is_one_token_old|s/inputs\[j\] = inputs\[j + 1\];//
state|delta_rule|1|without_decay|s/fma(g.k\[i\], change, t.decay \* state\[j\])/fma(g.k[i], change, state[j])/
state|delta_rule|1|new_sequences_have_a_state|s/from < 0 ? 0.0f : states\[((long(from) \* a.n_heads + h)/states[((long(max(from, 0)) * a.n_heads + h)/
state|mamba_scan|1|without_d|s/fma(d\[h\], own_x, sum)/fma(0 * d[h], own_x, sum)/
END
