#!/usr/bin/env python3
"""Lists what a Mach-O program of 64 bits takes from libraries.

    python3 tests/macos/imports.py FILE

Prints "cpu NAME", "minimum VERSION", "library PATH" for each library that the system has to load,
and "symbol LIBRARY NAME" for each undefined symbol, where LIBRARY is the path that the linker noted
for it. Exit code 1 with a sentence for anything else than such a program.
"""
import struct
import sys

MAGIC, EXECUTE = 0xFEEDFACF, 2
SYMTAB, BUILD_VERSION, MIN_MACOS = 0x2, 0x32, 0x24
DYLIBS = {0xC, 0x80000018, 0x8000001F, 0x20, 0x80000023}
CPUS = {0x0100000C: "arm64", 0x01000007: "x86_64"}
EXTERNAL, TYPE, UNDEFINED, STAB = 0x01, 0x0E, 0x00, 0xE0


def text(data, at):
    return data[at:data.index(b"\0", at)].decode()


def commands(data, count):
    at = 32
    for _ in range(count):
        kind, size = struct.unpack_from("<II", data, at)
        yield kind, at
        at += size


def main(path):
    data = open(path, "rb").read()
    if len(data) < 32 or struct.unpack_from("<I", data)[0] != MAGIC:
        sys.exit(f"{path} is no Mach-O file of 64 bits")
    cpu, _, kind, count = struct.unpack_from("<IIII", data, 4)
    if kind != EXECUTE:
        sys.exit(f"{path} is no program")
    print("cpu", CPUS.get(cpu, hex(cpu)))
    libraries, symbols = [], None
    for command, at in commands(data, count):
        if command in DYLIBS:
            libraries.append(text(data, at + struct.unpack_from("<I", data, at + 8)[0]))
        elif command == SYMTAB:
            symbols = struct.unpack_from("<IIII", data, at + 8)
        elif command in (BUILD_VERSION, MIN_MACOS):
            version = struct.unpack_from("<I", data, at + (12 if command == BUILD_VERSION else 8))[0]
            print(f"minimum {version >> 16}.{version >> 8 & 255}")
    for library in libraries:
        print("library", library)
    if symbols is None:
        sys.exit(f"{path} has no table of symbols")
    table, n, strings, _ = symbols
    for i in range(n):
        name, kind, _, flags, _ = struct.unpack_from("<IBBHQ", data, table + 16 * i)
        if kind & STAB or kind & TYPE != UNDEFINED or not kind & EXTERNAL:
            continue
        ordinal = flags >> 8
        known = 1 <= ordinal <= len(libraries)
        print("symbol", libraries[ordinal - 1] if known else "none", text(data, strings + name))


main(sys.argv[1])
