/* quantize_grid.c: the types with codebooks of magnitudes. See quantize_grid.h and, for the
 * layouts, dequantize.c and grid_tables.h.
 *
 * A group of 16 or 32 columns has a scale, and its columns, by fours or eights, are entries of a
 * codebook. The nearest entry is found exactly: the errors of all numbers that half of an entry's
 * columns may have are added up once, and entries with the same first half are passed over where
 * that half alone is too far off. */
#include "kernels/cpu/quantize_grid.h"

#include "base/err.h"
#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/quantize_fit.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 256,
    GROUP_MOST = 32, // columns
    GROUPS_MOST = 16,
    EIGHT = 8, // columns that share a byte of signs
    LEVELS_MOST = 8,
    HALVES_MOST = 81, // numbers of half an entry: 3 levels of 4 columns, or 8 of 2
    ENTRIES_MOST = 1024,
    SCALE_MOST = 15, // a group's scale is d (2 s + 1)
};

// A type: its codebook, and how scales and signs go with it.
struct kind {
    enum dtype type;
    int columns, group; // of an entry, of a scale
    int n_entries;
    int n_levels;
    float levels[LEVELS_MOST]; // magnitudes
    float unit;                // of d in the block
    bool even;                 // eight columns have an even number of negative ones
};

static const struct kind KINDS[] = {
    {DTYPE_IQ3_S, 4, 32, 512, 8, {1, 3, 5, 7, 9, 11, 13, 15}, 1, false},
    {DTYPE_IQ3_XXS, 4, 32, 256, 8, {4, 12, 20, 28, 36, 44, 52, 62}, 4, true},
    {DTYPE_IQ2_S, 8, 16, 1024, 3, {8, 25, 43}, 8, false},
    {DTYPE_IQ2_XS, 8, 16, 512, 3, {8, 25, 43}, 8, true},
    {DTYPE_IQ2_XXS, 8, 32, 256, 3, {8, 25, 43}, 8, true},
};

static const struct kind *find_kind(enum dtype type) {
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (KINDS[i].type == type) return &KINDS[i];
    return NULL;
}

bool quantize_grid_knows(enum dtype type) { return find_kind(type) != NULL; }

// The magnitudes of an entry, a byte for each column.
static uint64_t entry_of(const struct kind *kind, uint32_t place) {
    switch (kind->type) {
    case DTYPE_IQ3_S: return GRIDS.iq3_s[place];
    case DTYPE_IQ3_XXS: return GRIDS.iq3_xxs[place];
    case DTYPE_IQ2_S: return GRIDS.iq2_s[place];
    case DTYPE_IQ2_XS: return GRIDS.iq2_xs[place];
    default: return GRIDS.iq2_xxs[place];
    }
}

// ---- The codebook -------------------------------------------------------------------------------

// The entries in the order of their first halves. A half is a number whose digits are levels.
struct book {
    const struct kind *kind;
    int n_halves;
    uint16_t starts[HALVES_MOST + 1]; // of a first half's entries in the next two
    uint16_t places[ENTRIES_MOST];
    uint8_t seconds[ENTRIES_MOST]; // second halves
};

static int half_number(const struct kind *kind, uint32_t bytes) {
    int number = 0;
    for (int i = 0; i < kind->columns / 2; i++) {
        int level = 0;
        while (kind->levels[level] < (float)(bytes >> 8 * i & 255)) level++;
        number = kind->n_levels * number + level;
    }
    return number;
}

static void open_book(struct book *b, const struct kind *kind) {
    const int half_bits = 4 * kind->columns;
    uint8_t firsts[ENTRIES_MOST], seconds[ENTRIES_MOST];
    uint16_t next[HALVES_MOST];
    b->kind = kind;
    b->n_halves = kind->columns == 4 ? 64 : 81;
    memset(b->starts, 0, sizeof b->starts);
    for (int i = 0; i < kind->n_entries; i++) {
        const uint64_t entry = entry_of(kind, (uint32_t)i);
        firsts[i] = (uint8_t)half_number(kind, (uint32_t)(entry & ((1ULL << half_bits) - 1)));
        seconds[i] = (uint8_t)half_number(kind, (uint32_t)(entry >> half_bits));
        b->starts[firsts[i] + 1]++;
    }
    for (int h = 0; h < b->n_halves; h++) b->starts[h + 1] += b->starts[h];
    memcpy(next, b->starts, sizeof next);
    for (int i = 0; i < kind->n_entries; i++) {
        const int at = next[firsts[i]]++;
        b->places[at] = (uint16_t)i;
        b->seconds[at] = seconds[i];
    }
}

// Fills errors with those of all numbers of half an entry. Returns the least.
static float half_errors(const struct book *b, const float *x, const float *weights, float d,
                         float errors[HALVES_MOST]) {
    const int n_levels = b->kind->n_levels;
    float least = INFINITY;
    int n = 1;
    errors[0] = 0;
    for (int i = 0; i < b->kind->columns / 2; i++) {
        float own[LEVELS_MOST];
        for (int l = 0; l < n_levels; l++) {
            const float error = d * b->kind->levels[l] - x[i];
            own[l] = weights[i] * error * error;
        }
        for (int k = n - 1; k >= 0; k--) {
            const float before = errors[k];
            for (int l = 0; l < n_levels; l++) errors[k * n_levels + l] = before + own[l];
        }
        n *= n_levels;
    }
    for (int k = 0; k < n; k++) least = errors[k] < least ? errors[k] : least;
    return least;
}

// The best entry so far.
struct found {
    float error;
    uint16_t place;
};

static void scan(const struct book *b, int first, const float *errors, float own,
                 struct found *found) {
    for (int at = b->starts[first]; at < b->starts[first + 1]; at++) {
        const float error = own + errors[b->seconds[at]];
        if (error >= found->error) continue;
        found->error = error;
        found->place = b->places[at];
    }
}

// Finds the entry for x[columns] ~ d entry.
static struct found nearest(const struct book *b, const float *x, const float *weights, float d) {
    const int half = b->kind->columns / 2;
    float first[HALVES_MOST], second[HALVES_MOST];
    struct found found = {INFINITY, b->places[0]};
    int best = 0;
    half_errors(b, x, weights, d, first);
    const float rest = half_errors(b, x + half, weights + half, d, second);
    for (int h = 1; h < b->n_halves; h++)
        if (first[h] < first[best]) best = h;
    scan(b, best, second, first[best], &found);
    for (int h = 0; h < b->n_halves; h++)
        if (first[h] + rest < found.error && h != best) scan(b, h, second, first[h], &found);
    return found;
}

// ---- Groups -------------------------------------------------------------------------------------

// A block: magnitudes, below 0 where the stored sign is the wrong one, and what becomes of them.
struct grid_block {
    float x[BLOCK], weights[BLOCK];
    uint8_t signs[BLOCK / EIGHT]; // bit i: column i is negative
    uint16_t places[BLOCK / 4];
    int32_t scales[GROUPS_MOST];
};

// Takes the signs apart. Where their number must be even and is not, that of the column which costs
// least is stored wrong.
static void take_signs(const struct kind *kind, const float *x, struct grid_block *block) {
    for (int i = 0; i < BLOCK; i += EIGHT) {
        uint8_t *signs = &block->signs[i / EIGHT];
        int least = i;
        *signs = 0;
        for (int k = i; k < i + EIGHT; k++) {
            *signs |= (uint8_t)((x[k] < 0) << (k - i));
            block->x[k] = fabsf(x[k]);
            if (block->weights[k] * x[k] * x[k] < block->weights[least] * x[least] * x[least])
                least = k;
        }
        if (!kind->even || __builtin_popcount(*signs) % 2 == 0) continue;
        *signs ^= (uint8_t)(1 << (least - i));
        block->x[least] = -block->x[least];
    }
}

// Sums by which the scale of given numbers is found.
struct products {
    float xq, qq;
};

static void add_products(const struct kind *kind, uint16_t place, const float *x,
                         const float *weights, float scale, struct products *sums) {
    const uint64_t entry = entry_of(kind, place);
    for (int i = 0; i < kind->columns; i++) {
        const float q = scale * (float)(entry >> 8 * i & 255);
        sums->xq += weights[i] * x[i] * q;
        sums->qq += weights[i] * q * q;
    }
}

// The best scale of a group so far: by least squares the error falls by best = xq^2 / qq.
struct scale_fit {
    float scale, best;
};

static void try_scale(const struct book *b, const float *x, const float *weights, float d,
                      struct scale_fit *fit) {
    const int columns = b->kind->columns;
    struct products sums = {0, 0};
    for (int i = 0; i < b->kind->group; i += columns)
        add_products(b->kind, nearest(b, x + i, weights + i, d).place, x + i, weights + i, 1,
                     &sums);
    if (!(sums.xq > 0 && sums.xq * sums.xq > fit->best * sums.qq)) return;
    fit->best = sums.xq * sums.xq / sums.qq;
    fit->scale = sums.xq / sums.qq;
}

enum { TRIALS = 13, LOW_LEVELS = 1 };
static const float FIRST_TRIAL = 0.76F, TRIAL_STEP = 0.04F; // of the scale that cuts nothing off

// The scale d for x ~ d entries of a group. The largest element has about the largest magnitude,
// or, where all are nearly equal, one of the smallest.
static float fit_group(const struct book *b, const float *x, const float *weights) {
    const struct kind *kind = b->kind;
    const float largest = fabsf(fit_largest(x, kind->group));
    const float whole = largest / kind->levels[kind->n_levels - 1];
    struct scale_fit fit = {0, 0};
    if (largest == 0) return 0;
    for (int trial = 0; trial < TRIALS; trial++)
        try_scale(b, x, weights, whole * (FIRST_TRIAL + TRIAL_STEP * (float)trial), &fit);
    for (int level = 0; level < LOW_LEVELS; level++)
        try_scale(b, x, weights, largest / kind->levels[level], &fit);
    return fit.scale != 0 ? fit.scale : whole;
}

// Fills in the entries of a group for the scale d. Returns the error.
static float place_group(const struct book *b, struct grid_block *block, int first, float d) {
    const int columns = b->kind->columns;
    float error = 0;
    for (int i = first; i < first + b->kind->group; i += columns) {
        const struct found found = nearest(b, block->x + i, block->weights + i, d);
        block->places[i / columns] = found.place;
        error += found.error;
    }
    return error;
}

// Chooses a group's scale for d: the nearest to the wanted one, or one beside it.
static void choose_scale(const struct book *b, struct grid_block *block, int g, float wanted,
                         float d) {
    const int32_t middle = fit_number((wanted / d - 1) / 2, 0, SCALE_MOST);
    float least = INFINITY;
    for (int32_t s = middle - 1; s <= middle + 1; s++) {
        if (s < 0 || s > SCALE_MOST) continue;
        const float error = place_group(b, block, g * b->kind->group, d * (float)(2 * s + 1));
        if (error >= least) continue;
        least = error;
        block->scales[g] = s;
    }
    (void)place_group(b, block, g * b->kind->group, d * (float)(2 * block->scales[g] + 1));
}

// The best d for the scales and entries of all groups.
static float refit(const struct kind *kind, const struct grid_block *block, float d) {
    struct products sums = {0, 0};
    for (int i = 0; i < BLOCK; i += kind->columns)
        add_products(kind, block->places[i / kind->columns], block->x + i, block->weights + i,
                     (float)(2 * block->scales[i / kind->group] + 1), &sums);
    return sums.xq > 0 ? sums.xq / sums.qq : d;
}

// Fills the weights of a group. Importance of 0 everywhere has no preference.
static void weigh_group(const float *x, const float *importance, int n, float *weights) {
    float most = 0;
    fit_weights(x, importance, n, weights);
    for (int i = 0; i < n; i++) most = weights[i] > most ? weights[i] : most;
    if (most == 0) fit_weights(x, NULL, n, weights);
}

// Fills the block and writes d.
static void fit_block(const struct book *b, const float *x, const float *importance,
                      struct grid_block *block, uint8_t *out) {
    const struct kind *kind = b->kind;
    const int n = kind->group;
    float wanted[GROUPS_MOST], largest = 0;
    for (int i = 0; i < BLOCK; i += n)
        weigh_group(x + i, importance ? importance + i : NULL, n, block->weights + i);
    take_signs(kind, x, block);
    for (int g = 0; g < BLOCK / n; g++) {
        wanted[g] = fit_group(b, block->x + g * n, block->weights + g * n);
        if (wanted[g] > largest) largest = wanted[g];
    }
    float d = largest / (2 * SCALE_MOST + 1);
    memset(block->scales, 0, sizeof block->scales);
    memset(block->places, 0, sizeof block->places);
    if (d > 0) {
        for (int g = 0; g < BLOCK / n; g++) choose_scale(b, block, g, wanted[g], d);
        d = refit(kind, block, d);
    }
    d = fit_half(out, d * kind->unit) / kind->unit;
    for (int g = 0; g < BLOCK / n && d > 0; g++)
        (void)place_group(b, block, g * n, d * (float)(2 * block->scales[g] + 1));
}

// ---- Layouts ------------------------------------------------------------------------------------

// Seven signs of each eight columns of a group, of which the eighth follows, and the scale.
static uint32_t word_of(const struct grid_block *block, int group) {
    uint32_t word = (uint32_t)block->scales[group] << 28;
    for (int i = 0; i < 4; i++) word |= (block->signs[4 * group + i] & 127U) << 7 * i;
    return word;
}

static void pack_iq3_xxs(const struct grid_block *block, uint8_t *out) {
    for (int i = 0; i < BLOCK / 4; i++) out[2 + i] = (uint8_t)block->places[i];
    for (int g = 0; g < BLOCK / 32; g++) {
        const uint32_t word = word_of(block, g);
        memcpy(out + 66 + 4 * g, &word, sizeof word);
    }
}

static void pack_iq2_xxs(const struct grid_block *block, uint8_t *out) {
    for (int g = 0; g < BLOCK / 32; g++) {
        const uint32_t word = word_of(block, g);
        for (int i = 0; i < 4; i++) out[2 + 8 * g + i] = (uint8_t)block->places[4 * g + i];
        memcpy(out + 6 + 8 * g, &word, sizeof word);
    }
}

// Scales two by two, the first one in the low bits.
static void pack_nibbles(const int32_t *scales, int n, uint8_t *out) {
    for (int i = 0; i < n; i += 2) out[i / 2] = (uint8_t)(scales[i] | scales[i + 1] << 4);
}

static void pack_iq3_s(const struct grid_block *block, uint8_t *out) {
    memset(out + 66, 0, 8);
    for (int i = 0; i < BLOCK / 4; i++) {
        out[2 + i] = (uint8_t)block->places[i];
        out[66 + i / 8] |= (uint8_t)((block->places[i] >> 8) << i % 8);
    }
    memcpy(out + 74, block->signs, sizeof block->signs);
    pack_nibbles(block->scales, BLOCK / 32, out + 106);
}

static void pack_iq2_xs(const struct grid_block *block, uint8_t *out) {
    for (int i = 0; i < BLOCK / EIGHT; i++) {
        const uint16_t word = (uint16_t)(block->places[i] | (block->signs[i] & 127) << 9);
        memcpy(out + 2 + 2 * i, &word, sizeof word);
    }
    pack_nibbles(block->scales, BLOCK / 16, out + 66);
}

static void pack_iq2_s(const struct grid_block *block, uint8_t *out) {
    memset(out + 66, 0, 8);
    for (int i = 0; i < BLOCK / EIGHT; i++) {
        out[2 + i] = (uint8_t)block->places[i];
        out[66 + i / 4] |= (uint8_t)((block->places[i] >> 8) << 2 * (i % 4));
    }
    memcpy(out + 34, block->signs, sizeof block->signs);
    pack_nibbles(block->scales, BLOCK / 16, out + 74);
}

static void pack(const struct grid_block *block, enum dtype type, uint8_t *out) {
    switch (type) {
    case DTYPE_IQ3_S: pack_iq3_s(block, out); break;
    case DTYPE_IQ3_XXS: pack_iq3_xxs(block, out); break;
    case DTYPE_IQ2_S: pack_iq2_s(block, out); break;
    case DTYPE_IQ2_XS: pack_iq2_xs(block, out); break;
    default: pack_iq2_xxs(block, out); break;
    }
}

void quantize_grid_row(enum dtype type, const float *x, const float *importance, uint8_t *out,
                       int64_t n) {
    const struct kind *kind = find_kind(type);
    struct grid_block block;
    struct book book;
    ASSERT(kind);
    open_book(&book, kind);
    for (int64_t i = 0; i < n; i += BLOCK) {
        fit_block(&book, x + i, importance ? importance + i : NULL, &block, out);
        pack(&block, type, out);
        out += dtype_bytes(type, BLOCK);
    }
}
