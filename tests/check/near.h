/* near.h - a relative position bias for tests of attention: of up to NEAR_HEADS heads, no two
 * distances alike. */
#ifndef TESTS_CHECK_NEAR_H
#define TESTS_CHECK_NEAR_H
#include <math.h>
#include <stddef.h>

enum { NEAR_REACH = 37, NEAR_HEADS = 4, NEAR_EACH = 2 * NEAR_REACH + 1 };

/* See struct attn: of.near = nears, .reach = NEAR_REACH. Filled by near_fill(). */
static float nears[NEAR_HEADS * NEAR_EACH];

static inline void near_fill(void)
{
    for (size_t i = 0; i < NEAR_HEADS * NEAR_EACH; i++)
        nears[i] = 2 * sinf((float)i * 1.7f);
}
#endif
