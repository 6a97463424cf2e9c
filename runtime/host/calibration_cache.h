/* calibration_cache.h: what was measured on this computer, kept between runs.
 *
 * One JSON file for each set of devices and options, PATH/calibration-HASH.json, written beside and
 * renamed, so that nobody reads half a file. Owns nothing. A file that is missing, damaged or of
 * something else is no error: the reason goes to the log. One thread. Tested by
 * tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_CALIBRATION_CACHE_H
#define TANDEM_RUNTIME_HOST_CALIBRATION_CACHE_H

#include "runtime/options.h"

enum { CALIBRATION_PATH = 4096 };

// What rates depend on, as one line: processor, instruction set, threads, memory, accelerator,
// driver, this program's version and what it measures.
struct calibration_key {
    char text[768];
};

// Of devices as they are opened for those options.
void calibration_key_of(struct calibration_key *out, struct device *const *devices, int32_t n,
                        const struct engine_options *options);

// The file's name into out[CALIBRATION_PATH]; false if it would be too long.
bool calibration_path(char *out, const char *cache_path, const struct calibration_key *key);

// Takes the rates of m (teams, devices, link, shared memory) and its source from the file; m
// describes the devices. False, and m as it was, if there is none for that key: a file that cannot
// be used is named in a warning. cache_path may be NULL.
bool calibration_load(struct machine *m, const char *cache_path, const struct calibration_key *key,
                      const struct log *log);

// Writes the file and makes its folder. ERR_FILE, ERR_MEMORY.
enum status calibration_store(const struct machine *m, const char *cache_path,
                              const struct calibration_key *key, struct err *e);

#endif
