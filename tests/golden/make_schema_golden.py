"""make_schema_golden.py: writes schemas.jsonl: JSON schemas and texts that they allow and refuse.

    venv/bin/pip install jsonschema
    venv/bin/python tests/golden/make_schema_golden.py build/release/tests/lib/walk_schema

The texts are random ones of the grammars that the schemas become; the script ends if jsonschema finds
one of them invalid. "wrong" are texts of other schemas that jsonschema finds invalid. Read by
tests/runtime/test_grammar_schema.c.
"""

import json
import os
import random
import subprocess
import sys

import jsonschema

HERE = os.path.dirname(os.path.abspath(__file__))
N, TEXTS = 220, 6
PATTERNS = ["^[a-z]{1,4}$", "^\\d{3}-\\d{2}$", "^(ab|cd)+x?$", "^[^0-9]{2,5}$", "^a.c$", "^\\w+$",
            "^(?:\\+|-)[0-9]*$", "^$", "^\"\\\\\\.$"]


def leaf(rng):
    low = rng.randint(-1200, 1200)
    return rng.choice([
        {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"},
        {"type": "null"}, {"const": rng.choice(["a\"b", 7, None, {"k": [1, "ä"]}])},
        {"enum": rng.sample(["x", "yy", 1, -2.5, True, None, "", [1]], 3)},
        {"type": "integer", "minimum": low}, {"type": "integer", "maximum": low},
        {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 5000)},
        {"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": low + rng.randint(2, 90)},
        {"type": "string", "minLength": rng.randint(0, 3), "maxLength": rng.randint(3, 9)},
        {"type": "string", "pattern": rng.choice(PATTERNS)},
        {"type": "string", "format": rng.choice(["date", "time", "date-time", "uuid"])},
        {"type": ["string", "null", "integer"]},
    ])


def schema(rng, depth):
    kind = rng.randrange(6) if depth > 0 else 5
    if kind <= 1:
        names = rng.sample(["a", "ab", "abc", "b", "name", "x-1", "ü", "id"], rng.randint(0, 4))
        out = {"type": "object", "properties": {n: schema(rng, depth - 1) for n in names}}
        out["required"] = [n for n in names if rng.random() < 0.5]
        if rng.random() < 0.4:
            for n in [n for n in names if not n.isascii()]:
                del out["properties"][n]
                out["required"] = [r for r in out["required"] if r != n]
            out["additionalProperties"] = rng.choice([True, False, leaf(rng)])
        return out
    if kind == 2:
        low = rng.randint(0, 2)
        out = {"type": "array", "items": schema(rng, depth - 1), "minItems": low}
        return {**out, "maxItems": low + rng.randint(0, 3)} if rng.random() < 0.5 else out
    if kind == 3:
        return {"type": "array", "prefixItems": [schema(rng, depth - 1), leaf(rng)],
                "items": rng.choice([False, leaf(rng)])}
    if kind == 4:
        return {rng.choice(["anyOf"]): [schema(rng, depth - 1), leaf(rng)]}
    return leaf(rng)


def number(rng):
    low, digits = rng.randint(-3000, 3000), rng.choice([0, 1, 2, 3])
    high = low + rng.randint(1, 4000)
    bounds = {rng.choice(["minimum", "exclusiveMinimum"]): low / 10**digits,
              rng.choice(["maximum", "exclusiveMaximum"]): high / 10**digits}
    kept = rng.choice([list(bounds), list(bounds)[:1], list(bounds)[1:]])
    return {"type": rng.choice(["number", "number", "integer"]) if high - low > 2 * 10**digits
            else "number", **{k: bounds[k] for k in kept}}


def whole(rng, i):
    if i % 20 == 3:
        return {"type": "array", "items": number(rng), "minItems": 1}
    if i % 20 == 17:
        return {"type": "object", "properties": {"v": number(rng), "list": {
            "type": "array", "items": {"$ref": "#"}}}, "required": ["list"]}
    if i % 20 == 7:
        return {"$defs": {"node": {"type": "object", "properties": {
            "v": leaf(rng), "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"]}}, "$ref": "#/$defs/node"}
    if i % 20 == 13:
        return {"allOf": [{"type": "object", "properties": {"a": leaf(rng)}, "required": ["a"]},
                          {"properties": {"b": leaf(rng)}, "required": ["b"]}]}
    return schema(rng, 3) if i else {}


def main():
    rng = random.Random(7)
    schemas = [whole(rng, i) for i in range(N)]
    lines = "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in schemas)
    out = subprocess.run([sys.argv[1], str(TEXTS)], input=lines.encode(), capture_output=True)
    if out.returncode:
        sys.exit(out.stderr.decode())
    texts = [block.split("\n") for block in out.stdout.decode().split("\n\n")[:N]]
    texts = [[t for t in block if t] for block in texts]
    judges = [jsonschema.Draft202012Validator(
        s, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER) for s in schemas]
    for s, judge, block in zip(schemas, judges, texts):
        for text in block:
            for error in judge.iter_errors(json.loads(text)):
                sys.exit("%s\n%s\n%s" % (json.dumps(s), text, error.message))
    with open(os.path.join(HERE, "schemas.jsonl"), "w") as file:
        for i, (s, judge, block) in enumerate(zip(schemas, judges, texts)):
            others = [t for other in rng.sample(texts, 6) for t in other[:1]]
            wrong = [t for t in others if not judge.is_valid(json.loads(t))]
            file.write(json.dumps({"schema": s, "texts": block, "wrong": wrong},
                                  ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
