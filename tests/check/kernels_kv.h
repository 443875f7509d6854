/* kernels_kv.h - the kernels that read pages of the KV cache, against the plain C reference. */
#ifndef TESTS_CHECK_KERNELS_KV_H
#define TESTS_CHECK_KERNELS_KV_H
#include "model-server/backend/mathf.h"
#include "tests/check/kernels_rig.h"

/* Pages of any bits that are no NaN; both lists name the same ones, in any order. */
enum { KV_DIM_MAX = 140, KV_PAGES = KV_SPLIT / KV_PAGE, KV_ROOM = 6 };
static _Alignas(64) char pages[KV_ROOM][KV_PAGE * (KV_DIM_MAX + 16) * 4];
static const char *page_list[KV_PAGES + KV_AHEAD];
static float kv_p[TILE_ROWS * KV_SCORES_LD];

static uint16_t half(enum kv_dtype t)
{
    return t == KV_F16 ? f16_of_f32(rng_wide(&rng)) : bf16_of_f32(rng_wide(&rng));
}

static uint32_t two_halves(enum kv_dtype t)
{
    const uint32_t high = half(t);
    return high << 16 | half(t);
}

static void fill_pages(enum kv_dtype t, uint32_t dim)
{
    for (uint32_t i = 0; i < KV_ROOM; i++)
        for (size_t k = 0; k < sizeof(pages[0]); k += 4) {
            const uint32_t word = kv_dtype_scaled(t) ? rng_u32(&rng) /* any byte is a number */
                                                     : two_halves(t);
            memcpy(pages[i] + k, &word, 4);
        }
    for (uint32_t i = 0; kv_dtype_scaled(t) && i < KV_ROOM * KV_PAGE; i++)
        kv_scales(pages[i / KV_PAGE], t, dim)[i % KV_PAGE] = rng_wide(&rng);
    for (uint32_t i = 0; i < KV_PAGES + KV_AHEAD; i++)
        page_list[i] = pages[rng_below(&rng, KV_ROOM)];
}

/* Words of two bfloat16 numbers instead of floats. */
static void fill_words(float *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        p[i] = float_of((uint32_t)bf16_of_f32(rng_wide(&rng)) << 16 | bf16_of_f32(rng_wide(&rng)));
}

/* `n` is the head's dimension here. */
static bool check_scores(scores_f32_fn *ref, scores_f32_fn *fn, uint32_t n, enum kv_dtype t,
                         bool pairs)
{
    n = n > KV_DIM_MAX ? 64 * (1 + n % 2) : n;
    fill_pages(t, n);
    for (uint32_t rows = 1; rows <= TILE_ROWS; rows++) {
        struct kv_scores a = {.rows = rows, .head_dim = n, .pages = page_list, .q = x};
        a.n = 1 + rng_below(&rng, n < 20 ? KV_PAGES : 7);
        fill(MAXN);
        if (pairs)
            fill_words(x, MAXN);
        if (rows % 2) /* of bfloat16: any bits that are no NaN */
            a.scaled = (struct kv_scaled){page_list, 4 * (size_t)rng_below(&rng, 16)};
        a.s = want;
        ref(&a);
        a.s = got;
        fn(&a);
        if (!same())
            return false;
    }
    return true;
}

static bool check_values(values_f32_fn *ref, values_f32_fn *fn, uint32_t n, enum kv_dtype t,
                         bool pairs)
{
    n = n > KV_DIM_MAX ? 64 * (1 + n % 2) : n;
    fill_pages(t, n);
    for (uint32_t rows = 1; rows <= TILE_ROWS; rows++) {
        struct kv_values a = {.rows = rows, .head_dim = n, .pages = page_list, .p = kv_p};
        a.ldo = kv_padded(n), a.first = rng_below(&rng, 40);
        a.end = a.first + 1 + rng_below(&rng, n < 20 ? KV_SPLIT - 40 : 50);
        fill(MAXN);
        for (uint32_t i = 0; i < TILE_ROWS * KV_SCORES_LD; i++)
            kv_p[i] = rng_unit(&rng);
        if (pairs)
            fill_words(kv_p, TILE_ROWS * KV_SCORES_LD);
        start_from(x, (uint32_t)(rows * a.ldo));
        a.o = want;
        ref(&a);
        a.o = got;
        fn(&a);
        if (!same())
            return false;
    }
    return true;
}

#define CHECK_KV(type, t)                                                                          \
    static bool check_scores_##type(void (*fn)(void), uint32_t n)                                  \
    {                                                                                              \
        return check_scores(k_scores_##type##_ref, (scores_f32_fn *)fn, n, t, false);              \
    }                                                                                              \
    static bool check_values_##type(void (*fn)(void), uint32_t n)                                  \
    {                                                                                              \
        return check_values(k_values_##type##_ref, (values_f32_fn *)fn, n, t, false);              \
    }
CHECK_KV(f32, KV_F32)
CHECK_KV(f16, KV_F16)
CHECK_KV(bf16, KV_BF16)
CHECK_KV(i8, KV_I8)
CHECK_KV(fp8, KV_FP8)
CHECK_KV(i4, KV_I4)

#define CHECK_PAIRS(type, t)                                                                       \
    static bool check_scores_pairs_##type(void (*fn)(void), uint32_t n)                            \
    {                                                                                              \
        return check_scores(k_scores_pairs_##type##_ref, (scores_f32_fn *)fn, n, t, true);         \
    }                                                                                              \
    static bool check_values_pairs_##type(void (*fn)(void), uint32_t n)                            \
    {                                                                                              \
        return check_values(k_values_pairs_##type##_ref, (values_f32_fn *)fn, n, t, true);         \
    }
CHECK_PAIRS(bf16, KV_BF16)
CHECK_PAIRS(i8, KV_I8)
CHECK_PAIRS(fp8, KV_FP8)
CHECK_PAIRS(i4, KV_I4)

/* With 0x55 in both where no number is written. */
static bool check_widen_pages(widen_keys_fn *ref, widen_keys_fn *fn, uint32_t n)
{
    static _Alignas(64) char to[2][KV_PAGES][KV_PAGE * (KV_DIM_MAX + 16) * 2];
    const enum kv_dtype t = (enum kv_dtype)(KV_I8 + n % (KV_N - KV_I8));
    const uint32_t dim = 1 + n % KV_DIM_MAX, count = 1 + n % KV_PAGES;
    fill_pages(t, dim);
    memset(to, 0x55, sizeof(to));
    for (int i = 0; i < 2; i++) {
        char *dst[KV_PAGES];
        for (uint32_t k = 0; k < KV_PAGES; k++)
            dst[k] = to[i][k];
        (i ? fn : ref)(dst, page_list, count, dim, t);
    }
    return !memcmp(to[0], to[1], sizeof(to[0]));
}
static bool check_widen_keys(void (*fn)(void), uint32_t n)
{
    return check_widen_pages(k_widen_keys_ref, (widen_keys_fn *)fn, n);
}
static bool check_widen_values(void (*fn)(void), uint32_t n)
{
    return check_widen_pages(k_widen_values_ref, (widen_values_fn *)fn, n);
}

static bool check_pair_weights(void (*fn)(void), uint32_t n)
{
    const uint32_t count = 1 + n % KV_PAGES;
    for (uint32_t i = 0; i < KV_SPLIT; i++) /* to below what fp32 has without loss */
        want[i] = got[i] = ldexpf(rng_unit(&rng), -(int)rng_below(&rng, 150));
    struct kv_scaled scaled = {n % 2 ? page_list : NULL, 0};
    fill_pages(KV_I8, 4);
    scaled.at = (size_t)((const char *)kv_scales(pages[0], KV_I8, 4) - pages[0]);
    k_pair_weights_ref(want, count, &scaled);
    CALL(pair_weights)(got, count, &scaled);
    return same();
}

static bool check_weigh(void (*fn)(void), uint32_t n)
{
    uint32_t rows = 1 + n % TILE_ROWS, dim = 1 + n % KV_DIM_MAX, count = 1 + n % KV_PAGES;
    fill_pages(KV_I8, dim);
    fill(MAXN);
    start_from(x, MAXN);
    const size_t scales = (size_t)((const char *)kv_scales(pages[0], KV_I8, dim) - pages[0]);
    k_weigh_ref(want, rows, page_list, count, scales);
    CALL(weigh)(got, rows, page_list, count, scales);
    return same();
}

/* Where positions are in steps, for a list of up to KV_PAGES pages. */
static struct kv_columns random_columns(void)
{
    struct kv_columns a = {.lead = rng_below(&rng, 2)};
    const uint32_t n = 1 + rng_below(&rng, 5 * KV_PAGE);
    a.first = rng_below(&rng, n), a.end = a.first + rng_below(&rng, n - a.first + 1);
    a.steps = (a.lead * KV_PAGE + n + 31) / 32;
    return a;
}

static bool check_square_values(void (*fn)(void), uint32_t n)
{
    static char to[2][4 * 8 * SQUARE_BYTES];
    struct kv_square_values a = {.dst = to[0], .pages = page_list, .dims = 32 + n % 4 * 32};
    a.at = random_columns();
    fill_pages(KV_BF16, a.dims);
    if (n % 3 == 0) /* one of a page, which may be in the list, and among what is read */
        memset(pages[1] + 64 * rng_below(&rng, 16), 0x7f, 3);
    memset(to, 0x55, sizeof(to));
    const bool finite = k_square_values_ref(&a);
    a.dst = to[1];
    return CALL(square_values)(&a) == finite && !memcmp(to[0], to[1], sizeof(to[0]));
}

static bool check_square_weights(void (*fn)(void), uint32_t n)
{
    enum { ROWS = 11 };
    static char to[2][2 * 2 * SQUARE_PARTS * 8 * SQUARE_BYTES];
    struct kv_seen seen[ROWS];
    struct kv_square_weights a = {.dst = to[0], .src = kv_p + KV_PAGE, .seen = seen};
    a.rows = 1 + rng_below(&rng, ROWS), a.square = 1 + rng_below(&rng, SQUARE);
    a.parts = n % 2 ? 1 : SQUARE_PARTS;
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct kv_columns c = random_columns();
        seen[i] = (struct kv_seen){c.first, c.end};
        a.lead = i ? a.lead : c.lead;
        a.steps = c.steps + 1 > a.steps ? c.steps + 1 : a.steps;
    }
    a.square = a.square < a.rows / 2 ? a.rows : a.square; /* room */
    for (uint32_t i = 0; i < TILE_ROWS * KV_SCORES_LD; i++)
        kv_p[i] = ldexpf(rng_unit(&rng), -(int)rng_below(&rng, 150));
    memset(to, 0x55, sizeof(to));
    k_square_weights_ref(&a);
    a.dst = to[1];
    CALL(square_weights)(&a);
    return !memcmp(to[0], to[1], sizeof(to[0]));
}

static bool check_square_sum(void (*fn)(void), uint32_t n)
{
    static _Alignas(64) char rows[SQUARE_PARTS * 4 * SQUARE_BYTES];
    struct kv_square_sum a = {.sums = want, .x = rows, .parts = n % 2 ? 1 : SQUARE_PARTS};
    a.values = (struct kv_square_values){.pages = page_list, .dims = 32 + n % 4 * 32};
    a.values.at = random_columns();
    a.rows = 1 + rng_below(&rng, SQUARE), a.ld = a.values.dims + 16 * (n % 2);
    fill_pages(KV_BF16, a.values.dims);
    if (n % 5 == 0)
        memset(pages[1] + 64 * rng_below(&rng, 16), 0x7f, 2);
    for (size_t i = 0; i < sizeof(rows); i += 2)
        memcpy(rows + i, &(uint16_t){bf16_of_f32(rng_wide(&rng))}, 2);
    fill(MAXN);
    const bool finite = k_square_sum_ref(&a);
    a.sums = got;
    return CALL(square_sum)(&a) == finite && same();
}
#endif
