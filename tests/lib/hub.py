"""hub.py: a server that speaks the protocol of huggingface.co, well or badly.

    python3 hub.py FOLDER PORT_FILE [LOG]

FOLDER/ORG/REPO holds the files of a repository. The server picks two ports of 127.0.0.1, one for
the hub and one for the files to which the hub redirects, and writes the first one to PORT_FILE.
LOG gets a line for each request: port's role, path, range, whether it carried a token. How the
server behaves stands in FOLDER/ORG/REPO/behave, if it is there, read at each request, a word a line:

    cut SEED        breaks the connection after a random number of bytes of a file
    stop SEED       the same, and has no file at the next request
    hang            sends half of what was asked for, and nothing more
    private         answers 401 without the token hf_secret
    html            answers about the repository with a web page
    loop            redirects a file to itself
    norange         sends all of a file, whatever was asked for
    wrongrange      sends other bytes than were asked for
    long, short     says that a file has one byte less, or one more, than are sent
    flip            changes a bit of the file
    path NAME       lists the file under that name
    nosize, nosum   leaves the size or the checksum out; badsum gives one that is no checksum
    odd             lists files beside the others whose names or sizes make no sense
    busy            answers 503 to each second request for a file
    later SECONDS   answers 429 to each second request at the hub, and says how long to wait
    missing         lists the files and has none
    pages N         lists N files at once, and says where the list goes on, by the name of another hub
    endless         says that the list goes on where it began
"""
import hashlib
import http.server
import json
import os
import random
import sys
import threading
import urllib.parse

root, port_file = sys.argv[1:3]
log = open(sys.argv[3], "a", buffering=1) if len(sys.argv) > 3 else None
COMMIT = "0123456789abcdef0123456789abcdef01234567"
sums = {}  # of a file by name, size and time
turns = {"requests": 0, "later": 0}


def behaviour(repo):
    try:
        with open(os.path.join(root, repo, "behave")) as lines:
            return dict((line.split() + [""])[:2] for line in lines if line.strip())
    except FileNotFoundError:
        return {}


def checksum(path):
    now = os.stat(path)
    key = (path, now.st_size, now.st_mtime_ns)
    if key not in sums:
        with open(path, "rb") as file:
            sums[key] = hashlib.sha256(file.read()).hexdigest()
    return sums[key]


def tree(repo, how):
    items = [{"type": "directory", "oid": COMMIT, "size": 0, "path": "folder.gguf"}]
    base = os.path.join(root, repo)
    for folder, folders, names in os.walk(base):
        folders.sort()
        for name in sorted(set(names) - {"behave"}):
            path = os.path.join(folder, name)
            size = os.path.getsize(path) + ("short" in how) - ("long" in how)
            item = {"type": "file", "oid": COMMIT, "size": size, "path": os.path.relpath(path, base)}
            if name.endswith(".gguf"):
                item["path"] = how.get("path", item["path"])
                item["lfs"] = {"oid": checksum(path), "size": size, "pointerSize": 134}
                if "nosize" in how:
                    item["size"] = item["lfs"]["size"] = "many"
                if "nosum" in how:
                    del item["lfs"]
                if "badsum" in how:
                    item["lfs"]["oid"] = "../../../../x"
            items.append(item)
    if "odd" in how:
        odd = {"type": "file", "oid": COMMIT, "path": "\u00e9-Q4_K_M.gguf", "size": 9}
        items[:0] = [odd, {**odd, "path": "x-Q4_K_M.gguf", "size": 0}]
    return items


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, body, kind="application/json", headers=()):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for header in headers:
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = urllib.parse.unquote(self.path.split("?")[0])
        token = self.headers.get("Authorization")
        if log:
            log.write("%s %s %s %s\n" % (self.server.role, path, self.headers.get("Range"),
                                         token or "nobody"))
        parts = path.strip("/").split("/")
        repo = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        how = behaviour(repo)
        if not os.path.isdir(os.path.join(root, repo)):
            return self.answer(404, b'{"error":"Repository not found"}')
        if "private" in how and self.server.role == "hub" and token != "Bearer hf_secret":
            return self.answer(401, b'{"error":"Invalid username or password."}')
        turns["later"] += "later" in how and self.server.role == "hub"
        if "later" in how and turns["later"] % 2:
            return self.answer(429, b"slowly", headers=[("Retry-After", how["later"])])
        if parts[0] == "api":
            if "html" in how:
                return self.answer(200, b"<!DOCTYPE html><html>Log in</html>", "text/html")
            if parts[4] == "tree":
                return self.send_page(tree(repo, how), how)
            return self.answer(200, json.dumps({"id": repo, "sha": COMMIT}).encode())
        if self.server.role == "hub":
            # Another host by name, as the hub's own store is.
            there = "http://localhost:%d%s" % (files.server_port, self.path)
            if "loop" in how:
                there = self.path
            return self.answer(302, b"", headers=[("Location", there)])
        return self.send_part(os.path.join(root, repo, *parts[4:]), how)

    def send_page(self, items, how):
        path, _, query = self.path.partition("?")
        first = int(urllib.parse.parse_qs(query).get("cursor", ["0"])[0])
        last = first + int(how.get("pages", len(items)))
        there = "<https://huggingface.co%s?recursive=true&cursor=%d>; rel=\"next\"" % (path, last)
        headers = [("Link", there)] if last < len(items) else []
        if "endless" in how:
            headers = [("Link", "<http://x/>; rel=\"first\", <%s>; rel=\"next\"" % self.path)]
        self.answer(200, json.dumps(items[first:last]).encode(), headers=headers)

    def send_part(self, path, how):
        turns["requests"] += 1
        if "missing" in how or ("stop" in how and turns["requests"] % 2 == 0) or not os.path.isfile(path):
            return self.answer(404, b"no")
        if "busy" in how and turns["requests"] % 2:
            return self.answer(503, b"later")
        with open(path, "rb") as file:
            data = file.read()
        if "flip" in how:
            data = bytes([data[0] ^ 1]) + data[1:]
        size, first, code, headers = len(data), 0, 200, []
        if self.headers.get("Range") and "norange" not in how:
            given = self.headers["Range"].split("=")[1].split("-")
            first, last = int(given[0]), int(given[1] or size - 1)
            if first >= size:
                return self.answer(416, b"")
            data = data[first:last + 1]
            shown = first + ("wrongrange" in how)
            headers = [("Content-Range", "bytes %d-%d/%d" % (shown, last, size))]
            code = 206
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        for header in headers:
            self.send_header(*header)
        self.end_headers()
        if "hang" in how:
            self.wfile.write(data[:len(data) // 2])
            threading.Event().wait()
        if ("cut" in how or "stop" in how) and len(data) > 1:
            dice = random.Random("%s %d" % (how, turns["requests"]))
            # Short parts at first, so that there are many of them.
            data = data[:dice.randrange(1, max(2, min(len(data), size // 16)))]
            self.close_connection = True
        try:
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


hub, files = (http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2))
hub.role, files.role = "hub", "files"
threading.Thread(target=files.serve_forever, daemon=True).start()
with open(port_file + ".new", "w") as out:
    out.write(str(hub.server_port))
os.rename(port_file + ".new", port_file)
hub.serve_forever()
