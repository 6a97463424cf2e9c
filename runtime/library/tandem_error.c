/* tandem_error.c: see tandem_error.h. */
#include "runtime/library/tandem_error.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

static_assert((int)TANDEM_ERR_CANCELLED == (int)ERR_CANCELLED, "both have the same list");
static_assert(sizeof(struct tandem_error) == sizeof(struct err), "both have the same texts");

enum tandem_status tandem_error_give(enum status status, const struct err *e,
                                     struct tandem_error *out) {
    if (!out) return (enum tandem_status)status;
    *out = (struct tandem_error){.status = (enum tandem_status)status};
    if (status == OK) return TANDEM_OK;
    memcpy(out->what, e->what, sizeof out->what);
    memcpy(out->expected, e->expected, sizeof out->expected);
    memcpy(out->actual, e->actual, sizeof out->actual);
    memcpy(out->fix, e->fix, sizeof out->fix);
    return out->status;
}

const char *tandem_error_text(const struct tandem_error *e, char *out, size_t size_bytes) {
    struct err err = {.status = (enum status)e->status};
    if (size_bytes == 0) return out;
    memcpy(err.what, e->what, sizeof err.what);
    memcpy(err.expected, e->expected, sizeof err.expected);
    memcpy(err.actual, e->actual, sizeof err.actual);
    memcpy(err.fix, e->fix, sizeof err.fix);
    return err_text(&err, out, size_bytes);
}

const char *tandem_status_name(enum tandem_status status) {
    return status_name((enum status)status);
}

const char *tandem_version(void) { return TANDEM_VERSION; }

enum status tandem_struct_read(void *out, size_t known_bytes, size_t first_bytes, const void *in,
                               struct err *e) {
    size_t size_bytes;
    if (!in) return OK;
    memcpy(&size_bytes, in, sizeof size_bytes);
    if (size_bytes == 0) size_bytes = first_bytes;
    if (size_bytes < first_bytes) {
        err_set(e, ERR_USAGE, "struct_size of a struct of options is too small");
        err_expected(e, "%zu or more", first_bytes);
        err_actual(e, "%zu", size_bytes);
        return err_fix(e, "fill the struct by its call ..._defaults(&options, sizeof options)");
    }
    for (size_t i = known_bytes; i < size_bytes; i++) {
        if (!((const char *)in)[i]) continue;
        err_set(e, ERR_UNSUPPORTED, "an option is set that this version does not know");
        err_actual(e, "version %s", TANDEM_VERSION);
        return err_fix(e, "use the library that the program was compiled for");
    }
    memcpy(out, in, size_bytes < known_bytes ? size_bytes : known_bytes);
    return OK;
}

void tandem_free(void *memory) { mem_free(memory); }
