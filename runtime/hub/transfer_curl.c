/* transfer_curl.c: see transfer.h. Each transfer has its own handle of libcurl. */
#include "runtime/hub/transfer.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "runtime/tandem.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    REDIRECTIONS = 8,
    CONNECT_LIMIT_S = 30,
    SILENCE_LIMIT_S = 60, // without a byte
    TRIES = 6,            // without a byte more, until a transfer is given up
    WAIT_LIMIT_S = 300,   // that a server may ask for: the hub counts requests in five minutes
    HASH_BYTES = 1 << 16,
};
static const uint64_t FIRST_PAUSE_NS = 250000000; // then twice as long each time
static const uint64_t LOOK_NS = 100000000;        // between looks at who wants to stop a wait

// One request. The sink takes the bytes of a good answer, in order; false stops the transfer, and
// *e says why.
struct request {
    const struct transfer_source *source;
    uint64_t offset;   // of the first byte that is asked for
    const char *range; // as HTTP writes it, or NULL: all
    bool (*sink)(void *context, const char *bytes, size_t size_bytes, struct err *e);
    void *context;
    uint64_t done_bytes, total_bytes; // for the progress; the sink counts

    CURL *curl;
    uint64_t first; // of the bytes that come, as the answer says
    bool whole;     // the answer is not a range
    bool again;     // it failed in a way that another try may not
    int64_t wait_s; // before that, as the answer asks; 0: it does not
    char *next;     // [TRANSFER_URL_CHARS]: gets where the answer goes on; NULL: nobody asks
    struct err *e;
};

// ---- Callbacks ----------------------------------------------------------------------------------

static long answer_code(CURL *curl) {
    long code = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    return code;
}

// Reads the address of the next page from a header such as Link: <https://...>; rel="next".
static void read_links(const char *line, size_t length, char *next) {
    const char *end = line + length;
    for (const char *at = line; (at = memchr(at, '<', (size_t)(end - at))); at++) {
        const char *close = memchr(at, '>', (size_t)(end - at));
        if (!close) return;
        const char *more = memchr(close, '<', (size_t)(end - close));
        const size_t rest = (size_t)((more ? more : end) - close), n = (size_t)(close - at) - 1;
        const bool is_next =
            memmem(close, rest, "rel=\"next\"", 10) || memmem(close, rest, "rel=next", 8);
        if (!is_next || n >= TRANSFER_URL_CHARS) continue;
        memcpy(next, at + 1, n); // libcurl promises no 0 behind a header
        next[n] = 0;
    }
}

// Reads where the bytes of an answer begin; each answer on the way begins anew.
static size_t on_header(char *bytes, size_t one, size_t n, void *context) {
    static const char range[] = "content-range: bytes ", link[] = "link: ";
    struct request *r = context;
    char line[128];
    snprintf(line, sizeof line, "%.*s", (int)min_u64(one * n, sizeof line - 1), bytes);
    if (strncmp(line, "HTTP/", 5) == 0) r->first = 0;
    if (r->next && strncmp(line, "HTTP/", 5) == 0) r->next[0] = 0;
    if (r->next && strncasecmp(line, link, sizeof link - 1) == 0)
        read_links(bytes, one * n, r->next);
    if (strncasecmp(line, range, sizeof range - 1) == 0)
        r->first = strtoull(line + sizeof range - 1, NULL, 10);
    return one * n;
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *context) {
    struct request *r = context;
    const long code = answer_code(r->curl);
    if (code != 200 && code != 206) return one * n; // the page of an error, which nobody reads
    r->whole = code == 200;
    if (!r->whole && r->first != r->offset) {
        err_set(r->e, ERR_FORMAT, "%s: the server sends other bytes than were asked for",
                r->source->url);
        return 0;
    }
    return r->sink(r->context, bytes, one * n, r->e) ? one * n : 0;
}

static int on_progress(void *context, curl_off_t total, curl_off_t done, curl_off_t up,
                       curl_off_t up_done) {
    const struct request *r = context;
    (void)total;
    (void)done;
    (void)up;
    (void)up_done;
    if (progress_tell(&r->source->progress, "fetch", r->done_bytes, r->total_bytes)) return 0;
    err_set(r->e, ERR_CANCELLED, "stopped");
    return 1;
}

// ---- One request --------------------------------------------------------------------------------

static void allow_protocols(CURL *curl, bool secure) {
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
#else
    const long https = CURLPROTO_HTTPS, both = CURLPROTO_HTTP | CURLPROTO_HTTPS;
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, both);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, secure ? https : both);
#endif
}

static void set_options(struct request *r, char *reason) {
    CURL *curl = r->curl;
    const struct transfer_source *s = r->source;
    // Nobody's token goes out in the clear because an address says no protocol.
    allow_protocols(curl, strncasecmp(s->url, "http:", 5) != 0);
    curl_easy_setopt(curl, CURLOPT_DEFAULT_PROTOCOL, "https");
    curl_easy_setopt(curl, CURLOPT_URL, s->url);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTIONS);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_LIMIT_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_LIMIT_S);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "tandem/" TANDEM_VERSION);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, r);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, r);
    if (r->range) curl_easy_setopt(curl, CURLOPT_RANGE, r->range);
    if (!s->token) return;
    // As a bearer, and not as a header of ours, libcurl keeps it from other hosts.
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
    curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, s->token);
}

// Fails with the meaning of an answer that is neither the whole nor a part.
static enum status refused(struct request *r, long code) {
    const char *url = r->source->url;
    if (code == 416)
        return err_set(r->e, ERR_FORMAT, "%s: ends before byte %" PRIu64, url, r->offset + 1);
    err_set(r->e, ERR_FILE, "%s: the server answers %ld", url, code);
    r->again = code == 429 || code >= 500;
    if (code == 401 && r->source->token)
        return err_fix(r->e, "there is no such repository, or the token is wrong or old: look at "
                             "HF_TOKEN, or log in again with 'hf auth login'");
    if (code == 401 || code == 403)
        return err_fix(r->e, "there may be no such repository, or it is for those alone who agreed "
                             "to its terms at the hub: do so, and put your token into HF_TOKEN");
    if (code == 404)
        return err_fix(r->e, "look at its name; the hub has no such repository or file");
    if (r->again) return err_fix(r->e, "try again later; what was fetched is kept");
    return ERR_FILE;
}

// The seconds that the answer asks to wait, or until the time that it names; 0: it does not.
static int64_t asked_wait(CURL *curl) {
    curl_off_t seconds = 0;
    curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &seconds);
    return seconds > 0 ? seconds : 0;
}

static bool may_go_on(CURLcode code) {
    return code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ||
           code == CURLE_GOT_NOTHING || code == CURLE_OPERATION_TIMEDOUT ||
           code == CURLE_COULDNT_CONNECT || code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM;
}

// Runs the request. OK if a good answer ended, or as much of it as the sink wanted.
static enum status perform(struct request *r) {
    char reason[CURL_ERROR_SIZE] = "";
    *r->e = (struct err){0};
    r->again = false;
    r->wait_s = 0;
    r->curl = curl_easy_init();
    if (!r->curl) return err_memory(r->e, 0, "a transfer");
    set_options(r, reason);
    const CURLcode code = curl_easy_perform(r->curl);
    const long answer = answer_code(r->curl);
    const int64_t wait_s = asked_wait(r->curl);
    curl_easy_cleanup(r->curl);
    if (r->e->status) return r->e->status; // of a callback
    if (code == CURLE_TOO_MANY_REDIRECTS)
        return err_set(r->e, ERR_FILE, "%s: the server sends us on more than %d times",
                       r->source->url, REDIRECTIONS);
    if (code != CURLE_OK) {
        r->again = may_go_on(code);
        err_set(r->e, ERR_FILE, "%s: %s", r->source->url,
                reason[0] ? reason : curl_easy_strerror(code));
        return err_fix(r->e, "look at the network; what was fetched is kept, and the same command "
                             "goes on");
    }
    if (answer == 429 || answer == 503) r->wait_s = wait_s;
    return answer == 200 || answer == 206 ? OK : refused(r, answer);
}

// Waits as long as the answer asks, and says so. ERR_CANCELLED if somebody stops it.
static enum status wait_as_asked(struct request *r) {
    const struct transfer_source *s = r->source;
    const uint64_t total_ns = (uint64_t)r->wait_s * 1000000000;
    progress_tell(&s->progress, "fetch", r->total_bytes, r->total_bytes); // no bar around the line
    log_line(s->log, LOG_NOTE, "%s; waiting %lld s, as it asks", r->e->what, (long long)r->wait_s);
    for (uint64_t done_ns = 0; done_ns < total_ns; done_ns += LOOK_NS) {
        if (!progress_tell(&s->progress, "wait", done_ns, total_ns))
            return err_set(r->e, ERR_CANCELLED, "stopped");
        clock_sleep_ns(LOOK_NS);
    }
    progress_tell(&s->progress, "wait", total_ns, total_ns);
    return OK;
}

// Runs the request, again where the server says when.
static enum status perform_patiently(struct request *r) {
    for (int tries = 1;; tries++) {
        const enum status status = perform(r);
        if (status == OK || r->wait_s == 0) return status;
        r->again = false; // what can be done is done here
        if (r->wait_s > WAIT_LIMIT_S)
            return err_fix(r->e, "it asks to wait %lld s: try again then; what was fetched is kept",
                           (long long)r->wait_s);
        if (tries == TRIES || wait_as_asked(r)) return r->e->status;
    }
}

// ---- A text -------------------------------------------------------------------------------------

struct text_sink {
    char *text;
    size_t length, limit;
};

static bool take_text(void *context, const char *bytes, size_t size_bytes, struct err *e) {
    struct text_sink *sink = context;
    if (size_bytes > sink->limit - sink->length)
        return err_set(e, ERR_LIMIT, "the hub's answer is longer than %zu bytes", sink->limit),
               false;
    char *bigger = mem_resize(sink->text, sink->length + size_bytes + 1, 1);
    if (!bigger) return err_memory(e, sink->length + size_bytes + 1, "the hub's answer"), false;
    memcpy(bigger + sink->length, bytes, size_bytes);
    sink->text = bigger;
    sink->length += size_bytes;
    return true;
}

enum status transfer_text(const struct transfer_source *source, struct transfer_answer *out,
                          size_t limit_bytes, struct err *e) {
    struct text_sink sink = {mem_alloc(1, 1), 0, limit_bytes};
    *out = (struct transfer_answer){0};
    if (!sink.text) return err_memory(e, 1, "the hub's answer");
    struct request r = {
        .source = source, .sink = take_text, .context = &sink, .next = out->next, .e = e};
    if (perform_patiently(&r)) {
        mem_free(sink.text);
        return e->status;
    }
    sink.text[sink.length] = 0;
    out->text = sink.text;
    out->length = sink.length;
    return OK;
}

// ---- Files --------------------------------------------------------------------------------------

struct file_sink {
    const char *path; // for errors, or NULL: that of the address is enough
    int descriptor;
    uint64_t size_bytes, limit_bytes;
    struct sha256_ctx *sha256; // or NULL
    struct request *request;   // whose progress is told
};

static enum status append(int descriptor, const char *path, const char *bytes, size_t size_bytes,
                          struct err *e) {
    for (size_t done = 0; done < size_bytes;) {
        const ssize_t n = write(descriptor, bytes + done, size_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(e, errno, "%s: writing", path);
        done += (size_t)n;
    }
    return OK;
}

static bool take_file(void *context, const char *bytes, size_t size_bytes, struct err *e) {
    struct file_sink *sink = context;
    if (size_bytes > sink->limit_bytes - sink->size_bytes) {
        err_set(e, ERR_FORMAT,
                "%s: the server sends more than the %" PRIu64 " bytes that the hub said",
                sink->request->source->url, sink->limit_bytes);
        return false;
    }
    if (append(sink->descriptor, sink->path, bytes, size_bytes, e)) return false;
    if (sink->sha256) sha256_update(sink->sha256, size_bytes, (const uint8_t *)bytes);
    sink->size_bytes += size_bytes;
    sink->request->done_bytes += size_bytes;
    return true;
}

enum status transfer_range(const struct transfer_source *source, int descriptor, uint64_t offset,
                           uint64_t size_bytes, struct err *e) {
    char range[64];
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, offset, offset + size_bytes - 1);
    struct file_sink sink = {"a file for a plan", descriptor, 0, size_bytes, NULL, NULL};
    struct request r = {.source = source,
                        .offset = offset,
                        .range = range,
                        .sink = take_file,
                        .context = &sink,
                        .total_bytes = size_bytes,
                        .e = e};
    sink.request = &r;
    if (perform_patiently(&r)) return e->status;
    if (sink.size_bytes == size_bytes && !(r.whole && offset > 0)) return OK;
    return err_set(e, ERR_FORMAT, "%s: the server does not send parts of files", source->url);
}

// Brings the sum of what the file holds up to date, and counts it.
static enum status add_old_bytes(struct file_sink *sink, const struct transfer_source *source,
                                 struct err *e) {
    uint8_t bytes[HASH_BYTES];
    struct stat now;
    if (fstat(sink->descriptor, &now) != 0) return err_errno(e, errno, "%s", sink->path);
    if ((uint64_t)now.st_size > sink->limit_bytes && ftruncate(sink->descriptor, 0) != 0)
        return err_errno(e, errno, "%s", sink->path);
    for (;;) {
        const ssize_t n = pread(sink->descriptor, bytes, sizeof bytes, (off_t)sink->size_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(e, errno, "%s", sink->path);
        if (n == 0) break;
        sha256_update(sink->sha256, (size_t)n, bytes);
        sink->size_bytes += (uint64_t)n;
        sink->request->done_bytes += (uint64_t)n;
        if (!progress_tell(&source->progress, "fetch", sink->request->done_bytes,
                           sink->request->total_bytes))
            return err_set(e, ERR_CANCELLED, "stopped");
    }
    if (lseek(sink->descriptor, (off_t)sink->size_bytes, SEEK_SET) < 0)
        return err_errno(e, errno, "%s", sink->path);
    return OK;
}

// A server that knows no ranges begins anew.
static enum status begin_anew(struct file_sink *sink, struct err *e) {
    sink->request->done_bytes -= sink->size_bytes;
    sink->size_bytes = 0;
    sha256_init(sink->sha256);
    if (ftruncate(sink->descriptor, 0) != 0 || lseek(sink->descriptor, 0, SEEK_SET) != 0)
        return err_errno(e, errno, "%s", sink->path);
    return OK;
}

static bool take_part(void *context, const char *bytes, size_t size_bytes, struct err *e) {
    struct file_sink *sink = context;
    struct request *r = sink->request;
    if (r->whole && r->offset > 0) {
        r->offset = 0;
        if (begin_anew(sink, e)) return false;
    }
    return take_file(context, bytes, size_bytes, e);
}

// Asks for what is missing until nothing is, or nothing comes any more.
static enum status fetch_rest(struct request *r, struct file_sink *sink, struct err *e) {
    for (int tries = 0; sink->size_bytes < sink->limit_bytes;) {
        char range[32];
        const uint64_t before = sink->size_bytes;
        snprintf(range, sizeof range, "%" PRIu64 "-", before);
        r->offset = before;
        r->range = before ? range : NULL;
        const enum status status = perform_patiently(r);
        if (status && !r->again) return status;
        if (sink->size_bytes > before) {
            tries = 0;
            continue;
        }
        if (status == OK)
            return err_set(e, ERR_FORMAT, "%s: ends after %" PRIu64 " of %" PRIu64 " bytes",
                           r->source->url, before, sink->limit_bytes);
        if (++tries == TRIES) return status;
        clock_sleep_ns(FIRST_PAUSE_NS << (tries - 1));
    }
    return OK;
}

static enum status check_sum(struct sha256_ctx *sha256, const struct transfer_source *source,
                             const struct transfer_target *target, struct err *e) {
    uint8_t digest[SHA256_DIGEST_SIZE];
    char text[2 * SHA256_DIGEST_SIZE + 1];
    sha256_digest(sha256, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    if (strcmp(text, target->sha256) == 0) return OK;
    unlink(target->path);
    err_set(e, ERR_FORMAT, "%s: the checksum is wrong, and the bytes were removed", source->url);
    err_expected(e, "sha256 %.16s...", target->sha256);
    err_actual(e, "%.16s...", text);
    return err_fix(e, "fetch it again; if that does not help, the server has another file");
}

static enum status open_target(const struct transfer_target *target, int *descriptor,
                               struct err *e) {
    *descriptor = open(target->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*descriptor < 0) return err_errno(e, errno, "%s", target->path);
    if (flock(*descriptor, LOCK_EX | LOCK_NB) == 0) return OK;
    close(*descriptor);
    err_set(e, ERR_FILE, "%s: another program fetches it now", target->path);
    return err_fix(e, "wait until it has ended");
}

enum status transfer_file(const struct transfer_source *source,
                          const struct transfer_target *target, struct err *e) {
    struct sha256_ctx sha256;
    struct request r = {.source = source,
                        .sink = take_part,
                        .done_bytes = target->done_bytes,
                        .total_bytes = target->total_bytes,
                        .e = e};
    struct file_sink sink = {target->path, -1, 0, target->size_bytes, &sha256, &r};
    r.context = &sink;
    sha256_init(&sha256);
    if (open_target(target, &sink.descriptor, e)) return e->status;
    enum status status = add_old_bytes(&sink, source, e);
    if (status == OK) status = fetch_rest(&r, &sink, e);
    if (status == OK) status = check_sum(&sha256, source, target, e);
    if (status == OK && fsync(sink.descriptor) != 0)
        status = err_errno(e, errno, "%s: writing", target->path);
    if (close(sink.descriptor) != 0 && status == OK)
        status = err_errno(e, errno, "%s: writing", target->path);
    return status;
}
