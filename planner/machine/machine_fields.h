/* machine_fields.h: the one list of the members of a struct machine, with their names in machine
 * files.
 *
 * machine_check, the reader and the writer of files walk it, so a member that is listed is checked,
 * read and written. Constant tables, owns nothing, any thread. Only for planner/machine/. Tested
 * by tests/planner/test_machine.c.
 */
#ifndef TANDEM_PLANNER_MACHINE_MACHINE_FIELDS_H
#define TANDEM_PLANNER_MACHINE_MACHINE_FIELDS_H

#include "planner/machine/machine.h"

enum field_kind {
    FIELD_TEXT,  // char[size]
    FIELD_COUNT, // int32_t
    FIELD_BYTES, // uint64_t, or uint32_t by size
    FIELD_FLAG,  // bool
    FIELD_REAL,  // double
    FIELD_RATE,  // double that must be positive if the device has rates
};

struct machine_field {
    const char *name; // in files
    enum field_kind kind;
    bool required; // in files
    size_t offset, size;
    double max;
};

// The objects of a file. Those up to SECTION_MEMORY lie in struct machine, the others in the struct
// of a device, its rates and its link.
enum machine_section {
    SECTION_TOP,
    SECTION_CPU,
    SECTION_MEMORY,
    SECTION_DEVICE,
    SECTION_RATES,
    SECTION_LINK,
    SECTION_COUNT
};
// The fields of a section; *n gets their number.
const struct machine_field *machine_fields(enum machine_section section, size_t *n);

// Tables of rates with a column for each batch class, in struct device_rates.
struct machine_matrix {
    const char *name;
    size_t offset; // of double[n_rows][RATE_CLASSES]
    int32_t n_rows;
    bool by_weight; // rows are weight types, else types of the KV cache
};
enum { MACHINE_MATRICES = 2 };
extern const struct machine_matrix MACHINE_MATRIX[MACHINE_MATRICES];
const char *machine_row_name(const struct machine_matrix *matrix, int32_t row); // "Q4_K"

// The words for enum rates_source.
extern const char *const MACHINE_RATES_WORDS[RATES_MEASURED + 1];

#define MACHINE_RATE_MIN 1e-6 // the least rate that is valid

#endif
