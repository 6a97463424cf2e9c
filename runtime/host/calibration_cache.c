/* calibration_cache.c: see calibration_cache.h. */
#include "runtime/host/calibration_cache.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/host.h"
#include "base/mem.h"
#include "base/new_file.h"
#include "base/number.h"
#include "runtime/host/calibration_scale.h"
#include "runtime/tandem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

enum {
    FILE_LIMIT_BYTES = 1 << 20,
    RATES_FORMAT = 11, // raised when rates or kernels change, which makes kept files invalid
};

// Writes the text of the key for those options of the CPU.
static void write_key(char *out, size_t room, struct device *const *devices, int32_t n,
                      const struct cpu_options *cpu, const char *device_spec) {
    char name[96];
    int used = snprintf(out, room, "tandem %s, rates %d; %s", TANDEM_VERSION, RATES_FORMAT,
                        host_cpu_name(&HOST_ROOTS, name, sizeof name));
    for (int32_t d = 0; d < n && (size_t)used < room; d++) {
        const struct device_info *info = &devices[d]->info;
        used += snprintf(out + used, room - (size_t)used, "; %s %s, %llu bytes, %s, %s", info->kind,
                         d == DEVICE_HOST ? "" : info->name,
                         (unsigned long long)info->capacity_bytes, info->driver, info->capability);
    }
    if (n > 1 && device_spec && (size_t)used < room)
        used += snprintf(out + used, room - (size_t)used, "; %s", device_spec);
    const enum cpu_isa isa = cpu->isa == ISA_AUTO ? cpu_best_isa() : cpu->isa;
    if ((size_t)used < room)
        snprintf(out + used, room - (size_t)used, "; %s, -t %d -tb %d%s", cpu_isa_name(isa),
                 cpu->n_threads, cpu->n_threads_batch, cpu->no_bind ? " --no-bind" : "");
}

void calibration_key_of(struct calibration_key *out, struct device *const *devices, int32_t n,
                        const struct engine_options *options) {
    const struct cpu_options defaults = {.isa = ISA_AUTO};
    *out = (struct calibration_key){.cpu = options->cpu};
    write_key(out->text, sizeof out->text, devices, n, &options->cpu, options->device_spec);
    write_key(out->defaults, sizeof out->defaults, devices, n, &defaults, options->device_spec);
}

bool calibration_path(char *out, const char *cache_path, const struct calibration_key *key) {
    const int length =
        snprintf(out, CALIBRATION_PATH, "%s/calibration-%016llx.json", cache_path,
                 (unsigned long long)hash_more(HASH_OF_NOTHING, key->text, strlen(key->text)));
    return length > 0 && length < CALIBRATION_PATH;
}

// ---- Reading ------------------------------------------------------------------------------------

// Parses the machine inside the file from its own text.
static enum status parse_machine(struct machine *out, const json_t *machine, struct err *e) {
    const size_t length = json_is_object(machine) ? json_dumpb(machine, NULL, 0, 0) : 0;
    if (length == 0) return err_set(e, ERR_FORMAT, "it holds no machine");
    char *text = mem_alloc(length, 1);
    if (!text) return err_memory(e, length, "a calibration");
    enum status status = OK;
    if (json_dumpb(machine, text, length, 0) != length)
        status = err_memory(e, length, "a calibration");
    else
        status = machine_parse(out, text, length, e);
    mem_free(text);
    return status;
}

static double number_of(const json_t *notes, const char *name) {
    return json_number_value(json_object_get(notes, name)); // 0 without
}

static void parse_notes(struct calibration *out, const json_t *notes) {
    *out = (struct calibration){
        .decode_team = (int32_t)json_integer_value(json_object_get(notes, "decode_team")),
        .seconds = number_of(notes, "seconds"),
        .spread = number_of(notes, "spread"),
        .busy_others = number_of(notes, "busy_others"),
        .made_at = json_integer_value(json_object_get(notes, "made_at")),
    };
    for (size_t d = 0; d < MAX_DEVICES; d++)
        out->measured[d] =
            (uint32_t)json_integer_value(json_array_get(json_object_get(notes, "measured"), d));
}

// The content of a file that was read.
struct kept {
    struct machine machine;
    struct calibration notes;
};

static enum status parse(struct kept *out, const char *text, size_t length,
                         const struct calibration_key *key, struct err *e) {
    json_error_t where;
    json_t *root = json_loadb(text, length, 0, &where);
    const char *own = root ? json_string_value(json_object_get(root, "key")) : NULL;
    enum status status = OK;
    if (!root)
        status = err_set(e, ERR_FORMAT, "line %d: %s", where.line, where.text);
    else if (!own || strcmp(own, key->text) != 0)
        status = err_set(e, ERR_FORMAT, "it is of another computer or version");
    else
        status = parse_machine(&out->machine, json_object_get(root, "machine"), e);
    parse_notes(&out->notes, json_object_get(root, "notes"));
    json_decref(root);
    return status;
}

static enum status read_file(struct kept *out, const char *path, const struct calibration_key *key,
                             struct err *e) {
    char *text = NULL;
    size_t length = 0;
    if (file_read_text(&text, &length, path, FILE_LIMIT_BYTES, e)) return e->status;
    const enum status status = parse(out, text, length, key, e);
    mem_free(text);
    return status;
}

static enum status check_same(const struct machine *m, const struct machine *file, struct err *e) {
    bool same = file->n_devices == m->n_devices && file->rates == RATES_MEASURED;
    for (int32_t d = 0; d < m->n_devices && same; d++)
        same = strcmp(m->devices[d].kind, file->devices[d].kind) == 0;
    return same ? OK : err_set(e, ERR_FORMAT, "it is of other devices");
}

// Reads the file for that key, which is of the same kinds of devices as m if m is given; the caller
// frees it with mem_free. NULL if there is none, or none that can be used: the log says why.
static struct kept *read_kept(const struct machine *m, const char *cache_path,
                              const struct calibration_key *key, const struct log *log) {
    char path[CALIBRATION_PATH], text[512];
    struct err e = {0};
    if (!cache_path || !calibration_path(path, cache_path, key) || access(path, F_OK) != 0)
        return NULL;
    struct kept *kept = mem_alloc(1, sizeof *kept);
    if (!kept) err_memory(&e, sizeof *kept, "a calibration");
    if (kept && read_file(kept, path, key, &e) == OK &&
        (!m || check_same(m, &kept->machine, &e) == OK))
        return kept;
    mem_free(kept);
    log_line(log, LOG_WARN, "the calibration %s is not used: %s", path,
             err_text(&e, text, sizeof text));
    return NULL;
}

// The same for the default threads and instructions, if those of the key are others.
static struct kept *read_defaults(const struct machine *m, const char *cache_path,
                                  const struct calibration_key *key, const struct log *log) {
    struct calibration_key defaults = {0};
    memcpy(defaults.text, key->defaults, sizeof defaults.text);
    if (strcmp(key->text, key->defaults) == 0) return NULL;
    struct kept *kept = read_kept(m, cache_path, &defaults, log);
    if (kept && kept->notes.decode_team > 0) return kept;
    mem_free(kept);
    return NULL;
}

static void scale(struct machine *m, const struct kept *kept, const struct cpu_options *cpu) {
    const int32_t decode = kept->notes.decode_team;
    const int32_t prefill = max_i32(kept->machine.devices[DEVICE_HOST].n_lanes, decode);
    const struct cpu_setting measured = {decode, prefill, cpu_best_isa()};
    const struct cpu_setting asked = calibration_asked(cpu, &measured);
    calibration_scale(m, &measured, &asked);
}

bool calibration_load(struct machine *m, const char *cache_path, const struct calibration_key *key,
                      const struct log *log) {
    struct kept *kept = read_kept(m, cache_path, key, log);
    const bool scaled = !kept;
    if (!kept) kept = read_defaults(m, cache_path, key, log);
    if (!kept) return false;
    machine_copy_rates(m, &kept->machine);
    if (scaled) scale(m, kept, &key->cpu);
    mem_free(kept);
    return true;
}

bool calibration_load_notes(struct calibration *out, const char *cache_path,
                            const struct calibration_key *key) {
    struct kept *kept = read_kept(NULL, cache_path, key, NULL);
    *out = kept ? kept->notes : (struct calibration){0};
    mem_free(kept);
    return kept != NULL;
}

bool calibration_is_worse(const struct calibration *c, const char *cache_path,
                          const struct calibration_key *key, struct calibration *older) {
    return calibration_load_notes(older, cache_path, key) && !calibration_replaces(c, older);
}

// ---- Writing ------------------------------------------------------------------------------------

static json_t *notes_of(const struct calibration *c) {
    json_t *measured = json_array();
    for (int d = 0; d < MAX_DEVICES; d++)
        json_array_append_new(measured, json_integer(c->measured[d]));
    return json_pack("{s:o, s:i, s:f, s:f, s:f, s:I}", "measured", measured, "decode_team",
                     (int)c->decode_team, "seconds", c->seconds, "spread", c->spread, "busy_others",
                     c->busy_others, "made_at", (json_int_t)c->made_at);
}

// The content of a file that is written, borrowed.
struct content {
    const struct machine *machine;
    const struct calibration *notes;
    const struct calibration_key *key;
};

static enum status write_text(FILE *out, const void *context, struct err *e) {
    const struct content *content = context;
    json_t *name = json_string(content->key->text), *notes = notes_of(content->notes);
    bool good = name && notes && fputs("{\"key\": ", out) >= 0 &&
                json_dumpf(name, out, JSON_ENCODE_ANY) == 0 && fputs(",\n\"notes\": ", out) >= 0 &&
                json_dumpf(notes, out, 0) == 0 && fputs(",\n\"machine\": ", out) >= 0;
    json_decref(name);
    json_decref(notes);
    if (!good) return err_set(e, ERR_FILE, "the calibration cannot be written");
    if (machine_save(content->machine, out, e)) return e->status;
    return fputs("}\n", out) >= 0 ? OK : err_errno(e, EIO, "the calibration");
}

enum status calibration_store(const struct machine *m, const struct calibration *notes,
                              const char *cache_path, const struct calibration_key *key,
                              struct err *e) {
    char path[CALIBRATION_PATH];
    if (!calibration_path(path, cache_path, key))
        return err_set(e, ERR_FILE, "the name of the folder for calibrations is too long");
    if (file_make_folders(cache_path, e)) return e->status;
    return new_file_print(path, write_text, &(struct content){m, notes, key}, e);
}

// True for the names that calibration_path gives.
static bool is_calibration(const char *name) {
    unsigned long long hash;
    int length = 0;
    return sscanf(name, "calibration-%16llx.json%n", &hash, &length) == 1 && length > 0 &&
           !name[length];
}

int32_t calibration_forget(const char *cache_path, struct err *e) {
    int32_t n = 0;
    DIR *folder = opendir(cache_path);
    if (!folder && errno == ENOENT) return 0;
    if (!folder) return err_errno(e, errno, "%s", cache_path), -1;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!is_calibration(entry->d_name)) continue;
        if (unlinkat(dirfd(folder), entry->d_name, 0) != 0) {
            err_errno(e, errno, "%s/%s", cache_path, entry->d_name);
            closedir(folder);
            return -1;
        }
        n++;
    }
    closedir(folder);
    return n;
}
