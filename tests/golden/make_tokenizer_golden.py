#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/: texts, and what the original tokenizers turn them into.

A development tool; the tests only read what it wrote. It needs the Python packages tokenizers,
sentencepiece, protobuf, numpy and gguf, and the vocabularies (make model; sh tests/fetch_fixtures.sh).

    python3 tests/golden/make_tokenizer_golden.py            from the root of the tree

The vocabulary and the merges come out of the GGUF file; around them the tokenizer is put together as
its publisher did: Hugging Face tokenizers with the published pre-tokenizer and normaliser for BPE,
the sentencepiece library with an identity normaliser for Gemma 3.

strings.jsonl     one text per line: a JSON string, or {"text": ..., "times": n} for a repeated one
unigram.gguf      the vocabulary of a unigram model that sentencepiece learnt from english.txt, with
                  its normaliser nmt_nfkc
NAME.txt          one line per text: the number of ids, and the 64-bit FNV-1a hash (offset basis
                  cbf29ce484222325, prime 100000001b3) of the ids as little-endian 32-bit integers
words.txt         one line per pre-tokenizer: its name, and for every 128 texts the hash of the bytes
                  of their words, each text with a 0 behind it
"""

import io
import json
import os
import random
import struct
import sys
import unicodedata

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as sp_model
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer")
VOCABULARIES = {
    "smollm2": "models/SmolLM2-135M-Instruct.Q4_1.gguf",
    "llama-bpe": "models/fixtures/ggml-vocab-llama-bpe.gguf",
    "qwen2": "models/fixtures/ggml-vocab-qwen2.gguf",
    "gemma3": "models/fixtures/gemma-3-270m-vocab.gguf",
    "gemma4": "models/fixtures/ggml-vocab-gemma-4.gguf",
}
SEED = 20261121

# ---- Texts ---------------------------------------------------------------------------------------

SPACES = (
    " \t\n\r\v\f\x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
    "\u180e\u200b\u2060\ufeff\x1c\x1d\x1e\x1f"
)
WORDS = """
Hello world the quick brown fox jumps over lazy dog I'm you're We'LL don't CAN'T it's 'tis O'Reilly
naïve café ÉCOLE Straße ŒUVRE İstanbul ǅungla ﬁnal Åse Ελλάδα ΑΒΓ άλφα Привет МИР ёлка Ўзбек שלום עולם
مرحبا العالم القُرْآن سلام दुनिया नमस्ते हिन्दी বাংলা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල ไทย สวัสดีครับ ภาษา ລາວ ភាសាខ្មែរ
မြန်မာ བོད་ ქართული Հայերեն አማርኛ ᏣᎳᎩ 日本語 テスト ひらがな 漢字 中文 测试 繁體 한국어 안녕하세요 ᄒᆞᆫ ｆｕｌｌ ＷＩＤＴＨ
camelCase HTTPServer snake_case kebab-case __init__ x1 12345 3.14159 1,000,000 0xFF 1e-9 ½ ² Ⅷ ٣٤٥ १२३
http://example.com/a?b=c&d=e#f foo@bar.org C:\\Windows\\System32 /usr/bin/env $HOME 100% 20€ £5 ¥1000 #tag @user
""".split()
EMOJI = """😀 😀😃😄 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🏴‍☠️ 🇩🇪🇫🇷 1️⃣ ❤️ ❤ ☺ 👩🏿‍🚀 🧑‍🤝‍🧑 🫠 🦾 ✨ ⌨️ 🕵️‍♀️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ©️ ™""".split()
SPECIALS = """<|im_start|> <|im_end|> <|endoftext|> <|im_start <|im_end| |im_start|> <|IM_START|> <|im_start|>user <||im_end|>
<|begin_of_text|> <|end_of_text|> <|eot_id|> <|start_header_id|> <|end_header_id|> <|eom_id|> <|python_tag|>
<|reserved_special_token_0|> <|reserved_special_token_24 <|finetune_right_pad_id|> <s> </s> <unk> <pad> <bos> <eos> <mask>
<start_of_turn> <end_of_turn> <start_of_turn <unused0> <unused99> <unused100 <unused6241> <start_of_image>
<table> </table> <tr><td> <h1>x</h1> <b>bold</b> <a href="x">y</a> <ul><li> <0x0A> <0x41> <0xFF> [multimodal] [toxicity] [@BOS@]
<|fim_prefix|> <repo_name> <reponame> <file_sep> <filename> <gh_stars> <issue_start> <jupyter_start> <empty_output>
[PAD151646] [PAD151935] [PAD15164 ▁ ▁▁ ▁▁▁▁ a▁b Ġ ĠĠ Ċ ĉ Âł""".split()
CONTRACTIONS = [
    "s",
    "t",
    "re",
    "ve",
    "m",
    "ll",
    "d",
    "x",
    "S",
    "T",
    "RE",
    "Ve",
    "M",
    "lL",
    "D",
    "ſ",
]
CODE = [
    "def f(x, y=1):\n    return x + y\n\n\nclass A:\n\tpass\n",
    "for (int i = 0; i < n; ++i) {\n        a[i] += b[i] * 0x1F;\n}\n",
    "#include <stdio.h>\r\n\r\nint main(void)\r\n{\r\n\treturn 0;\r\n}\r\n",
    "SELECT * FROM t WHERE a >= 10 AND b <> 'x''y';",
    '<html>\n  <body class="x">\n    <!-- note -->\n  </body>\n</html>',
    "let f = |x: &str| -> Result<u8, E> { x.parse::<u8>()? };",
    'if [ -n "$x" ]; then echo "${x%%.*}" >&2; fi',
    '{"a": [1, 2.5e-3, null, true], "b": {"c": "\\u00e9\\n"}}',
    "x = 1;;; y == 2 != 3 <= 4 >= 5 && 6 || !7 -> 8 => 9 :: 10 ... //",
    "\\begin{equation}\n  \\frac{a_1}{b^2} = \\sum_{i=0}^\\infty x_i\n\\end{equation}",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n- [ ] todo\n- [x] done\n\n```c\nint x;\n```\n",
    "diff --git a/x b/x\n@@ -1,3 +1,4 @@\n-old\n+new\n",
]


def fixed_texts():
    yield from (
        "",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "a",
        "A",
        "1",
        "é",
        "e\u0301",
        "\0",
        "a\0b",
        "\x7f",
        "\ufffd",
    )
    yield "Hello, I'LL can't  go.\n\n  def f(x1, 12345):\treturn x/2 \n"
    yield "camelCaseHTTPServer ÉCOLE naïve नमस्ते 日本語テスト 3.14€ 😀!?\r\n ok  "
    yield from CODE
    yield from EMOJI
    yield from SPECIALS
    for c in CONTRACTIONS:
        yield from (
            "I'" + c,
            "I'" + c + " go",
            "'" + c,
            " '" + c,
            "I\u2019" + c,
            "x'" + c + "'" + c + "y",
            "'" + c + "1",
        )
    for n in range(1, 13):
        yield from ("1" * n, " " + "9" * n, "x" + "7" * n + "y", "٣" * n, "²" * n)
    for c in SPACES:
        yield from (
            c,
            "a" + c + "b",
            c * 2 + "b",
            "a" + c * 3,
            c + "\n" + c,
            " " + c + "x",
            c + "!",
            "1" + c + "2",
        )
    for n in list(range(2, 40)) + [63, 64, 65, 100, 127, 128, 129, 200]:
        yield from (
            " " * n,
            "\n" * n,
            "x" + " " * n + "y",
            "a" + "\n" * n + "b",
            "\t" * n,
            "\t" * n + "x",
        )


def long_texts():
    for text, times in (
        ("a", 100000),
        ("A", 30000),
        (" ", 100000),
        ("\n", 50000),
        ("\t", 9999),
        ("7", 20000),
        ("!", 30000),
        ("=", 5000),
        ("-", 33333),
        ("ab", 50000),
        ("é", 20000),
        ("e\u0301", 10000),
        ("\u0301", 10000),
        ("日", 20000),
        ("你好", 9000),
        ("😀", 9000),
        ("👨‍👩‍👧", 2000),
        ("ไ", 9000),
        ("'s", 9000),
        ("<", 20000),
        ("<|", 9000),
        ("<unused", 3000),
        ("\r\n", 9000),
        (" \n", 9000),
        ("\n ", 9000),
        ("a ", 20000),
        (" a", 20000),
        ("\u00a0", 9000),
        ("▁", 5000),
        ("<|im_end|>", 500),
        ("Hello world. ", 3000),
        ("0123456789", 3000),
        ("aA", 9000),
        ("\U0010ffff", 1000),
        ("\ue000", 3000),
        ("한", 9000),
    ):
        yield {"text": text, "times": times}


def agreed(char, nfc=normalizers.NFC()):
    """False for marks so new that the tables behind the normaliser do not know them yet."""
    return all(
        nfc.normalize_str(text) == unicodedata.normalize("NFC", text)
        for text in ("a\u0345" + char, "a" + char + "\u0334")
    )


def assigned_by_plane():
    planes = {}
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        category = unicodedata.category(chr(code))
        if category not in ("Cn", "Co") and (category[0] != "M" or agreed(chr(code))):
            planes.setdefault(code >> 16, []).append(code)
    return planes


def random_texts(rng):
    planes = assigned_by_plane()
    letters = [c for c in planes[0] if unicodedata.category(chr(c))[0] == "L" and c < 0x3000]
    marks = [c for p in (0, 1) for c in planes[p] if unicodedata.category(chr(c))[0] == "M"]
    others = [c for p in (0, 1) for c in planes[p] if unicodedata.category(chr(c))[0] in "PSNZC"]
    pick = lambda codes, low, high: "".join(
        chr(rng.choice(codes)) for _ in range(rng.randint(low, high))
    )

    # Each stretch of 256 code points of planes 0 and 1 that holds anything, then the other planes.
    for plane in (0, 1):
        rows = sorted({c >> 8 for c in planes[plane]})
        for row in rows:
            codes = [c for c in planes[plane] if c >> 8 == row]
            if 0x34 <= row < 0x4DC0 >> 8 or 0x4E < row < 0xD7 or 0x170 <= row < 0x18B:
                if rng.random() > 0.1:
                    continue
            yield pick(codes, 4, 16)
            yield " ".join(pick(codes, 1, 5) for _ in range(3))
    for plane in (2, 3, 14):
        for _ in range(12):
            yield pick(planes[plane], 1, 12)
    for _ in range(40):  # private use, unassigned, noncharacters
        yield "".join(
            chr(
                rng.choice(
                    (
                        0xE000 + rng.randrange(6400),
                        0xF0000 + rng.randrange(65534),
                        0x100000 + rng.randrange(65534),
                        0xFFFE,
                        0xFFFF,
                        0x1FFFE,
                        0x10FFFF,
                        0xFDD0,
                        0x40000 + rng.randrange(655360),
                    )
                )
            )
            for _ in range(rng.randint(1, 8))
        )
    for _ in range(120):  # bases with marks in any order, to be composed or not
        yield "".join(
            chr(rng.choice(letters)) + pick(marks, 0, 3) for _ in range(rng.randint(1, 8))
        )
    for _ in range(60):
        yield "".join(
            rng.choice("aeiouAEIOUncsyzÅ가각ᄀ")
            + rng.choice(
                (
                    "",
                    "\u0301",
                    "\u0308",
                    "\u0327\u0301",
                    "\u0301\u0327",
                    "\u0323\u0302",
                    "\u0345",
                    "\u1161",
                    "\u11a8",
                )
            )
            for _ in range(rng.randint(2, 12))
        )
    for _ in range(60):
        yield unicodedata.normalize(
            rng.choice(("NFD", "NFKD", "NFC")), " ".join(rng.choices(WORDS, k=rng.randint(2, 8)))
        )
    for _ in range(200):
        yield "".join(
            rng.choice(SPACES) * rng.choice((1, 1, 1, 2, 3, 7))
            + rng.choice(("", "", "a", "!", "1", "日", "\n"))
            for _ in range(rng.randint(2, 10))
        )
    for _ in range(250):
        yield "".join(
            rng.choice(WORDS) + rng.choice((" ", " ", " ", "", "  ", "\n", ", ", ". ", "-", "\t"))
            for _ in range(rng.randint(3, 25))
        )
    for _ in range(120):
        yield "".join(
            rng.choice((rng.choice(EMOJI), rng.choice(WORDS), " ", "!"))
            for _ in range(rng.randint(2, 12))
        )
    for _ in range(200):
        yield "".join(
            rng.choice(
                (
                    rng.choice(SPECIALS),
                    rng.choice(SPECIALS),
                    rng.choice(WORDS),
                    " ",
                    "\n",
                    "<",
                    "|>",
                )
            )
            for _ in range(rng.randint(2, 10))
        )
    for _ in range(150):
        lines = "".join(rng.choice(CODE) for _ in range(2)).splitlines(True)
        rng.shuffle(lines)
        yield "".join(rng.choice(("", "    ", "\t", "        ")) + line for line in lines[:8])
    for _ in range(150):
        yield "".join(chr(rng.randint(32, 126)) for _ in range(rng.randint(1, 60)))
    for _ in range(100):
        yield "".join(
            rng.choice(
                (
                    "1",
                    "23",
                    "456",
                    "7890",
                    " ",
                    ",",
                    ".",
                    "-",
                    "+",
                    "e",
                    "½",
                    "٣",
                    "１",
                    "Ⅳ",
                    "₂",
                    "%",
                    "€",
                )
            )
            for _ in range(rng.randint(2, 20))
        )
    for _ in range(100):
        yield "".join(
            rng.choice(
                (
                    "a",
                    "B",
                    "cc",
                    "DD",
                    "Ee",
                    "'",
                    "'S",
                    "'ll",
                    "’",
                    "é",
                    "Ж",
                    "ж",
                    "ǅ",
                    "ʰ",
                    "ª",
                    "ʼ",
                )
            )
            for _ in range(rng.randint(2, 16))
        )
    for _ in range(150):
        yield "".join(
            rng.choice((pick(letters, 1, 3), pick(marks, 1, 2), pick(others, 1, 3), " ", "x", "\n"))
            for _ in range(rng.randint(2, 12))
        )
    for _ in range(40):
        yield " ".join(rng.choices(WORDS, k=60))


def all_texts():
    rng = random.Random(SEED)
    texts = list(fixed_texts()) + list(random_texts(rng)) + list(long_texts())
    return list({json.dumps(t, ensure_ascii=False): t for t in texts}.values())


# ---- The original tokenizers ---------------------------------------------------------------------

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


def split(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


class Vocabulary:
    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields
        self.get = lambda key: fields["tokenizer.ggml." + key].contents()
        self.tokens, self.types = self.get("tokens"), self.get("token_type")


def pair_encoding(vocabulary, pre_tokenizer, normalizer=None, **arguments):
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    merges = []
    for merge in vocabulary.get("merges"):
        cut = merge.index(" ", 1)
        merges.append((merge[:cut], merge[cut + 1 :]))
    tokenizer = Tokenizer(models.BPE(ids, merges, **arguments))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    for token, kind in zip(vocabulary.tokens, vocabulary.types):
        if kind in (CONTROL, USER_DEFINED):
            added = AddedToken(token, normalized=False, special=kind == CONTROL)
            (tokenizer.add_special_tokens if kind == CONTROL else tokenizer.add_tokens)([added])
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def sentence_piece(vocabulary):
    proto = sp_model.ModelProto()
    unknown = vocabulary.get("unknown_token_id")
    for i, (token, score, kind) in enumerate(
        zip(vocabulary.tokens, vocabulary.get("scores"), vocabulary.types)
    ):
        # The converter put spaces for U+2581 in user-defined tokens.
        token = token.replace(" ", "\u2581") if kind == USER_DEFINED else token
        proto.pieces.add(piece=token, score=score, type=UNKNOWN if i == unknown else kind)
    proto.trainer_spec.model_type = sp_model.TrainerSpec.BPE
    proto.trainer_spec.vocab_size = len(vocabulary.tokens)
    proto.trainer_spec.byte_fallback = True
    proto.trainer_spec.unk_id = unknown
    proto.trainer_spec.unk_piece = vocabulary.tokens[unknown]
    for name in ("bos", "eos"):
        setattr(proto.trainer_spec, name + "_id", vocabulary.get(name + "_token_id"))
        setattr(
            proto.trainer_spec,
            name + "_piece",
            vocabulary.tokens[vocabulary.get(name + "_token_id")],
        )
    proto.trainer_spec.pad_id = vocabulary.get("padding_token_id")
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = False
    proto.normalizer_spec.remove_extra_whitespaces = False
    proto.normalizer_spec.escape_whitespaces = True
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    return lambda text: processor.encode(text, out_type=int)


def originals():
    open_one = lambda name: Vocabulary(VOCABULARIES[name])
    digits = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    yield "smollm2", pair_encoding(open_one("smollm2"), digits)
    yield "llama-bpe", pair_encoding(open_one("llama-bpe"), split(LLAMA3), ignore_merges=True)
    yield "qwen2", pair_encoding(open_one("qwen2"), split(QWEN2), normalizer=normalizers.NFC())
    yield "gemma3", sentence_piece(open_one("gemma3"))
    yield "unigram", learn_unigram()
    yield "gemma4", pair_encoding(
        open_one("gemma4"),
        pre_tokenizers.Split(" ", "merged_with_previous"),
        normalizer=normalizers.Replace(" ", "▁"),
        byte_fallback=True,
        unk_token="<unk>",
        fuse_unk=True,
    )


UNIGRAM = os.path.join(HERE, "unigram.gguf")


def learn_unigram():
    """Writes a small vocabulary as the converter does, and returns the tokenizer."""
    learnt = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        input=os.path.join(HERE, "..", "english.txt"),
        model_writer=learnt,
        model_type="unigram",
        vocab_size=300,
        user_defined_symbols=["<mark>", "▁then", "..."],
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    proto = sp_model.ModelProto()
    proto.ParseFromString(learnt.getvalue())
    writer = gguf.GGUFWriter(UNIGRAM, "t5")
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece.piece for piece in proto.pieces])
    writer.add_token_scores([piece.score for piece in proto.pieces])
    writer.add_token_types([piece.type for piece in proto.pieces])
    writer.add_add_space_prefix(proto.normalizer_spec.add_dummy_prefix)
    writer.add_remove_extra_whitespaces(proto.normalizer_spec.remove_extra_whitespaces)
    writer.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    processor = sentencepiece.SentencePieceProcessor(model_proto=learnt.getvalue())
    return lambda text: processor.encode(text, out_type=int)


# ---- Words -----------------------------------------------------------------------------------------

# The expressions of each pre-tokenizer, as its publisher wrote them for Hugging Face tokenizers or
# tiktoken; each cuts the words that the one before it left.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN35 = QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"\s\p{L}\p{N}", r"\s\p{L}\p{M}\p{N}")
LEAD, UPPER, LOWER = r"[^\r\n\p{L}\p{N}]?", r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
TAILS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CAMEL = f"{LEAD}[{UPPER}]*[{LOWER}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|{LEAD}[{UPPER}]+[{LOWER}]*{SHORT}?|"
O200K = CAMEL + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAILS
TEKKEN = (
    f"{LEAD}[{UPPER}]*[{LOWER}]+|{LEAD}[{UPPER}]+[{LOWER}]*|"
    + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
    + TAILS
)
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + TAILS
)
CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
CASED = (  # the cased letters of Unicode 11 but those of mathematics
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷ"
    "ᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ"
    "-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
PLANES = "[一-龥\u0800-一가-\ud7ff]+"
NO_HAN = "&&[^\\p{Han}]"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
PRE_TOKENIZERS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [QWEN2],
    "qwen35": [QWEN35],
    "tekken": [TEKKEN],
    "gpt-4o": [O200K],
    "deepseek-v3": [r"\p{N}{1,3}", CJK, DEEPSEEK3],
    "seed-coder": [
        QWEN2.replace(r"\p{N}|", r"\p{N}{1}|").replace(r"\p{N}]+[\r\n]*", r"\p{N}\r\n]+")
    ],
    "bailingmoe": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "exaone-moe": [
        SHORT
        + "|"
        + LEAD
        + r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]"
        r"|\s+(?!\S)|\s+"
    ],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")],
    "jais-2": [
        LLAMA3[: LLAMA3.index(r"|\s+(?!")]
        + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
        + r"|\s{1}"
    ],
    "ufakzeka": [QWEN2[len(SHORT) + 1 :]],
    "spark2_5": [
        r"\p{N}{1,3}",
        CJK,
        DEEPSEEK3.replace(r"]+[\r\n]*|\s*[\r\n]+", r"]+|[\r\n]"),
        r"\p{N}",
    ],
    "youtu": [
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + CJK,
        O200K.replace("{1,3}", ""),
    ],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "kimi-k2": [
        rf"[\p{{Han}}]+|{LEAD}[{UPPER}{NO_HAN}]*[{LOWER}{NO_HAN}]+{SHORT}?"
        rf"|{LEAD}[{UPPER}{NO_HAN}]+[{LOWER}{NO_HAN}]*{SHORT}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAILS
    ],
    "afmoe": [
        r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))",
        "[一-鿿㐀-䶿\uf900-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff"
        "가-\ud7afᄀ-ᇿ]+",
        DEEPSEEK3,
    ],
    "deepseek-llm": [
        "[\r\n]",
        rf"\s?[{CASED}]+",
        "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
        r"\s+$",
        PLANES,
        r"\p{N}",
    ],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", PLANES, r"\p{N}"],
    # Hugging Face tokenizers have these two as steps of their own kinds.
    "falcon": [r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9]{3}"],
    "default": [r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", "[0-9]{3}"],
}


def cut(patterns):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    splitter = pre_tokenizers.Sequence(steps)
    return lambda text: [len(text[a:b].encode()) for _, (a, b) in splitter.pre_tokenize_str(text)]


def write_words(texts, out):
    for name, patterns in PRE_TOKENIZERS.items():
        words = cut(patterns)
        lengths = [words(text) + [0] for text in texts]
        blocks = [sum(lengths[i : i + 128], []) for i in range(0, len(texts), 128)]
        out.write(" ".join([name] + [f"{fnv1a(block):016x}" for block in blocks]) + "\n")


# ---- Writing -------------------------------------------------------------------------------------


def fnv1a(ids):
    h = 0xCBF29CE484222325
    for byte in b"".join(struct.pack("<i", i) for i in ids):
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    os.makedirs(HERE, exist_ok=True)
    texts = all_texts()
    with open(os.path.join(HERE, "strings.jsonl"), "w", encoding="utf-8", newline="\n") as out:
        for text in texts:
            out.write(json.dumps(text, ensure_ascii=False) + "\n")
    print(len(texts), "texts")
    texts = [text if isinstance(text, str) else text["text"] * text["times"] for text in texts]
    with open(os.path.join(HERE, "words.txt"), "w", newline="\n") as out:
        write_words(texts, out)
    for name, encode in originals():
        with open(os.path.join(HERE, name + ".txt"), "w", newline="\n") as out:
            for text in texts:
                ids = encode(text)
                out.write(f"{len(ids)} {fnv1a(ids):016x}\n")
        print(name)


if __name__ == "__main__":
    sys.exit(main())
