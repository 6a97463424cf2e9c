#!/bin/sh
# cli_pull.sh: models by name, from a server of ours that speaks the hub's protocol (tests/lib/hub.py):
# the choice among files, a plan before, broken connections, checksums, hostile answers, the cache.
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}"
. tests/lib/results.sh
prefix=pull_
hub=$work/hub cache=$work/home/cache
mkdir -p "$hub" "$work/home"

if ldd "$TANDEM" 2>/dev/null | grep -q 'not a dynamic' || ! ldd "$TANDEM" | grep -q libcurl; then
    "$TANDEM" pull a/b >"$out" 2>"$err"
    [ $? -eq 1 ] && grep -q 'without libcurl' "$err"
    result says_that_libcurl_is_missing
    exit
fi

python3 tests/lib/hub.py "$hub" "$work/port" "$work/log" 2>"$work/trouble" &
server=$!
trap 'kill $server; rm -rf "$work"' EXIT
while ! [ -f "$work/port" ] && kill -0 $server 2>/dev/null; do sleep 0.05; done
HF_ENDPOINT=http://127.0.0.1:$(cat "$work/port")
HF_HUB_CACHE=$cache HOME=$work/home no_proxy=127.0.0.1,localhost
export HF_ENDPOINT HF_HUB_CACHE HOME no_proxy
unset HF_HUB_OFFLINE TRANSFORMERS_OFFLINE LLAMA_ARG_OFFLINE 2>/dev/null
unset LLAMA_CACHE HF_TOKEN HF_HOME HF_TOKEN_PATH XDG_CACHE_HOME XDG_STATE_HOME 2>/dev/null

# call ARGUMENT...: runs the program; sets code, $out and $err.
call() { capture "$TANDEM" "$@"; }
sum() { sha256sum "$1" 2>/dev/null | cut -c 1-64; }
same() { [ "$(sum "$1")" = "$(sum "$2")" ]; }
pulled() { same "$(cat "$out")" "$1"; } # what pull printed is the path of the same bytes
new_repo() { # ORG/REPO BYTES NAME...: files of random bytes
    repo=$1 bytes=$2
    mkdir -p "$hub/$repo"
    shift 2
    for name; do
        mkdir -p "$(dirname "$hub/$repo/$name")"
        head -c "$bytes" /dev/urandom >"$hub/$repo/$name"
    done
}
behave() { printf '%s\n' "$2" >"$hub/$1/behave"; } # ORG/REPO WORD
fails() { # NAME TEXT ARGUMENT...: code 1, TEXT on standard error, and no whole file anywhere
    name=$1 text=$2
    shift 2
    rm -rf "$cache"
    call "$@"
    [ $code -eq 1 ] && grep -qiF -- "$text" "$err" && ! grep -q . "$out" &&
        [ -z "$(find "$work/home" -path '*snapshots*' \( -type f -o -type l \))" ]
    result "$name"
}

# ---- The model of a name -------------------------------------------------------------------------
mkdir -p "$hub/org/tiny-GGUF" && "$TOOLS/lib/write_tiny" "$hub/org/tiny-GGUF/tiny-F16.gguf"
call pull org/tiny-GGUF
[ $code -eq 0 ] && pulled "$hub/org/tiny-GGUF/tiny-F16.gguf" &&
    grep -q 'this would run here at [0-9.,]* tokens/s' "$err" && [ -L "$(cat "$out")" ]
result plans_then_fetches
[ -f "$cache/models--org--tiny-GGUF/blobs/$(sum "$hub/org/tiny-GGUF/tiny-F16.gguf")" ] &&
    [ "$(cat "$cache/models--org--tiny-GGUF/refs/main")" = 0123456789abcdef0123456789abcdef01234567 ] &&
    [ -z "$(find "$cache" -name '*.incomplete' -o -name '.tandem-*')" ]
result layout_of_the_cache
: >"$work/log"
call run -q -hf org/tiny-GGUF -f tests/golden/tiny/prompt.txt -n 0
[ $code -eq 0 ] && ! [ -s "$work/log" ]
result runs_what_is_here_without_asking
call pull org/tiny-GGUF
[ $code -eq 0 ] && ! grep -q fetching "$err" && ! grep -q ' /org/' "$work/log"
result fetches_nothing_twice
call list
[ $code -eq 0 ] && grep -q '^org/tiny-GGUF:F16 .*tiny-F16.gguf$' "$out"
result list
call list --json
python3 -c 'import json, sys; [m] = json.load(sys.stdin); sys.exit(m["name"] != "org/tiny-GGUF:F16")' <"$out"
result list_json
latin=$work/$(printf 'models\351')
cp -a "$cache" "$latin"
HF_HUB_CACHE=$latin call list --json
python3 -c 'import json, sys; [m] = json.load(sys.stdin); sys.exit("models\ufffd" not in m["path"])' <"$out"
result list_json_of_a_folder_that_is_no_utf8
# The hub's own programs take such paths too.
for folder in '~/cache' "$(realpath --relative-to=. "$cache")"; do
    HF_HUB_CACHE=$folder call list --json
    grep -qF "\"path\": \"$(pwd -P)/" "$out" || grep -qF "\"path\": \"$cache/" "$out"
    result "list_of_${folder%%/*}"
    HF_HUB_CACHE='' HF_HOME=$folder call list
    [ $code -eq 0 ] && grep -qF "cache/hub; 'tandem pull'" "$err"
    result "home_of_the_hub_at_${folder%%/*}"
done
LLAMA_CACHE=$cache HF_HUB_CACHE=$work/none call list
[ $code -eq 0 ] && grep -q '^org/tiny-GGUF:F16 ' "$out"
result list_of_llama_cpp
touch "$work/file"
for command in list 'rm org/tiny-GGUF' 'pull org/tiny-GGUF' 'show org/tiny-GGUF' 'run --offline -p x -hf org/tiny-GGUF'; do
    for folder in "$work/file" "$work/file/hub"; do
        # shellcheck disable=SC2086
        HF_HUB_CACHE=$folder call $command
        [ $code -eq 1 ] && ! [ -s "$out" ] && grep -qF "$folder: Not a directory" "$err" &&
            grep -q '^  HF_HUB_CACHE names it' "$err"
        result "${command%% *}_in_a_file_${folder##*/}"
    done
done
call show org/tiny-GGUF:f16
[ $code -eq 0 ] && grep -q '^runs here  *yes, at' "$out" && [ "$(wc -l <"$out")" -le 12 ]
result show
call rm org/tiny-GGUF:f16
[ $code -eq 0 ] && [ -z "$(ls "$cache")" ]
result rm_leaves_nothing
call rm org/tiny-GGUF
[ $code -eq 1 ] && grep -q 'is not here' "$err"
result rm_of_nothing
# Small files that the hub keeps in git itself: huggingface_hub names their blobs by the SHA-1 of git.
old=$cache/models--org--old-GGUF
mkdir -p "$old/blobs" "$old/snapshots/0123456789abcdef0123456789abcdef01234567"
cp "$hub/org/tiny-GGUF/tiny-F16.gguf" "$old/blobs/00112233445566778899aabbccddeeff00112233"
ln -s ../../blobs/00112233445566778899aabbccddeeff00112233 \
    "$old/snapshots/0123456789abcdef0123456789abcdef01234567/old-F16.gguf"
call rm org/old-GGUF
[ $code -eq 0 ] && grep -q 'removed org/old-GGUF, 31[67]' "$err" && [ -z "$(ls "$cache")" ]
result rm_of_a_blob_that_git_names
# A link to a file elsewhere frees nothing, and that file stays.
mkdir -p "$old/snapshots/0123456789abcdef0123456789abcdef01234567"
ln -s "$hub/org/tiny-GGUF/tiny-F16.gguf" \
    "$old/snapshots/0123456789abcdef0123456789abcdef01234567/old-F16.gguf"
call rm org/old-GGUF
[ $code -eq 0 ] && grep -q 'removed org/old-GGUF, 0 bytes' "$err" && [ -z "$(ls "$cache")" ] &&
    [ -f "$hub/org/tiny-GGUF/tiny-F16.gguf" ]
result rm_of_a_link_to_elsewhere
call plan -hf org/tiny-GGUF
[ $code -eq 0 ] && grep -q '^generation: .* tokens/s' "$out" && [ -z "$(ls "$cache")" ]
result plan_reads_the_header_alone
call run -q --offline -hf org/tiny-GGUF -p x
[ $code -eq 1 ] && grep -q 'not here, and --offline' "$err"
result offline
: >"$work/log"
for row in HF_HUB_OFFLINE=1 HF_HUB_OFFLINE=Yes TRANSFORMERS_OFFLINE=true LLAMA_ARG_OFFLINE=1; do
    for command in 'run -p x -hf' 'plan -hf' 'bench -hf' show pull; do
        # shellcheck disable=SC2086
        capture env "$row" "$TANDEM" $command org/tiny-GGUF
        if [ "$row $command" = 'LLAMA_ARG_OFFLINE=1 pull' ] || [ "${row%%_*}" != LLAMA ]; then
            grep -q "not here, and ${row%%=*} forbids" "$err"
        else
            grep -q 'not here, and --offline forbids' "$err"
        fi && [ $code -eq 1 ] && ! [ -s "$out" ]
        result "${command%% *}_offline_by_$row"
    done
done
! [ -s "$work/log" ]
result offline_asks_nobody
HF_HUB_OFFLINE=0 TRANSFORMERS_OFFLINE=1 call pull -q org/tiny-GGUF
[ $code -eq 0 ] && pulled "$hub/org/tiny-GGUF/tiny-F16.gguf"
result no_longer_offline
: >"$work/log"
HF_HUB_OFFLINE=1 call pull org/tiny-GGUF
[ $code -eq 0 ] && pulled "$hub/org/tiny-GGUF/tiny-F16.gguf" && ! [ -s "$work/log" ]
result pull_offline_of_what_is_here
call rm -q org/tiny-GGUF
call run -q -hf org/tiny-GGUF -f tests/golden/tiny/prompt.txt -n 0
[ $code -eq 0 ] && "$TANDEM" list | grep -q tiny
result run_fetches

new_repo org/many 3000 a-BF16.gguf a-F16.gguf a-Q2_K.gguf sub/a-Q4_K_M.gguf a-Q8_0.gguf mmproj-Q2_K.gguf c-Q2_K.gguf readme.md \
    big/b-Q6_K-00001-of-00002.gguf big/b-Q6_K-00002-of-00002.gguf c-Q5_0-00001-of-00002.gguf
call pull -q org/many
pulled "$hub/org/many/sub/a-Q4_K_M.gguf"
result takes_q4_k_m_without_a_name
for row in 'f16 a-F16.gguf' 'Q2_K a-Q2_K.gguf' 'bf16 a-BF16.gguf'; do
    call pull -q "org/many:${row% *}"
    pulled "$hub/org/many/${row#* }"
    result "takes_${row% *}"
done
call pull -q org/many:Q6_K
pulled "$hub/org/many/big/b-Q6_K-00001-of-00002.gguf" &&
    same "$(dirname "$(cat "$out")")/b-Q6_K-00002-of-00002.gguf" "$hub/org/many/big/b-Q6_K-00002-of-00002.gguf"
result all_parts
second=$(dirname "$(cat "$out")")/b-Q6_K-00002-of-00002.gguf
mv "$second" "$work/second" && call list && mv "$work/second" "$second"
! grep -q Q6_K "$out" && grep -q '2.92 KiB of org/many were fetched in part' "$err"
result list_tells_of_a_part_of_a_model
call pull -q org/many -hff a-Q8_0.gguf
pulled "$hub/org/many/a-Q8_0.gguf"
result by_file
call pull org/many -hff mmproj-Q2_K.gguf
[ $code -eq 0 ] && pulled "$hub/org/many/mmproj-Q2_K.gguf" && ! grep -q 'try it' "$err"
result file_for_images
# A name that the list shows is that of the file beside it.
call list
grep -q '^org/many:Q2_K .* a-Q2_K.gguf$' "$out" && grep -q '^org/many  .* mmproj-Q2_K.gguf$' "$out"
result list_names_files_for_images_by_no_quantization
call pull -q org/many -hff c-Q2_K.gguf && call list
grep -q '^org/many:Q2_K .* a-Q2_K.gguf$' "$out" && grep -q '^org/many  .* c-Q2_K.gguf$' "$out"
result list_names_one_by_a_quantization
call rm -q org/many -hff c-Q2_K.gguf && call rm -q org/many -hff mmproj-Q2_K.gguf
address=https://huggingface.co/org/many
call run -q -mu "$address/resolve/main/a-Q2_K.gguf?download=true" -p x -n 1
[ $code -eq 1 ] && grep -q 'snapshots/.*/a-Q2_K.gguf: ' "$err" # random bytes, but there
result by_address
call pull -q "$address/blob/main/sub/a-Q4_K%5FM.gguf"
pulled "$hub/org/many/sub/a-Q4_K_M.gguf"
result pull_by_address
for bad in "$address/resolve/main/../../x" "$address/resolve/other/a.gguf" https://example.org/org/many http://; do
    call pull -q "$bad"
    [ $code -eq 2 ] && grep -q 'no address of a model' "$err"
    result "no_address_${bad##*/}"
done
call rm -q org/many:F16
"$TANDEM" list >"$out"
[ $code -eq 0 ] && [ "$(grep -c org/many "$out")" -eq 5 ] && grep -q many:BF16 "$out" &&
    ! grep -q many:F16 "$out"
result rm_of_one
call rm -q org/many
! "$TANDEM" list | grep -q org/many && ! [ -e "$cache/models--org--many" ]
result rm_of_all
behave org/many 'pages 2'
: >"$work/log"
for row in 'f16 a-F16.gguf' 'Q2_K a-Q2_K.gguf' 'Q8_0 a-Q8_0.gguf'; do
    call pull -q "org/many:${row% *}"
    pulled "$hub/org/many/${row#* }"
    result "takes_${row% *}_of_a_list_in_pages"
done
[ "$(grep -c '^hub /api/models/org/many/tree/' "$work/log")" -ge 15 ]
result asks_for_all_pages
behave org/many endless
fails hostile_endless 'more than 200 pages' pull -q org/many
behave org/many odd
call pull -q org/many
pulled "$hub/org/many/sub/a-Q4_K_M.gguf"
result leaves_out_files_that_make_no_sense
fails tells_what_it_left_out 'has no Q3_K_S; the hub lists a file with a name that is not safe' \
    pull -q org/many:Q3_K_S
rm "$hub/org/many/behave"
fails unknown_quantization 'take one of BF16, F16' pull -q org/many:Q3_K_S
fails missing_part 'part 2 of 2' pull -q org/many:Q5_0
new_repo org/none 10 model.safetensors
fails no_gguf 'one that ends in -GGUF' pull -q org/none
fails no_repository 'the server answers 404' pull -q org/absent
for name in org '../x' a/../b a/b/c a//b 'a/b:' 'a/b:../x' -- 'a/b c' /etc/passwd; do
    call pull -q "$name"
    [ $code -eq 2 ]
    result "no_name_$name"
done

# ---- Connections break ---------------------------------------------------------------------------
new_repo org/big 400000 big-Q8_0.gguf
big=$hub/org/big/big-Q8_0.gguf
behave org/big 'cut 1'
: >"$work/log"
call pull -q org/big
pulled "$big" && [ "$(grep -c 'files .* bytes=[1-9]' "$work/log")" -ge 20 ]
result goes_on_after_20_breaks
rm -rf "$cache"
behave org/big 'stop 2'
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    "$TANDEM" pull -q org/big >"$out" 2>"$err" && break
    find "$cache" -name '*.incomplete' -size +0 | grep -q . || break
done
[ $i -eq 20 ] && ! [ -s "$out" ]
result keeps_what_came_20_times
rm "$hub/org/big/behave"
: >"$work/log"
call pull -q org/big
pulled "$big" && ! grep -q 'files .* None' "$work/log" && [ -z "$(find "$cache" -name '*.incomplete')" ]
result goes_on_in_another_run

for signal in KILL INT; do
    rm -rf "$cache"
    behave org/big hang
    # A shell without job control starts what is in the background deaf to Ctrl-C.
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execv(sys.argv[1], sys.argv[1:])' "$TANDEM" pull -q org/big >"$out" 2>"$err" &
    child=$!
    until [ -n "$(find "$cache" -name '*.incomplete' -size +300 2>/dev/null)" ] || ! kill -0 $child; do
        sleep 0.05
    done
    kill -s $signal $child
    wait $child
    code=$?
    [ $signal = KILL ] || { [ $code -eq 130 ] && grep -q 'The same command goes on' "$err"; }
    result "stopped_by_$signal"
    rm "$hub/org/big/behave"
    : >"$work/log"
    call pull -q org/big
    pulled "$big" && grep -q 'files .* bytes=[1-9]' "$work/log"
    result "goes_on_after_$signal"
done
for how in norange busy; do
    behave org/big $how
    rm -rf "$cache/models--org--big/snapshots"
    blob=$cache/models--org--big/blobs/$(sum "$big")
    head -c 1000 "$blob" >"$blob.incomplete" && rm "$blob"
    call pull -q org/big
    pulled "$big"
    result "server_is_$how"
done
rm "$hub/org/big/behave"
behave org/big 'later 1'
rm -rf "$cache"
call pull org/big
pulled "$big" && [ "$(grep -c '^tandem: .*answers 429; waiting 1 s, as it asks$' "$err")" -ge 3 ]
result waits_as_the_server_asks
behave org/big 'later 4000'
fails waits_no_hour 'It asks to wait 4000 s: try again then' pull -q org/big
behave org/big 'later 200'
python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execv(sys.argv[1], sys.argv[1:])' "$TANDEM" pull org/big >"$out" 2>"$err" &
child=$!
until grep -q 'waiting 200 s' "$err" || ! kill -0 $child; do sleep 0.05; done
kill -s INT $child
wait $child
[ $? -eq 130 ]
result stops_waiting_at_ctrl_c
rm "$hub/org/big/behave"

# A part takes room until it is removed; nobody removes one that is fetched now.
rm -rf "$cache"
behave org/big hang
"$TANDEM" pull -q org/big >"$out" 2>"$err" &
child=$!
until [ -n "$(find "$cache" -name '*.incomplete' -size +300 2>/dev/null)" ] || ! kill -0 $child; do
    sleep 0.05
done
call rm org/big
[ $code -eq 1 ] && grep -q 'is not here' "$err" && find "$cache" -name '*.incomplete' | grep -q .
result rm_leaves_what_is_fetched_now
kill -s KILL $child
wait $child 2>/dev/null
rm "$hub/org/big/behave"
call list
[ $code -eq 0 ] && ! [ -s "$out" ] && grep -q "[0-9] KiB of org/big were fetched in part; .*rm org/big" "$err"
result list_tells_of_parts
call rm org/big
[ $code -eq 0 ] && grep -q 'removed org/big, [0-9.]* KiB' "$err" && [ -z "$(ls "$cache")" ]
result rm_of_a_part
# ---- Disks ---------------------------------------------------------------------------------------
# A disk without links, such as exFAT, gets the file itself, which is not fetched again. Sanitizers
# allow no library before theirs.
echo 'int symlink(const char *a, const char *b); int symlink(const char *a, const char *b) {
    (void)a, (void)b; *__errno_location() = 1; return -1; }' |
    gcc -include errno.h -shared -fPIC -x c - -o "$work/no_links.so"
if LD_PRELOAD=$work/no_links.so "$TANDEM" version >"$out" 2>&1; then
    rm -rf "$cache"
    LD_PRELOAD=$work/no_links.so call pull -q org/tiny-GGUF
    [ $code -eq 0 ] && pulled "$hub/org/tiny-GGUF/tiny-F16.gguf" && ! [ -L "$(cat "$out")" ] &&
        [ -z "$(ls "$cache/models--org--tiny-GGUF/blobs")" ]
    result pull_without_links
    : >"$work/log"
    call pull org/tiny-GGUF
    [ $code -eq 0 ] && pulled "$hub/org/tiny-GGUF/tiny-F16.gguf" && ! grep -q fetching "$err" &&
        ! grep -q ' /org/' "$work/log"
    result fetches_nothing_twice_without_links
fi

# Two programs that fetch a model at once may link it at once.
echo 'int symlink(const char *a, const char *b); int symlink(const char *a, const char *b) {
    (void)symlinkat(a, -100, b); *__errno_location() = 17; return -1; }' |
    gcc -include errno.h -include unistd.h -Wno-unused-result -shared -fPIC -x c - -o "$work/linked.so"
if LD_PRELOAD=$work/linked.so "$TANDEM" version >"$out" 2>&1; then
    rm -rf "$cache"
    LD_PRELOAD=$work/linked.so call pull -q org/tiny-GGUF
    [ $code -eq 0 ] && pulled "$hub/org/tiny-GGUF/tiny-F16.gguf" && [ -L "$(cat "$out")" ]
    result pull_of_what_another_program_links
fi

# ---- Hostile and broken answers ------------------------------------------------------------------
new_repo org/bad 5000 bad-Q4_K_M.gguf
touch "$work/before"
bad() { # WORDS TEXT
    behave org/bad "$1"
    fails "hostile_$1" "$2" pull -q org/bad
}
bad html 'the hub'"'"'s answer is not JSON: got a web page'
bad loop 'sends us on more than 8 times'
bad 'path ../../../../evil-Q4_K_M.gguf' 'a name that is not safe'
bad 'path /tmp/evil-Q4_K_M.gguf' 'a name that is not safe'
bad 'path .evil-Q4_K_M.gguf' 'a name that is not safe'
bad nosize 'gives no size'
bad nosum 'gives no sha256'
bad badsum 'gives no sha256'
bad missing 'the server answers 404'
bad long 'sends more than the 4999 bytes'
bad short 'ends before byte 5001'
bad flip 'checksum is wrong'
[ -z "$(find "$cache" -type f -path '*blobs*')" ]
result wrong_bytes_do_not_stay
rm -rf "$cache" "$hub/org/bad/behave"
mkdir -p "$cache/models--org--bad/blobs"
head -c 2000 /dev/zero >"$cache/models--org--bad/blobs/$(sum "$hub/org/bad/bad-Q4_K_M.gguf").incomplete"
call pull -q org/bad
[ $code -eq 1 ] && grep -q 'checksum is wrong' "$err"
result wrong_first_part
call pull -q org/bad
pulled "$hub/org/bad/bad-Q4_K_M.gguf"
result begins_anew_after_it
rm -rf "$cache/models--org--bad/snapshots"
blob=$cache/models--org--bad/blobs/$(sum "$hub/org/bad/bad-Q4_K_M.gguf")
head -c 1000 "$blob" >"$blob.incomplete" && rm "$blob"
behave org/bad wrongrange
call pull -q org/bad
[ $code -eq 1 ] && grep -q 'other bytes than were asked for' "$err"
result hostile_wrongrange
[ -z "$(find "$work" -newer "$work/before" -name '*evil*')" ] && ! [ -e /tmp/evil-Q4_K_M.gguf ]
result nothing_is_written_outside

# ---- Tokens --------------------------------------------------------------------------------------
new_repo org/private 100 p-Q4_0.gguf
behave org/private private
fails private_without_token 'HF_TOKEN' pull -q org/private
HF_TOKEN=hf_old call pull -q org/private
[ $code -eq 1 ] && grep -q 'the token is wrong or old' "$err"
result private_with_an_old_token
: >"$work/log"
HF_TOKEN=hf_secret call pull -q org/private
pulled "$hub/org/private/p-Q4_0.gguf" && grep -q '^hub .*Bearer hf_secret' "$work/log" &&
    ! grep -q '^files .*hf_secret' "$work/log"
result token_stays_with_the_hub
mkdir -p "$work/home/.cache/huggingface" && echo hf_secret >"$work/home/.cache/huggingface/token"
rm -rf "$cache"
call pull -q org/private
pulled "$hub/org/private/p-Q4_0.gguf"
result token_of_hf_auth_login
mkdir -p "$work/caches/huggingface"
mv "$work/home/.cache/huggingface/token" "$work/caches/huggingface/token"
rm -rf "$cache"
XDG_CACHE_HOME=$work/caches call pull -q org/private
pulled "$hub/org/private/p-Q4_0.gguf"
result token_in_the_folder_of_caches
: >"$work/log"
HF_ENDPOINT=${HF_ENDPOINT#http://} HF_TOKEN=hf_secret call pull -q org/private
[ $code -eq 1 ] && ! grep -q hf_secret "$work/log"
result token_is_not_sent_in_the_clear
HF_ENDPOINT=file:///etc call pull -q org/x
[ $code -eq 1 ]
result no_other_protocols
# ---- Draft models --------------------------------------------------------------------------------
# They have names too; plan reads no more than the header.
rm -rf "$cache"
mkdir -p "$hub/org/draft-GGUF" && cp "$hub/org/tiny-GGUF/tiny-F16.gguf" "$hub/org/draft-GGUF/draft-F16.gguf"
call plan -m "$hub/org/tiny-GGUF/tiny-F16.gguf" -hfd org/draft-GGUF --device none
[ $code -eq 0 ] && grep -q '^the draft model:' "$out" && [ ! -e "$cache/models--org--draft-GGUF/snapshots" ]
result plan_of_a_draft_model
call run -q --offline -m "$hub/org/tiny-GGUF/tiny-F16.gguf" -hfd org/draft-GGUF -p x
[ $code -eq 1 ] && grep -q 'the draft model: org/draft-GGUF is not here, and --offline' "$err"
result draft_model_offline
call run -hf org/tiny-GGUF -hfd org/draft-GGUF -f tests/golden/tiny/prompt.txt -n 8 --device none
[ $code -eq 0 ] && grep -q '^tandem: fetching org/draft-GGUF:F16' "$err" && grep -q '^tandem: the draft model: on' "$err"
result draft_model
call run -q -m "$hub/org/tiny-GGUF/tiny-F16.gguf" -md org/draft-GGUF -p x
[ $code -eq 1 ] && grep -q 'a model of that name at huggingface.co: -hfd org/draft-GGUF' "$err"
result name_as_a_draft_file
[ -s "$work/trouble" ] && sed 's/^/  server: /' "$work/trouble"
exit 0
