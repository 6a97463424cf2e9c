#!/bin/sh
# macos_libraries.sh: builds the libraries that tandem needs for macOS from their sources, into a folder.
#
#   CC="clang" AR="ar" sh packaging/macos_libraries.sh FOLDER
#
# PCRE2, utf8proc and Jansson come as Debian keeps them: through apt-get where it is, else through
# curl, and are compared with their SHA-256 either way. They are linked statically, so that a Mac
# needs no package manager. PCRE2 is built without its compiler at run time. FOLDER gets include/ and
# lib/; sources are kept in build/macos/sources. Quick when everything is there for that compiler.
set -eu

pcre2=c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f
utf8proc=a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc
jansson=c739578bf6b764aa0752db9a2fdadcfe921c78f1228c7ec0bb47fa804c55d17b
archives='pcre2_10.42 utf8proc_2.8.0 jansson_2.14'

root=$1
sources=build/macos/sources
stamp="$CC $AR $archives"
[ "$(cat "$root/complete" 2>/dev/null)" != "$stamp" ] || exit 0

say() { echo "tandem: $*" >&2; }
fail() { say "$@"; exit 1; }
sum() { { sha256sum "$1" 2>/dev/null || shasum -a 256 "$1"; } | cut -d ' ' -f 1; }
right() {
    eval "wanted=\$${1%_*}"
    [ -f "$sources/$1.orig.tar.gz" ] && [ "$(sum "$sources/$1.orig.tar.gz")" = "$wanted" ]
}

# The lists of packages lie beside the sources, so the system's own are as they were.
fetch_by_apt() {
    folder=$(cd "$sources" && pwd)
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
    echo 'deb-src http://deb.debian.org/debian bookworm main' >"$folder/apt/sources.list"
    apt() {
        (cd "$folder/apt" && apt-get -q -o APT::Sandbox::User= -o Dir::State::Lists="$folder/apt/lists" \
            -o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=- \
            -o Dir::Cache="$folder/apt/cache" "$@") </dev/null
    }
    apt update && apt source --download-only "$@" && mv "$folder"/apt/*.orig.tar.gz "$folder" &&
        rm -rf "$folder/apt"
}

fetch_by_curl() {
    for archive in $archives; do
        name=${archive%_*}
        curl -fsSL -m 120 -o "$sources/$archive.orig.tar.gz" \
            "https://deb.debian.org/debian/pool/main/$(printf %.1s "$name")/$name/$archive.orig.tar.gz" ||
            return 1
    done
}

mkdir -p "$sources"
for archive in $archives; do
    right "$archive" && continue
    say "fetching the sources of PCRE2, utf8proc and Jansson (3 MB)"
    fetch=fetch_by_curl
    command -v apt-get >/dev/null 2>&1 && fetch=fetch_by_apt
    if ! $fetch pcre2 utf8proc jansson >"$sources/log" 2>&1; then
        tail -n 5 "$sources/log" >&2
        fail "the sources could not be fetched; put $archives.orig.tar.gz into $sources by hand"
    fi
    break
done
for archive in $archives; do
    right "$archive" || fail "$sources/$archive.orig.tar.gz is not the expected file (sha256 differs)"
done

say "building PCRE2, utf8proc and Jansson for macOS"
rm -rf "$root"
mkdir -p "$root/include" "$root/lib" "$root/source"
for archive in $archives; do tar -xzf "$sources/$archive.orig.tar.gz" -C "$root/source"; done

# archive_of LIBRARY FLAG... -- FILE...
archive_of() {
    library=$1 flags='' objects=''
    shift
    while [ "$1" != -- ]; do flags="$flags $1"; shift; done
    shift
    for file in "$@"; do
        object=$root/source/$library-$(basename "$file" .c).o
        # shellcheck disable=SC2086
        $CC -O2 -w -fPIC -fvisibility=hidden $flags -c -o "$object" "$file"
        objects="$objects $object"
    done
    # shellcheck disable=SC2086
    $AR rcs "$root/lib/$library.a" $objects
}

cd "$root/source"
root=$(cd .. && pwd)
cd pcre2-10.42/src
cp config.h.generic config.h
cp pcre2.h.generic pcre2.h
cp pcre2_chartables.c.dist pcre2_chartables.c
cp pcre2.h "$root/include"
files='auto_possess chartables compile config context convert dfa_match error extuni find_bracket
    jit_compile maketables match match_data newline ord2utf pattern_info script_run serialize
    string_utils study substitute substring tables ucd valid_utf xclass'
# shellcheck disable=SC2046
archive_of libpcre2-8 -I. -DHAVE_CONFIG_H -DSUPPORT_UNICODE -DPCRE2_CODE_UNIT_WIDTH=8 -DPCRE2_STATIC -- \
    $(for file in $files; do echo "pcre2_$file.c"; done)

cd ../../utf8proc-2.8.0
cp utf8proc.h "$root/include"
archive_of libutf8proc -DUTF8PROC_STATIC -- utf8proc.c

cd ../jansson-2.14/src
sed -e 's/@json_inline@/inline/' -e 's/@json_have_[a-z_]*@/1/' jansson_config.h.in >jansson_config.h
: >jansson_private_config.h
cp jansson.h jansson_config.h "$root/include"
archive_of libjansson -I. -DHAVE_STDINT_H -DHAVE_SYS_TYPES_H -DHAVE_UNISTD_H -DHAVE_FCNTL_H -DHAVE_SYS_TIME_H \
    -DHAVE_GETPID -DHAVE_GETTIMEOFDAY -DHAVE_OPEN -DHAVE_READ -DHAVE_CLOSE -DHAVE_STRTOLL -DHAVE_LOCALE_H \
    -DHAVE_LOCALECONV -DHAVE_SCHED_H -DHAVE_SCHED_YIELD -DHAVE_ATOMIC_BUILTINS -DHAVE_SYNC_BUILTINS -DUSE_URANDOM \
    -DINITIAL_HASHTABLE_ORDER=3 -- *.c

rm -rf "$root/source"
echo "$stamp" >"$root/complete"
