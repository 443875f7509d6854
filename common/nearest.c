#include "common/nearest.h"
#include <string.h>

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

uint32_t nearest_distance(const char *a, size_t n_a, const char *b)
{
    const size_t n_b = strlen(b);
    uint32_t rows[3][NEAREST_MAX + 1] = {0};
    uint32_t *before = rows[0], *last = rows[1], *now = rows[2];
    if (n_a > NEAREST_MAX || n_b > NEAREST_MAX)
        return UINT32_MAX;
    for (size_t j = 0; j <= n_b; j++)
        last[j] = (uint32_t)j;
    for (size_t i = 1; i <= n_a; i++) {
        now[0] = (uint32_t)i;
        for (size_t j = 1; j <= n_b; j++) {
            now[j] = least(last[j - 1] + (a[i - 1] != b[j - 1]), least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        uint32_t *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[n_b];
}

int nearest_is(const char *word, size_t n, const char *candidate, uint32_t *best)
{
    const uint32_t d = nearest_distance(word, n, candidate);
    if (d >= *best || (size_t)d * 3 > n)
        return 0;
    *best = d;
    return 1;
}
