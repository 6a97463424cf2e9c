# change_plan.py: gives a plan file other ways for attention or experts, and the bytes that the program
# finds for them; what the planner would choose depends on rates. Used by cli_sim.sh and cli_cuda.sh.
#
#   python3 change_plan.py PROGRAM MODEL DEVICE streamed|split|both|experts STEP PLAN
#
# In every STEPth layer attention is streamed, or split with 10 of 32 parts on the CPU, or both with
# every second one split, and all else is on the CPU; or its experts are split, and all else is on the
# GPU.
import json
import re
import subprocess
import sys

program, model, device, way, step, path = sys.argv[1:]
kind = device.split(":")[0]
plan = json.load(open(path))
unit = "experts" if way == "experts" else "attention"
units = [u for u in plan["placement"] if u.endswith(unit)][:: int(step)]
split = units[:: 2 if way == "both" else 1] if way != "streamed" else []
for field in "streamed", "cpu_parts", "feed":
    plan.pop(field, None)
there = plan["placement"] if way == "experts" else split
plan["placement"] = {u: kind if u in there else "cpu" for u in plan["placement"]}
if split:
    plan["cpu_parts"] = {u: 10 for u in split}
if way in ("streamed", "both"):
    plan |= {"streamed": units, "feed": "staged" if way == "both" else "arena"}
for _ in range(10):
    json.dump(plan, open(path, "w"))
    command = [program, "plan", "-m", model, "--plan", path, "--device", device]
    run = subprocess.run(command, capture_output=True, text=True)
    wrong = re.search(r"(\w+_bytes) on (\w+): expected .*, got (\d+)", run.stderr)
    if not wrong:
        break
    next(d for d in plan["devices"] if d["kind"] == wrong[2])[wrong[1]] = int(wrong[3])
