/* kernels_quads.h - the kernels of kv_quads.h against the plain C reference. */
#ifndef TESTS_CHECK_KERNELS_QUADS_H
#define TESTS_CHECK_KERNELS_QUADS_H
#include "tests/check/kernels_kv.h"

enum { QUAD_ROWS = 27 }; /* more than two blocks of any kernel */

static int8_t random_byte(void)
{
    return (int8_t)((int32_t)rng_below(&rng, 2 * QUAD_TOP + 1) - QUAD_TOP);
}

/* The dimension of a head; every fifth has whole panels. */
static uint32_t quad_dim(uint32_t n) { return n % 5 ? 1 + n % KV_DIM_MAX : 64 * (1 + n % 2); }

/* Pages of int4; packed ones have a nibble in a byte. Scales follow in both. */
static struct kv_scaled fill_quads(uint32_t dim, bool packed)
{
    const size_t n = (size_t)KV_PAGE * kv_padded(dim), at = packed ? n : kv_dtype_bytes(KV_I4, n);
    fill_pages(KV_I4, dim);
    for (uint32_t i = 0; i < KV_ROOM; i++) {
        for (size_t k = 0; packed && k < n; k++)
            pages[i][k] &= 15;
        for (uint32_t k = 0; k < KV_PAGE; k++)
            memcpy(pages[i] + at + 4 * k, &(float){rng_wide(&rng)}, 4);
    }
    return (struct kv_scaled){page_list, at};
}

static bool check_scores_quads(void (*fn)(void), uint32_t n)
{
    static int32_t q[KV_DIM_MAX / 4 + 2][QUAD_ROWS];
    struct kv_quad_scores a = {.s = want, .q = q[0], .packed = n % 3 == 0};
    float scales[QUAD_ROWS];
    int32_t sums[QUAD_ROWS] = {0};
    a.head_dim = quad_dim(n), a.n = 1 + rng_below(&rng, 7), a.pages = page_list;
    a.rows = 1 + rng_below(&rng, QUAD_ROWS);
    a.scaled = fill_quads(a.head_dim, a.packed);
    for (uint32_t i = 0; i < kv_dims(a.head_dim) * a.rows; i++) {
        const int8_t byte = random_byte();
        ((int8_t *)q)[i] = byte, sums[i / 4 % a.rows] += byte;
    }
    for (uint32_t r = 0; r < a.rows; r++)
        scales[r] = rng_wide(&rng);
    a.sums = sums, a.scales = scales;
    fill(MAXN);
    k_scores_quads_ref(&a);
    a.s = got;
    CALL(scores_quads)(&a);
    return same();
}

static bool check_values_quads(void (*fn)(void), uint32_t n)
{
    static int8_t p[QUAD_ROWS][KV_SCORES_LD];
    struct kv_quad_values a = {.o = want, .p = p[0], .packed = n % 3 == 0};
    float scales[QUAD_ROWS * QUAD_GROUPS];
    int32_t sums[QUAD_ROWS * QUAD_GROUPS] = {0};
    a.head_dim = quad_dim(n), a.ldo = kv_padded(a.head_dim), a.ldp = sizeof(p[0]);
    a.pages = page_list, a.sums = sums, a.scales = scales;
    a.rows = 1 + rng_below(&rng, QUAD_ROWS), a.lead = rng_below(&rng, QUAD_GROUP / KV_PAGE);
    a.n = 1 + rng_below(&rng, KV_PAGES - a.lead);
    fill_quads(a.head_dim, a.packed);
    for (uint32_t r = 0; r < a.rows; r++)
        for (uint32_t i = 0; i < a.n * KV_PAGE; i++) {
            p[r][i] = random_byte();
            sums[r * QUAD_GROUPS + (i + a.lead * KV_PAGE) / QUAD_GROUP] += p[r][i];
        }
    for (uint32_t i = 0; i < QUAD_ROWS * QUAD_GROUPS; i++)
        scales[i] = rng_wide(&rng);
    fill(MAXN);
    k_values_quads_ref(&a);
    a.o = got;
    CALL(values_quads)(&a);
    return same();
}

/* With 0x55 in both where no number is written. */
static bool check_quad_pages(quads_of_keys_fn *ref, quads_of_keys_fn *fn, uint32_t n)
{
    static char to[2][KV_PAGES][KV_PAGE * (KV_DIM_MAX + 16)];
    const uint32_t dim = quad_dim(n), count = 1 + n % KV_PAGES;
    fill_pages(KV_I4, dim);
    memset(to, 0x55, sizeof(to));
    for (int i = 0; i < 2; i++) {
        char *dst[KV_PAGES];
        for (uint32_t k = 0; k < KV_PAGES; k++)
            dst[k] = to[i][k];
        (i ? fn : ref)(dst, page_list, count, dim);
    }
    return !memcmp(to[0], to[1], sizeof(to[0]));
}
static bool check_quads_of_keys(void (*fn)(void), uint32_t n)
{
    return check_quad_pages(k_quads_of_keys_ref, (quads_of_keys_fn *)fn, n);
}
static bool check_quads_of_values(void (*fn)(void), uint32_t n)
{
    return check_quad_pages(k_quads_of_values_ref, (quads_of_values_fn *)fn, n);
}

/* Numbers of all sizes, some below what is kept, one that is not finite; in place or not. */
static bool check_kv_to_bytes(void (*fn)(void), uint32_t n)
{
    static float rows[2][KV_SPLIT];
    static int8_t to[2][KV_SPLIT];
    float scales[2][QUAD_GROUPS] = {{0}};
    int32_t sums[2][QUAD_GROUPS] = {{0}};
    struct kv_to_bytes a = {.group = n % 2 ? QUAD_GROUP : KV_SPLIT};
    a.lead = n % 2 ? rng_below(&rng, QUAD_GROUP / LANES) * LANES : 0;
    a.n = (1 + rng_below(&rng, (KV_SPLIT - a.lead) / LANES)) * LANES;
    a.lo = rng_below(&rng, a.n), a.hi = a.lo + rng_below(&rng, a.n - a.lo + 1);
    fill_pages(KV_I8, 4);
    if (n % 3)
        a.scaled = (struct kv_scaled){
            page_list, (size_t)((const char *)kv_scales(pages[0], KV_I8, 4) - pages[0])};
    for (uint32_t i = 0; i < KV_SPLIT; i++)
        rows[0][i] = ldexpf(rng_unit(&rng), -(int)rng_below(&rng, n % 5 ? 9 : 200));
    if (n % 7 == 0)
        rows[0][rng_below(&rng, a.n)] = n % 2 ? NAN : INFINITY;
    memcpy(rows[1], rows[0], sizeof(rows[0]));
    for (int i = 0; i < 2; i++) {
        a.x = rows[i], a.dst = n % 4 ? (int8_t *)rows[i] : to[i];
        a.scales = scales[i], a.sums = sums[i];
        if (i)
            CALL(kv_to_bytes)(&a);
        else
            k_kv_to_bytes_ref(&a);
        memmove(to[i], a.dst, a.n);
    }
    return !memcmp(to[0], to[1], a.n) && !memcmp(scales[0], scales[1], sizeof(scales[0])) &&
           !memcmp(sums[0], sums[1], sizeof(sums[0]));
}
#endif
