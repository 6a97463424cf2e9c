#!/usr/bin/env python3
"""Renders conversations with Python's Jinja2, as Hugging Face does, for tests/runtime/test_jinja.c.

    python3 tests/golden/make_jinja_golden.py --check PROGRAM FOLDER   compares every template of a folder
    python3 tests/golden/make_jinja_golden.py                          writes jinja.jsonl, for those of templates/

A development tool; the test only reads what it wrote. It needs the Python package jinja2. FOLDER has
templates as *.jinja: the source package of llama-cpp-python carries many, in
vendor/llama.cpp/models/templates. PROGRAM is build/release/tests/runtime/test_jinja.
"""

import datetime
import hashlib
import json
import os
import subprocess
import sys
import tempfile

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime.datetime(2026, 11, 21)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The \"city\", e.g. Zürich"},
                    "days": {"type": "integer", "description": "How many days", "default": 3},
                    "units": {"type": "string", "enum": ["metric", "imperial"]},
                },
                "required": ["city"],
            },
        },
    }
]


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, **arguments):
    return {"id": "call12345", "type": "function", "function": {"name": name, "arguments": arguments}}


PLAIN = [message("user", "U1"), message("assistant", "A1"), message("user", "U2")]
CONVERSATIONS = [
    {"messages": [message("system", "S")] + PLAIN, "add_generation_prompt": True},
    {"messages": PLAIN, "add_generation_prompt": True, "enable_thinking": False},
    {
        "messages": [
            message("system", "  zażółć 日本語\n\n"),
            message("user", "\n\n <|im_end|> 😀 it's \"x\" \n"),
            message("assistant", "<think>\nhm\n</think>\n\n an answer\t", reasoning_content="because"),
            message("user", " [INST] नमस्ते \r\n x"),
            message("assistant", "last"),
        ],
        "add_generation_prompt": False,
    },
    {
        "messages": [
            message("system", "Be brief."),
            message("user", "Weather in Zürich?"),
            message("assistant", "", tool_calls=[call("get_weather", city="Zürich", days=2)]),
            message("tool", '{"sky": "clear", "t": 21.5}', name="get_weather", tool_call_id="call12345"),
            message("assistant", "It is clear."),
            message("user", "And tomorrow?"),
        ],
        "tools": TOOLS,
        "add_generation_prompt": True,
    },
    {
        "messages": [
            message("user", "Think."),
            message("assistant", "42", reasoning_content="six times seven"),
            message("user", "Sure?"),
        ],
        "add_generation_prompt": True,
        "enable_thinking": True,
        "reasoning_effort": "low",
    },
]
for conversation in CONVERSATIONS:
    conversation.update(bos_token="<s>", eos_token="</s>")


class Generation(jinja2.ext.Extension):
    """Hugging Face's tag around what the model said: it keeps the body."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def refuse(text):
    raise jinja2.TemplateError(text)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    return env


def python_text(template, conversation):
    """The rendering, or None where the template or Python refuses."""
    try:
        return template.render(**conversation)
    except Exception:
        return None


def program_text(program, path, conversation):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(conversation, file, ensure_ascii=False)
        file.flush()
        done = subprocess.run([program, "--render", path, file.name], capture_output=True, check=False)
    return done.stdout.decode() if done.returncode == 0 else None, done.stderr.decode()


def templates_of(folder):
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".jinja")]


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def check(program, folder):
    equal = different = stricter = 0
    for path in templates_of(folder):
        template = environment().from_string(read(path))
        for i, conversation in enumerate(CONVERSATIONS):
            expected = python_text(template, conversation)
            text, error = program_text(program, path, conversation)
            if text == expected:
                equal += 1
            elif expected is None:
                stricter += 1  # Python refuses what is undefined, which is nothing here
                print(f"{os.path.basename(path)} {i}: only Python refuses it")
            else:
                different += 1
                print(f"{os.path.basename(path)} {i}: differs {error}")
    print(f"{equal} renderings are equal, {different} differ, {stricter} are refused by Python alone")
    return different > 0


# Constructs, with what Jinja2 makes of them; d and l are data.
DATA = {"d": {"b": 2, "a": [1, "x", None, True, 1.5], "é": "it's", "C": {}}, "l": ["b", "A", "c", "a"], "s": " Ab c\n", "z": []}
SNIPPETS = r"""
{{ 1 + 2 * 3 - 4 // 3 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1e3 }} {{ 0.1 + 0.2 }}
{{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ 123456789.125 }} {{ -0.0 }} {{ 3.0 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'b'] ~ {'k': (1,)} }} {{ 'x' * 3 }} {{ [1] * 2 }} {{ [1] + [2] }} {{ (1,) + (2, 3) }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' == 1 }} {{ none == none }}
{{ not true == false }} {{ not 1 in [2] }} {{ 1 not in [2] }} {{ 'b' in 'abc' }} {{ '' in 'a' }} {{ 'a' in d }} {{ 2 in (1, 2) }}
{{ true and 0 or 'x' }} {{ '' or none }} {{ 'a' if false }}|{{ 'a' if 1 else 'b' if 0 else 'c' }} {{ (1 if d else 2) + 3 }}
{{ d.a[0] }} {{ d['a'][-1] }} {{ d.a.4 }} {{ d.nothing }}|{{ d['é'] }} {{ d.a[9] }}|{{ s[0] }}{{ s[1] }}{{ s[-2] }} {{ none.x }}|
{{ 'abcdef'[1:3] }} {{ 'abcdef'[:-2] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[-3:] }} {{ 'aébç'[1:3] }} {{ 'abcdef'[4:1:-2] }} {{ 'abc'[5:] }}|
{{ [1, 2, 3][1:] }} {{ [1, 2, 3][::-1] }} {{ (1, 2, 3)[:1] }} {{ [1, 2, 3][-9:2] }} {{ [1, 2, 3][::2] }} {{ range(5)[1:3] | list }}
{{ "a\tb\n\"\'\\ \x41\u00e9\U0001F600 \q" }} {{ 'con' 'cat' "ed" }} {{ 'é' | length }}
{{ [] }} {{ () }} {{ {} }} {{ [1, [2, [none]]] }} {{ {'a': {'b': [true]}} }} {{ ["it's", 'say "x"', 'both \' "', 'é\n'] }}
{{ ['a\u200db\u00a0c', '\u00ad\u2028\ufeff', '\u3000é', '\U0001F600\u200d', '\U000E0061', '\x7f\x85', '\ue000'] }} {{ {'\u200b': 1} }} {{ 'a\x7fb\u2028' | tojson }} {{ 'a\x7fb\u2028' | tojson(ensure_ascii=true) }}
{{ d }} {{ d | tojson }} {{ d | tojson(indent=2) }} {{ [] | tojson(indent=2) }} {{ {} | tojson }} {{ 'é\n"\\/<>&' | tojson }} {{ 1.0 | tojson }}
{{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ '{"a": [1, 2.5, null]}' | from_json }}
{{ l | sort }} {{ l | sort(reverse=true) }} {{ l | sort(case_sensitive=true) }} {{ d | dictsort }} {{ [3, 1, 2] | sort }} {{ [d, {'b': 1}] | sort(attribute='b') | map(attribute='b') | list }}
{{ l | unique | list }} {{ [1, 2, 1, 'a', 'A'] | unique | list }} {{ l | first }} {{ l | last }} {{ [] | first }}| {{ l | reverse | list }} {{ 'abc' | reverse }}
{{ l | join }} {{ l | join(', ') }} {{ [1, none] | join('-') }} {{ [{'x': 1}, {'x': 2}] | join('+', attribute='x') }} {{ [1, 2] | sum }} {{ [1.5, 2] | sum }}
{{ l | min }} {{ l | max }} {{ [3, 1] | min }} {{ l | length }} {{ d | count }} {{ nothing | length }} {{ 'ab' | list }} {{ d | list }}
{{ s | trim }}| {{ '--x--' | trim('-') }} {{ s | upper }} {{ s | lower }} {{ 'straße éa' | upper }} {{ 'hello wORLD-x y_z'.title() }} {{ 'hELLO World' | capitalize }}
{{ 'a-b-c' | replace('-', '+') }} {{ 'a-b-c' | replace('-', '', 1) }} {{ 'abc' | replace('', '.') }} {{ 12 | string + '3' }} {{ 'x' | safe }}
{{ '<' | safe + '<&>"\'é' }} {{ '<' + '>' | safe + 'a' }} {{ '<' | safe ~ '<' }} {{ (('<' | safe) + '' | trim)[:1] + '<' }} {{ '' + ('' | safe) + '<' }} {{ 1 | safe + '&' }}
{{ '1\n2\n\n3' | indent(2) }} {{ '1\n2\n\n3' | indent(2, true) }} {{ '1\n\n3' | indent(2, blank=true) }} {{ 'a\n' | indent }}|
{{ 'a\n  \n\nb\n \t' | indent(2) }} {{ 'a\n  \n' | indent(1, true) }} {{ ' \nb' | indent(3, first=true) }} {{ '' | indent(2, true) }} {{ '\nb' | indent(2, true) }} {{ 'a\n \n' | indent(2, blank=true) }}|
{{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 3.9 | int }} {{ '3.9' | int }} {{ '2.5' | float }} {{ 'x' | float }} {{ -3 | abs }} {{ (-3) | abs }} {{ 2.567 | round(1) }}
{{ 2.4 | round(0, 'ceil') }} {{ 2.6 | round(method='floor') | int }} {{ 2.675 | round(2) }} {{ 5 | round }} {{ 1250 | round(-2) }} {{ 0.5 | round }} {{ 1.5 | round }} {{ -2.5 | round }} {{ 12.3 | round(-1) }} {{ 1e300 | round(2) }} {{ 7 | round(0, 'ceil') }} {{ true | round }} {{ 7 | round(-99) }} {{ 7.5 | round(-999) }}
{{ '0x1F' | int }} {{ '1_000' | int }} {{ '12345678901234567' | int }} {{ 1e16 | int }} {{ '+5' | int }} {{ 'inf' | int }} {{ true | int }} {{ none | int }} {{ 'ff' | int(0, 16) }} {{ '0b11' | int(base=2) }} {{ '0x1f' | int(base=0) }} {{ '-0x1f' | int(0, 16) }} {{ '_1' | int }} {{ '- 1' | int }} {{ '1e3' | int }} {{ '' | int(4) }} {{ '0x' | int(5, 16) }} {{ '08' | int }}
{{ '0x10' | float }} {{ '1_0.5' | float }} {{ 'nan(1)' | float }} {{ '-1e3' | float }} {{ '.5' | float }} {{ '5.' | float }} {{ '1e' | float }} {{ 'Infinity' | float }}
{{ [1, 2, 3] | sum(start=10) }} {{ [{'a': 1}, {'a': 2.5}] | sum(attribute='a') }} {{ [{'a': {'b': 1}}] | sum('a.b') }} {{ [[1], [2]] | sum(start=[]) }} {{ [] | sum }} {{ [true, 1] | sum }}
{{ nothing | default('x') }} {{ '' | default('x') }}|{{ '' | default('x', true) }} {{ none | default('x') }} {{ none | d('x', boolean=true) }} {{ 0 | default(1) }}
{{ d | items | list }} {{ nothing | items | list }} {{ l | map('upper') | list }} {{ [{'a': {'b': 1}}, {}] | map(attribute='a.b', default=0) | list }} {{ l | map('replace', 'a', 'z') | join }}
{{ [1, 0, none, 'x'] | select | list }} {{ [1, 0, none] | reject | list }} {{ [1, 2, 3] | select('odd') | list }} {{ [1, 2, 3] | reject('equalto', 2) | list }}
{{ [{'r': 'u', 'n': 1}, {'r': 's', 'n': 2}] | selectattr('r', 'equalto', 's') | map(attribute='n') | list }} {{ [{'r': 1}, {}] | selectattr('r', 'defined') | list }} {{ [{'r': 1}, {'r': 0}] | rejectattr('r') | list }}
{{ d is mapping }} {{ l is mapping }} {{ l is iterable }} {{ s is iterable }} {{ 1 is iterable }} {{ s is sequence }} {{ d is sequence }} {{ 1 is sequence }} {{ nothing is iterable }}
{{ nothing is defined }} {{ d is defined }} {{ nothing is undefined }} {{ none is none }} {{ d is not none }} {{ s is string }} {{ 1 is string }} {{ true is boolean }} {{ 1 is boolean }}
{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 1 is number }} {{ true is number }} {{ 1.5 is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ range is callable }}
{{ 1 is sameas true }} {{ true is sameas true }} {{ none is sameas none }} {{ 0 is sameas false }} {{ 1.0 is sameas 1 }} {{ d is sameas d }} {{ [1] is sameas [1] }} {{ l is sameas(l) }} {{ nothing is sameas none }}
{{ [1, 2, 3] | select('>', 1) | list }} {{ [1, 2, 3] | select('<=', 2) | list }} {{ [1, 2, 3] | reject('>=', 2) | list }} {{ [1, 2] | select('<', 2) | list }} {{ [{'r': 's'}, {'r': 'u'}] | selectattr('r', '!=', 's') | list }} {{ [{'r': 's'}] | rejectattr('r', '==', 's') | list }}
{{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 'a' is in ['a'] }} {{ 4 is divisibleby 2 }} {{ 3 is odd }} {{ 3 is even }} {{ 'A' is upper }} {{ 2 is gt 1 }} {{ not d is defined }}
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ ' a b  c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a::b'.split('::')[-1] }} {{ 'a,b,c'.rsplit(',', 1) }}
{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }} {{ 'abcba'.lstrip('ab') }} {{ '　é　'.strip() }} {{ 'éxé'.strip('é') }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('bc') }} {{ 'abc'.endswith('') }} {{ 'a.b'.replace('.', '..') }} {{ 'abcabc'.find('c') }} {{ 'abc'.find('x') }} {{ 'aXa'.count('a') }}
{{ 'éabcabc'.find('a', 2) }} {{ 'abcabc'.find('a', 0, 1) }} {{ 'abc'.find('c', 0, 2) }} {{ 'abcabc'.find('b', -3) }} {{ 'abc'.find('', 2) }} {{ 'abc'.find('', 3) }} {{ 'abc'.find('', 4) }} {{ 'abc'.find('a', -9, -1) }} {{ 'abc'.find('b', 2, 1) }} {{ 'abc'.find('c', none, none) }} {{ 'a'.find('a', 9) }}
{{ 'abcabc'.count('a', 1) }} {{ 'aaa'.count('a', 1, 2) }} {{ 'abc'.count('', 1) }} {{ 'abc'.count('', 4) }} {{ 'éabc'.startswith('b', 2) }} {{ 'abc'.startswith(('x', 'b'), 1) }} {{ 'abc'.endswith('b', 0, 2) }} {{ 'abc'.endswith('bc', 2) }} {{ 'abc'.startswith('', 4) }} {{ 'abc'.startswith('', 3) }} {{ 'abc'.startswith('c', -1) }}
{{ 'a\x0bb\x0cc\x1cd\u2028e\x85f\u2029g\r\nh\ri\n\rj\x1f'.splitlines() }} {{ 'a\n\nb\r\n'.splitlines(true) }} {{ 'é\nc'.splitlines(keepends=true) }} {{ ''.splitlines() }} {{ '\n'.splitlines() }}
{{ 'a'.upper() }} {{ 'A'.lower() }} {{ 'a b'.title() }} {{ ','.join(l) }} {{ '{}-{}'.format(1, 'x') }} {{ '{{}}'.format() }} {{ 'a\nb\r\nc'.splitlines() }} {{ '12'.isdigit() }} {{ 'xab'.removeprefix('x') }}
{{ d.get('b') }} {{ d.get('x') }} {{ d.get('x', 3) }} {{ d.items() | list | length }} {{ d.keys() | list }} {{ d.values() | list | length }} {{ d.items is defined }} {{ d['items'] is defined }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.length }}{{ x }}{{ loop.previtem }}{{ loop.nextitem }} {% else %}none{% endfor %}
{% for x in z %}{{ x }}{% else %}none{% endfor %} {% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for c in 'aé' %}{{ c }}.{% endfor %}
{% for x in range(10) if x % 2 %}{{ x }}{{ loop.last }}{% endfor %} {% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %} {% for x in nothing %}{% endfor %}|
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }} {% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% set ns = namespace(a=1, b='x') %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }} {% set a, b = 1, 2 %}{{ a + b }} {% set t = (1, 2) %}{{ t }}
{% set ns = namespace(a=1, b=2) %}{% set ns.a, ns.b = 3, 4 %}{{ ns.a }}{{ ns.b }}{{ a }} {% set x, ns.a = [5, 6] %}{{ x }}{{ ns.a }} {% for x in z %}{% else %}{% set w = 5 %}{{ w }}{% endfor %}{{ w }}|
{% set d2 = dict(d.items(), z=1) %}{{ d2.b }}{{ d2.z }} {{ dict([('a', 1), ['b', 2]]) }} {{ dict([]) }} {{ dict(['xy']) }} {{ dict(d, b=3).b }} {% set ns = namespace([('k', 7)]) %}{{ ns.k }}
{% set x %}a{{ 1 }}b{% endset %}{{ x }} {% set x | upper %}abc{% endset %}{{ x }} {% filter upper %}a{{ 'b' }}{% endfilter %} {% filter trim | upper %} q {% endfilter %}|
{% macro f(a, b=2, c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(a=4, c=5) }} {{ f() }} {{ f(1) | length }}
{% macro fact(n) %}{% if n > 1 %}{{ n }}*{{ fact(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }} {% set y = 1 %}{% macro g() %}{{ y }}{{ q }}{% endmacro %}{% set q = 2 %}{{ g() }}{% for q in [7] %}{{ g() }}{% endfor %}
{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(v) m(3) %}{{ v + 1 }}{% endcall %} {% macro n() %}[{{ caller() }}]{% endmacro %}{% call n() %}in{% endcall %}
{% for i in [1, 2] %}{% for j in [3] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %} {% for a in [[1, 2], [3, 4]] %}{{ a[0] }}{% endfor %} {% for a, b in [[1, 2]] %}{{ b }}{% endfor %}
{%- if a is defined %}x{% elif d %}y{% else %}z{% endif -%}   {{- 'q' -}}   {#- comment -#}  r {# another #}s
{%+ if true %} a {%+ endif %}{{ 'b' }}{% if true -%}   c{% endif %} {% generation %}g{{ 1 }}{% endgeneration %}
{{ dict(a=1, b=2) }} {{ range(3) | list }} {{ range(1, 7, 2) | list }} {{ range(3, 0, -1) | list }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d') }}
{{ {'a': 1, 'b': {'c': [1, 2]}} == {'b': {'c': [1, 2]}, 'a': 1} }} {{ [1, 2] == [1, 2] }} {{ [1] == (1,) }} {{ {1: 'x', 'y': 2, none: 3, true: 4} }} {{ {'a': 1,} }} {{ [1, 2,] }}
""".strip().split("\n")
SNIPPETS += [
    "  {% if true %}  \n  a\n  {% endif %}\nb\n{%- if true -%}\n c \n{%- endif %}\n\n",
    "{% for i in [1, 2] %}\n  x\n  {# c #}\n  {{ i }}\n{% endfor %}\r\ny\n",
    "a {% if true %} b\n   {% endif %} c {% if true %}\n\n   {% set x = 1 %}\nd{% endif %}",
    "\n\n{{ 1 }}\n\n{{ 2 -}}\n\n x {{- 3 }}\n {%- set a = 1 %}\n {% set b = 2 -%}\n\n  end",
    "{% macro f() %}\n  in\n  {% endmacro %}\n{{ f() }}|{% set x %}\n y\n{% endset %}{{ x }}|",
]


def fnv(text):
    """What the test computes of its renderings: 64 bits, FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def write():
    lines = [{"input": conversation} for conversation in CONVERSATIONS]
    for name in templates_of(os.path.join(HERE, "templates")):
        template = environment().from_string(read(name))
        texts = [python_text(template, conversation) for conversation in CONVERSATIONS]
        lines.append({"file": os.path.basename(name), "hashes": [text and fnv(text) for text in texts]})
    for source in SNIPPETS:
        lines.append({"source": source, "text": environment().from_string(source).render(**DATA)})
    with open(os.path.join(HERE, "jinja.jsonl"), "w", encoding="utf-8", newline="\n") as out:
        out.write(json.dumps({"data": DATA}, ensure_ascii=False) + "\n")
        for line in lines:
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        write()
    else:
        sys.exit(check(sys.argv[2], sys.argv[3]))
