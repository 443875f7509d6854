#include "model-server/spec/ngram.h"

/* Number of equal tokens before `a` and before `b`; b > a. */
static uint32_t agreement(const uint32_t *ids, uint32_t a, uint32_t b)
{
    uint32_t n = 0;
    while (n < NGRAM_MOST && n < a && ids[a - 1 - n] == ids[b - 1 - n])
        n++;
    return n;
}

struct ngram ngram_find(const uint32_t *ids, uint32_t n)
{
    struct ngram best = {0};
    if (n < NGRAM_LEAST + 1)
        return best;
    const uint32_t last = ids[n - 1], before = ids[n - 2];
    for (uint32_t at = n - 1; at >= NGRAM_LEAST && best.match < NGRAM_MOST; at--) {
        if (ids[at - 1] != last || ids[at - 2] != before)
            continue;
        uint32_t match = agreement(ids, at, n);
        if (match > best.match)
            best = (struct ngram){at, match};
    }
    return best;
}
