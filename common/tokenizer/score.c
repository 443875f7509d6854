#include "common/tokenizer/score.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static double from_parts(uint64_t digits, int64_t exponent)
{
    char power[16];
    double f = (double)digits;
    for (; exponent < -308 && f != 0; exponent += 308)
        f /= 1e308;
    if (exponent > 308 || exponent < -308)
        return f == 0 ? 0 : (double)INFINITY;
    snprintf(power, sizeof power, "1e%d", (int)(exponent < 0 ? -exponent : exponent));
    return exponent < 0 ? f / strtod(power, NULL) : f * strtod(power, NULL);
}

struct digits {
    const char *p, *end;
};

/* Reads digits into *v while they fit; *taken: their number. Returns the number of other digits. */
static int64_t read_digits(struct digits *d, uint64_t *v, int64_t *taken)
{
    int64_t lost = 0;
    for (; d->p < d->end && *d->p >= '0' && *d->p <= '9'; d->p++) {
        if (lost || *v > (UINT64_MAX - 9) / 10) {
            lost++;
        } else {
            *v = *v * 10 + (uint64_t)(*d->p - '0');
            ++*taken;
        }
    }
    return lost;
}

static int64_t read_exponent(struct digits *d)
{
    uint64_t e = 0;
    int64_t taken = 0;
    if (d->p == d->end)
        return 0;
    d->p++; /* the e */
    const bool down = *d->p == '-';
    d->p += down || *d->p == '+';
    if (read_digits(d, &e, &taken) || e > 100000)
        e = 100000;
    return down ? -(int64_t)e : (int64_t)e;
}

double score_of(const char *text, size_t n)
{
    struct digits d = {text, text + n};
    uint64_t digits = 0;
    int64_t whole = 0, part = 0;
    const bool negative = n && *text == '-';
    d.p += negative;
    int64_t exponent = read_digits(&d, &digits, &whole);
    if (d.p < d.end && *d.p == '.') {
        d.p++;
        if (exponent) /* overflow: the rest is dropped */
            read_digits(&d, &(uint64_t){UINT64_MAX}, &part);
        else
            read_digits(&d, &digits, &part);
        exponent -= part;
    }
    exponent += read_exponent(&d);
    const double v = from_parts(digits, exponent);
    return negative ? -v : v;
}
