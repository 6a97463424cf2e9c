#!/bin/sh
# cli_library.sh: shows that libtandem is what runtime/tandem.h says: the header stands alone in C and
# C++, both libraries export its calls and nothing else, and a program built against either of them,
# as they are installed, writes what `tandem run` writes.
set -u
root=$(pwd)
build=$(dirname "$TANDEM")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
header=$root/runtime/tandem.h
CC=gcc CXX=g++
strict='-Wall -Wextra -Werror -pedantic'

check() { # name, exit code of the test before it
    if [ "$2" -eq 0 ]; then echo "ok library_$1"; else echo "not ok library_$1"; fi
}

# shellcheck disable=SC2086
{
    $CC -std=c11 $strict -fsyntax-only -x c "$header"
    check header_is_c11 $?
    $CXX -std=c++17 $strict -fsyntax-only -x c++ "$header"
    check header_is_cpp17 $?
}

# Sanitized builds make no libraries; tests/runtime/test_library.c is theirs.
[ -f "$build/libtandem.a" ] || exit 0

# The calls that the header declares, and what each library defines for others.
sed -n 's/.*[ *]\(tandem_[a-z_]*\)(.*/\1/p' "$header" | grep -v '_fn$' | sort -u >"$work/declared"
exported() { nm --defined-only "$@" | awk 'NF == 3 { print $3 }' | sort -u; }
exported -g "$build/libtandem.a" >"$work/archive"
exported -D "$build/libtandem.so" >"$work/shared"
[ -s "$work/declared" ] && diff "$work/declared" "$work/archive"
check archive_exports_the_header_alone $?
diff "$work/declared" "$work/shared"
check shared_library_exports_the_header_alone $?

prefix=$work/usr
env -u MAKEFLAGS -u MAKELEVEL make -s install PREFIX="$prefix" TOP="$build" >"$work/install.log" 2>&1
check installs $?
PKG_CONFIG_PATH=$prefix/lib/pkgconfig
export PKG_CONFIG_PATH
[ "$(pkg-config --modversion tandem)" = "$("$prefix/bin/tandem" --version | sed 's/tandem //')" ]
check pkg_config_tells_the_version $?

# hello.c in three ways: C with each library, C++ with one.
example=$root/tests/examples/hello.c
[ "$(wc -l <"$example")" -le 40 ]
check example_has_40_lines $?
# shellcheck disable=SC2046,SC2086
{
    $CC -std=c11 $strict "$example" $(pkg-config --cflags tandem) "$prefix/lib/libtandem.a" \
        $(pkg-config --static --libs tandem | sed 's/-L[^ ]*//; s/-ltandem//') -o "$work/archived"
    check links_the_archive $?
    $CC -std=c11 $strict "$example" $(pkg-config --cflags --libs tandem) -o "$work/linked"
    check links_the_shared_library $?
    $CXX -std=c++17 $strict -x c++ "$example" $(pkg-config --cflags --libs tandem) -o "$work/cpp"
    check links_from_cpp $?
}

prompt='The capital of France is'
LD_LIBRARY_PATH=$prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
"$TANDEM" run -q -m "$MODEL" -p "$prompt" -n 32 --temp 0 >"$work/expected" 2>/dev/null
for program in archived linked cpp; do
    [ -s "$work/expected" ] && "$work/$program" "$MODEL" "$prompt" >"$work/text" && cmp "$work/expected" "$work/text"
    check "${program}_writes_what_tandem_run_writes" $?
done

# STATIC=1 needs no library but glibc and what has one number on many systems.
env -u MAKEFLAGS -u MAKELEVEL make -s TOP="$work/static" STATIC=1 "$work/static/tandem" >"$work/static.log" 2>&1
readelf -d "$work/static/tandem" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' >"$work/needed"
[ -s "$work/needed" ] && ! grep -vE '^(lib(c|m|gcc_s|hwloc|curl)|ld-linux.*)[.]so' "$work/needed"
check static_program_needs_few_libraries $?
"$work/static/tandem" run -q -m "$MODEL" -p "$prompt" -n 32 --temp 0 2>/dev/null | cmp "$work/expected" -
check static_program_writes_what_tandem_run_writes $?

# The program in README.md writes until the text ends; here it only has to fail.
awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md >"$work/readme.c"
# shellcheck disable=SC2046,SC2086
$CC -std=c11 $strict "$work/readme.c" $(pkg-config --cflags --libs tandem) -o "$work/readme"
check readme_compiles $?
"$work/readme" "$work/nowhere.gguf" "$prompt" >/dev/null 2>&1
[ $? -eq 1 ]
check readme_fails_without_a_model $?

ldd "$work/linked" | grep -q 'libtandem.so.0 => '"$prefix"
check shared_library_has_its_name $?

! "$work/linked" "$work/nowhere.gguf" "$prompt" >/dev/null 2>"$work/errors"
[ $? -eq 0 ] && grep -q nowhere.gguf "$work/errors"
check example_tells_errors $?

# ---- What install brought, uninstall takes away --------------------------------------------------
for file in bin/tandem share/man/man1/tandem.1 share/bash-completion/completions/tandem \
    share/zsh/site-functions/_tandem share/fish/vendor_completions.d/tandem.fish include/tandem.h; do
    [ -s "$prefix/$file" ] || echo "$file"
done >"$work/lacking"
[ ! -s "$work/lacking" ]
check installs_manual_and_completions $?
env -u MAKEFLAGS -u MAKELEVEL make -s uninstall PREFIX="$prefix" TOP="$build" >"$work/install.log" 2>&1 &&
    [ "$(find "$prefix" ! -type d | wc -l)" -eq 0 ]
check uninstalls $?

# ---- The Debian package --------------------------------------------------------------------------
if command -v dpkg-shlibdeps >/dev/null; then
    mkdir "$work/deb"
    env -u MAKEFLAGS -u MAKELEVEL make -s install-program PREFIX=/usr DESTDIR="$work/deb/root" \
        TOP="$build" >"$work/install.log" 2>&1 &&
        LEVEL=0 sh "$root/packaging/deb.sh" 1.2.3 "$work/deb/root" "$work/x.deb" >>"$work/install.log" 2>&1 &&
        dpkg-deb -x "$work/x.deb" "$work/unpacked" &&
        [ "$("$work/unpacked/usr/bin/tandem" version)" = "$("$build/tandem" version)" ] &&
        [ -s "$work/unpacked/usr/share/man/man1/tandem.1.gz" ] &&
        dpkg-deb -f "$work/x.deb" Depends | grep -q 'libjansson4'
    check debian_package $?
fi
