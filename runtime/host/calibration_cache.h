/* calibration_cache.h: keeps the measured rates of this computer between runs.
 *
 * One JSON file for each set of devices and options, PATH/calibration-HASH.json, written under
 * another name and renamed, so that nobody reads half a file. Owns nothing. A file that is missing,
 * damaged or of another format is no error: the reason goes to the log. One thread. Tested by
 * tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_CALIBRATION_CACHE_H
#define TANDEM_RUNTIME_HOST_CALIBRATION_CACHE_H

#include "runtime/host/calibration.h"
#include "runtime/options.h"

enum { CALIBRATION_PATH = 4096 };

// All that rates depend on, as one line: processor, memory, accelerator, driver, this program's
// version and the format of rates; then the instruction set and the threads.
struct calibration_key {
    char text[768];
    char defaults[768];     // the text without options for the CPU
    struct cpu_options cpu; // the options
};

// Makes the key of devices that are opened for those options.
void calibration_key_of(struct calibration_key *out, struct device *const *devices, int32_t n,
                        const struct engine_options *options);

// Writes the file's name to out[CALIBRATION_PATH]; false if it would be too long.
bool calibration_path(char *out, const char *cache_path, const struct calibration_key *key);

// Reads the rates of m (teams, devices, link, shared memory) and its source from the file; m
// describes the devices. Without one for those threads and instructions, the rates for the default
// ones are scaled (calibration_scale.h). False, with m unchanged, if there is no file for that key;
// a warning names a file that cannot be used. cache_path may be NULL.
bool calibration_load(struct machine *m, const char *cache_path, const struct calibration_key *key,
                      const struct log *log);

// Reads what the file for that key says besides rates: types that were measured, threads, noise and
// date. False, with *out zeroed, if there is no such file.
bool calibration_load_notes(struct calibration *out, const char *cache_path,
                            const struct calibration_key *key);

// True if the file for that key is of a better measurement than a noisy one, which must not replace
// it. *older gets what the file says.
bool calibration_is_worse(const struct calibration *c, const char *cache_path,
                          const struct calibration_key *key, struct calibration *older);

// Removes all calibrations from the folder and returns their number; -1 with *e set (ERR_FILE) if
// one cannot be removed. A folder that is not there has none.
int32_t calibration_forget(const char *cache_path, struct err *e);

// Writes the file and makes its folder. ERR_FILE, ERR_MEMORY.
enum status calibration_store(const struct machine *m, const struct calibration *notes,
                              const char *cache_path, const struct calibration_key *key,
                              struct err *e);

#endif
