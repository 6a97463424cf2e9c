#!/bin/sh
# cli_glibc.sh: on which distributions the program starts, by the newest version of glibc that its
# symbols ask for, and by the calls that only newer versions of hwloc have. Debian 11 and Ubuntu
# 20.04 have glibc 2.31, Ubuntu 22.04 has 2.35, Debian 12 has 2.36, Ubuntu 24.04 has 2.39. Nothing of
# Ubuntu is run.
set -u
: "${TANDEM:=build/tandem}"

# at_most A B: whether version A is no newer than B.
at_most() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | tail -n 1)" = "$2" ]; }

# Ubuntu 20.04 has hwloc 2.1, without kinds of cores: such a call may only be a weak symbol.
calls=$(objdump -T "$TANDEM" | grep hwloc_)
if echo "$calls" | grep hwloc_cpukinds | grep -qvE '^[0-9a-f]+ +w '; then
    echo 'not ok glibc_hwloc_of_ubuntu' && echo "$calls" | grep hwloc_cpukinds
elif [ -n "$calls" ]; then
    echo 'ok glibc_hwloc_of_ubuntu'
fi

here=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')
needed=$(objdump -T "$TANDEM" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
# A program may ask for nothing newer than the glibc of the oldest system that its build is for.
if [ -z "$here" ] || ! at_most "$here" 2.36; then
    echo "ok # SKIP built with glibc ${here:-that is none}, for no older system"
    exit
fi
if at_most "$here" 2.31; then oldest=2.31; else oldest=2.35; fi
if [ -n "$needed" ] && at_most "$needed" "$oldest"; then
    echo "ok glibc_of_ubuntu_and_debian ($needed of $oldest, built with $here)"
else
    echo "not ok glibc_of_ubuntu_and_debian (needs $needed, at most $oldest)"
fi
