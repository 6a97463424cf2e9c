/* schema_number.c: see schema_number.h. Negative numbers are positive ones between the bounds with
 * their signs changed. A number is as large as a bound as far as its digits are those of the bound;
 * behind the first other digit all are free. */
#include "runtime/grammar/schema_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Fifteen digits tell doubles apart: with one more than a bound has, a number is still beyond it.
enum { DIGITS_MOST = 14 };

// A bound, without its sign.
struct edge {
    bool exists, exclusive;
    int64_t whole;
    char decimals[DIGITS_MOST + 2]; // without 0s at the end
};

static enum status read_edge(const struct schema_bound *bound, struct edge *out, struct err *e) {
    const double value = fabs(bound->value);
    char text[512];
    *out = (struct edge){.exists = bound->exists, .exclusive = bound->exclusive};
    if (!bound->exists) return OK;
    for (int n = 0; n < DIGITS_MOST; n++) {
        const int length = snprintf(text, sizeof text, "%.*f", n, value);
        if (length > DIGITS_MOST + (n > 0)) break;
        const double read = strtod(text, NULL);
        if (read < value || read > value) continue;
        out->whole = strtoll(text, NULL, 10);
        if (n > 0) snprintf(out->decimals, sizeof out->decimals, "%s", strchr(text, '.') + 1);
        return OK;
    }
    return err_set(e, ERR_UNSUPPORTED, "schema: a bound of a number takes more than %d digits",
                   DIGITS_MOST);
}

// ---- Decimals -----------------------------------------------------------------------------------

// Decimals behind a whole number; those of the edges that it is still as large as count.
struct decimals {
    struct schema_text *out;
    const struct edge *low, *high; // NULL: no digit is too low, or too high
    int most;                      // digits that may come
};

static bool is_zero(const char *digits) { return digits[strspn(digits, "0")] == 0; }

// The decimals of an edge from digit at on; "" behind the last.
static const char *rest_of(const struct edge *edge, int at) {
    const int n = (int)strlen(edge->decimals);
    return edge->decimals + (at < n ? at : n);
}

// True if the number may end before digit at.
static bool may_end(const struct decimals *d, int at) {
    const bool low = !d->low || (is_zero(rest_of(d->low, at)) && !d->low->exclusive);
    return low && (!d->high || !is_zero(rest_of(d->high, at)) || !d->high->exclusive);
}

// True if some digits from at on keep the number between the edges.
static bool is_possible(const struct decimals *d, int at) {
    if (!d->high) return true;
    const char *low = d->low ? rest_of(d->low, at) : "", *high = rest_of(d->high, at);
    while (*low && *low == *high) low++, high++;
    const bool equal = is_zero(low) && is_zero(high);
    const bool open = d->high->exclusive || (d->low && d->low->exclusive);
    return equal ? !open : *low < *high;
}

// Digits from at on, of which there are at least one. Recursion ends with the digits that may come.
static void add_digits_from(const struct decimals *d, int at) {
    const char *low = d->low ? rest_of(d->low, at) : "";
    const char *high = d->high ? rest_of(d->high, at) : "";
    const int first = *low ? *low : '0', last = *high ? *high : d->high ? '0' : '9';
    const bool is_last = at + 1 == d->most;
    const char *between = "";
    for (int digit = first; digit <= last; digit++) {
        const bool as_low = d->low && digit == first, as_high = d->high && digit == last;
        const struct decimals next = {d->out, as_low ? d->low : NULL, as_high ? d->high : NULL,
                                      d->most};
        if (!as_low && !as_high) { // nor are those that follow, but for the last
            const int end = d->high ? last - 1 : last;
            schema_text_add(d->out, "%s[%c-%c] [0-9]{0,%d}", between, digit, end, d->most - at - 1);
            digit = end;
        } else if (is_last ? may_end(&next, at + 1) : is_possible(&next, at + 1)) {
            schema_text_add(d->out, "%s\"%c\"", between, digit);
            if (is_last) continue;
            schema_text_add(d->out, " (%s", may_end(&next, at + 1) ? "\"\" | " : "");
            add_digits_from(&next, at + 1);
            schema_text_add(d->out, ")");
        } else
            continue;
        between = " | ";
    }
}

// ---- Numbers ------------------------------------------------------------------------------------

// Digits that may come behind a whole number, so that there are at most 15.
static int most_decimals(int64_t whole) {
    int n = DIGITS_MOST + 1;
    for (; whole > 0; whole /= 10) n--;
    return n;
}

// Numbers from whole on that are below the next whole one. Returns true if there are any.
static bool add_of_whole(struct schema_text *t, const char *between, int64_t whole,
                         const struct edge *low, const struct edge *high) {
    const struct decimals d = {t, low, high, most_decimals(whole)};
    if (!is_possible(&d, 0)) return false;
    schema_text_add(t, "%s\"%lld\" (%s\".\" (", between, (long long)whole,
                    may_end(&d, 0) ? "\"\" | " : "");
    add_digits_from(&d, 0);
    schema_text_add(t, "))");
    return true;
}

// Numbers of 0 and more between the edges.
static void add_positive(struct schema_text *t, const struct edge *low, const struct edge *high) {
    const int64_t first = low->whole, last = high->whole;
    const bool same = high->exists && first == last;
    const char *between = add_of_whole(t, "", first, low, same ? high : NULL) ? " | " : "";
    if (same) return;
    if (!high->exists || last - first > 1) {
        schema_text_add(t, "%s(", between);
        schema_text_range(t, true, first + 1, high->exists, last - 1);
        schema_text_add(t, ") (\".\" [0-9]{1,%d})?",
                        high->exists ? most_decimals(last) : DIGITS_MOST);
        between = " | ";
    }
    if (high->exists) add_of_whole(t, between, last, NULL, high);
}

enum status schema_text_number(struct schema_text *t, const struct schema_bound *low,
                               const struct schema_bound *high, struct err *e) {
    struct edge least, most;
    const bool open = low->exclusive || high->exclusive;
    if (low->exists && high->exists &&
        (low->value > high->value || (low->value >= high->value && open)))
        return err_set(e, ERR_FORMAT, "schema: maximum is below minimum");
    if (read_edge(low, &least, e) || read_edge(high, &most, e)) return e->status;
    const bool negative = !low->exists || low->value < 0;
    const bool positive =
        !high->exists || high->value > 0 || (high->value >= 0 && !high->exclusive);
    const struct edge from_0 = {.exclusive = low->exists && low->value >= 0 && low->exclusive};
    const struct edge below_0 = {.exclusive = high->exists && high->value <= 0 && high->exclusive};
    if (negative) {
        schema_text_add(t, "\"-\" (");
        add_positive(t, high->exists && high->value < 0 ? &most : &below_0, &least);
        schema_text_add(t, ")%s", positive ? " | " : "");
    }
    if (positive) add_positive(t, low->exists && low->value > 0 ? &least : &from_0, &most);
    return OK;
}
