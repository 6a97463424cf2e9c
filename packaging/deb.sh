#!/bin/sh
# deb.sh: makes a Debian package of the program, its manual page and completions.
#
#   sh packaging/deb.sh VERSION ROOT OUT     after make install-program PREFIX=/usr DESTDIR=ROOT
#
# MAINTAINER="Name <address>" is who packs it, LEVEL=0 to 9 how hard it is compressed. The package depends on the libraries that the program is linked with, as dpkg-shlibdeps finds them.
set -eu
version=$1 out=$3
root=$(cd "$2" && pwd)
maintainer=${MAINTAINER:-tandem <tandem@users.noreply.github.com>}
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"

strip --remove-section=.comment --remove-section=.note "$root/usr/bin/tandem"
gzip -9nf "$root/usr/share/man/man1/tandem.1"
# Debian keeps completions of zsh for its own packages here.
mkdir -p "$root/usr/share/zsh/vendor-completions"
mv "$root/usr/share/zsh/site-functions/_tandem" "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"

docs=$root/usr/share/doc/tandem
mkdir -p "$docs"
{
    echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
    echo
    echo 'Files: *'
    sed -n 's/^Copyright (c) /Copyright: /p' LICENSE
    echo 'License: Expat'
    sed -e '1,/^Copyright/d' -e '/./,$!d' -e 's/^$/./' -e 's/^/ /' LICENSE
} >"$docs/copyright"
{
    echo "tandem ($version) unstable; urgency=medium"
    echo
    echo '  * See CHANGELOG.md of the sources.'
    echo
    echo " -- $maintainer  $(LC_ALL=C date -u -R -r LICENSE)"
} | gzip -9n >"$docs/changelog.gz"

mkdir -p "$root/../debian" "$root/DEBIAN"
printf 'Source: tandem\n\nPackage: tandem\nArchitecture: any\n' >"$root/../debian/control"
depends=$(cd "$root/.." && dpkg-shlibdeps -O "$root/usr/bin/tandem" 2>/dev/null |
    sed -n 's/^shlibs:Depends=//p')
if [ -z "$depends" ]; then
    echo 'deb.sh: dpkg-shlibdeps of dpkg-dev does not name the libraries of the program' >&2
    exit 1
fi
cat >"$root/DEBIAN/control" <<X
Package: tandem
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
Depends: $depends
Section: science
Priority: optional
Description: run language models across GPU and CPU
 tandem runs language models in GGUF files, also those larger than the memory
 of the GPU: a planner predicts what each placement of the weights would cost,
 and picks the fastest one that fits.
X
(cd "$root" && find usr -type f -exec md5sum {} + >DEBIAN/md5sums)
chmod -R u=rwX,go=rX "$root"
dpkg-deb --root-owner-group -Zxz "-z${LEVEL:-6}" -b "$root" "$out" >/dev/null
echo "$out"
