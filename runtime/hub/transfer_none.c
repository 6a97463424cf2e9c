/* transfer_none.c: see transfer.h; for builds without libcurl or nettle. Every transfer fails. */
#include "runtime/hub/transfer.h"

static enum status refuse(struct err *e) {
    err_set(e, ERR_UNSUPPORTED,
            "this tandem was built without libcurl and nettle, which fetch models");
    return err_fix(e, "fetch the file by other means and give it with -m, or build with "
                      "libcurl4-openssl-dev and nettle-dev");
}

enum status transfer_text(const struct transfer_source *source, struct transfer_answer *out,
                          size_t limit_bytes, struct err *e) {
    (void)source;
    (void)limit_bytes;
    *out = (struct transfer_answer){0};
    return refuse(e);
}

enum status transfer_range(const struct transfer_source *source, int descriptor, uint64_t offset,
                           uint64_t size_bytes, struct err *e) {
    (void)source;
    (void)descriptor;
    (void)offset;
    (void)size_bytes;
    return refuse(e);
}

enum status transfer_file(const struct transfer_source *source,
                          const struct transfer_target *target, struct err *e) {
    (void)source;
    (void)target;
    return refuse(e);
}
