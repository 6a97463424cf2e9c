#!/usr/bin/env python3
"""Writes tasks with choices in the formats of llama-perplexity, and what it makes of them.

    python3 tests/golden/make_choice_golden.py LLAMA_PERPLEXITY MODEL.gguf

LLAMA_PERPLEXITY is the program of llama.cpp, for llama.txt that of llama-cpp-python 0.3.36. MODEL
is the default model in F32: tandem quantize --allow-requantize MODEL OUT F32. Its numbers differ
from those of the model by what llama.cpp and tandem round.

Each line of llama.txt is a task in the order of the program: the suite, the number of tasks that
was asked for, 1 if the answer was right and 0 if not, and of WinoGrande the scores of the words.
The program takes the wrong logits for the second word where a sentence has at most three tokens
behind what both have in common (a FIXME in its source): such a task has no score for it and no
answer, but -.
"""
import os
import re
import struct
import subprocess
import sys

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "choices")

HELLASWAG = [
    ("Mending a roof: A man climbs onto the roof of his house. He", 3,
     ["wraps a pair of skis in paper.", "plays the piano until dawn.", "is holding a glass cube.",
      "takes off the broken tiles."]),
    ("Lifting weights: A lady walks up to a bar with weights. She bends down and grabs it. The "
     "lady", 3, ["swings and lands in her arms.", "pulls the bar forward.",
                 "pulls a rope that is tied to it.", "stands and lifts it over her head."]),
    ("Making tea: A woman fills a kettle with water and puts it on the stove. When the water "
     "boils, she", 1, ["throws the kettle out of the window.",
                       "pours it over the tea leaves in the pot.", "paints the kettle green.",
                       "reads the water to the cat."]),
    ("Washing a dog: A boy puts his dog into a tub. The dog", 0,
     ["shakes and sprays water everywhere.", "drives the car home.",
      "sings a song about taxes.", "reads a newspaper and drinks tea."]),
    # One ending is the beginning of another.
    ("Baking bread: She kneads the dough and leaves it to rise. Then she", 2,
     ["flies to the moon in it.", "asks the dough for its name.",
      "bakes it in the oven until it is golden.", "bakes it in the"]),
    ("Playing chess: The old man moves his queen. His friend", 1,
     ["eats the board.", "thinks for a while and takes it with a rook.", "thinks", "melts"]),
    ("Fixing a bike: The wheel of the bike is flat. A girl", 0,
     ["pumps air into the tyre and rides away.", "pumps milk into the tyre.",
      "boils the wheel and eats it.", "sleeps on the wheel for a year."])]

WINOGRANDE = """\
0,Nora swam much faster than Olga so _ always had to wait at the shore.,Nora,Olga,1
1,Nora swam much faster than Olga so _ was always the last one to arrive.,Nora,Olga,2
2,"We kept the soup on the stove and the salad on the table, and the _ went cold.",soup,salad,1
3,The trunk does not go through the narrow door because the _ is far too wide.,trunk,door,1
4,The trunk does not go through the door because of the small size of the _.,trunk,door,2
5,The box was empty but the jar was full so I took a sweet from the _,box,jar,2
6,"After the game, the boys gave the ball to the girls because the _ wanted to play.",boys,girls,2
7,Ann asked Mary for a pen because _ had lost hers.,Ann,Mary,1
8,The old lamp was brighter than the new candle so we read by the _ all night.,lamp,candle,1
"""

MULTIPLE_CHOICE = [
    ("The capital of France is", ["Paris.", "London.", "Rome.", "a fish."], 0),
    ("Question: What do bees make? Answer:", ["Milk", "Honey", "Iron", "Paper", "Glass"], 1),
    ("Water freezes at", ["zero degrees Celsius", "one hundred degrees Celsius"], 0),
    ("The opposite of hot is", ["cold", "warm", "red"], 0),
    ("Question: Which animal barks? Answer:", ["A cat", "A dog", "A fish", "A cow"], 1),
    ("The sun rises in the", ["west", "east"], 1)]


def write_tasks():
    with open(HERE + "/hellaswag.txt", "w") as f:
        for begin, right, endings in HELLASWAG:
            f.write("\n".join([begin, str(right)] + endings) + "\n")
    with open(HERE + "/winogrande.csv", "w") as f:
        f.write(WINOGRANDE)

    def words(text):
        return struct.pack("<I", len(text.encode())) + text.encode()

    def answers(texts, right):
        labels = [int(i == right) for i in range(len(texts))]
        return struct.pack("<I", len(texts)) + b"".join(map(words, texts)) + \
            struct.pack("<%di" % len(texts), *labels)

    tasks = [words(q) + answers(a, right) + answers(a[:2], 0) for q, a, right in MULTIPLE_CHOICE]
    head = 4 + 4 * len(tasks)
    at = [head + sum(map(len, tasks[:i])) for i in range(len(tasks))]
    with open(HERE + "/multiple_choice.bin", "wb") as f:
        f.write(struct.pack("<%dI" % (1 + len(at)), len(at), *at) + b"".join(tasks))


def run(program, model, suite, name, n):
    """The lines that the program prints for n tasks, cut at white space."""
    option = "--" + suite.replace("_", "-")
    out = subprocess.run([program, "-m", model, option, option + "-tasks", str(n), "-bf",
                          HERE + "/" + name, "-np", "8", "-ctk", "f32", "-ctv", "f32", "-fa",
                          "off"], capture_output=True, text=True, check=True)
    found = re.findall(r"^(\d+\t.*)$", out.stdout + out.stderr, re.M)
    return [line.replace("%", "").split() for line in found]


def main(program, model):
    write_tasks()
    with open(HERE + "/llama.txt", "w") as f:
        for suite, name, n in (("hellaswag", "hellaswag.txt", 400), ("hellaswag", "hellaswag.txt", 4),
                               ("winogrande", "winogrande.csv", 0),
                               ("winogrande", "winogrande.csv", 4),
                               ("multiple_choice", "multiple_choice.bin", 0),
                               ("multiple_choice", "multiple_choice.bin", 4)):
            n_right = 0
            for row in run(program, model, suite, name, n):
                total = round(float(row[1]) * int(row[0]) / 100)
                right, n_right, scores = total - n_right, total, []
                if suite == "winogrande":
                    scores = row[2:4]
                    # No sentence has such a score by itself.
                    if float(scores[1]) < -8:
                        right, scores[1] = "-", "-"
                print(suite, n, right, *scores, file=f)


main(sys.argv[1], sys.argv[2])
