/* kernels_kv.h - the kernels that read pages of the KV cache, against the plain C reference. */
#ifndef TESTS_CHECK_KERNELS_KV_H
#define TESTS_CHECK_KERNELS_KV_H
#include "model-server/backend/cpu/mathf.h"
#include "tests/check/kernels_rig.h"

/* Pages of any bits that are no NaN; both lists name the same ones, in any order. */
enum { KV_DIM_MAX = 140, KV_PAGES = KV_SPLIT / KV_PAGE, KV_ROOM = 6 };
static _Alignas(64) char pages[KV_ROOM][KV_PAGE * (KV_DIM_MAX + 16) * 4];
static const char *page_list[KV_PAGES + KV_AHEAD];
static float kv_p[TILE_ROWS * KV_SCORES_LD];

static void fill_pages(enum kv_dtype t, uint32_t dim)
{
    for (uint32_t i = 0; i < KV_ROOM; i++)
        for (size_t k = 0; k < sizeof(pages[0]); k += 4) {
            uint16_t low = t == KV_F16 ? f16_of_f32(rng_wide(&rng)) : bf16_of_f32(rng_wide(&rng));
            uint16_t high = t == KV_F16 ? f16_of_f32(rng_wide(&rng)) : bf16_of_f32(rng_wide(&rng));
            uint32_t both = (uint32_t)high << 16 | low, bytes = rng_u32(&rng) & 0x7f7f7f7f;
            bytes = t >= KV_FP8 ? rng_u32(&rng) : bytes; /* every bit pattern is a number */
            memcpy(pages[i] + k, kv_dtype_scaled(t) ? &bytes : &both, 4);
        }
    for (uint32_t i = 0; kv_dtype_scaled(t) && i < KV_ROOM * KV_PAGE; i++)
        kv_scales(pages[i / KV_PAGE], t, dim)[i % KV_PAGE] = rng_wide(&rng);
    for (uint32_t i = 0; i < KV_PAGES + KV_AHEAD; i++)
        page_list[i] = pages[rng_below(&rng, KV_ROOM)];
}

/* `n` is the head's dimension here. */
static bool check_scores(scores_f32_fn *ref, scores_f32_fn *fn, uint32_t n, enum kv_dtype t)
{
    n = n > KV_DIM_MAX ? 64 * (1 + n % 2) : n;
    for (uint32_t rows = 1; rows <= TILE_ROWS; rows++) {
        struct kv_scores a = {.rows = rows, .head_dim = n, .pages = page_list, .q = x};
        a.n = 1 + rng_below(&rng, n < 20 ? KV_PAGES : 7);
        fill_pages(t, n);
        fill(MAXN);
        a.s = want;
        ref(&a);
        a.s = got;
        fn(&a);
        if (!same())
            return false;
    }
    return true;
}

static bool check_values(values_f32_fn *ref, values_f32_fn *fn, uint32_t n, enum kv_dtype t)
{
    n = n > KV_DIM_MAX ? 64 * (1 + n % 2) : n;
    for (uint32_t rows = 1; rows <= TILE_ROWS; rows++) {
        struct kv_values a = {.rows = rows, .head_dim = n, .pages = page_list, .p = kv_p};
        a.ldo = kv_padded(n), a.first = rng_below(&rng, 40);
        a.end = a.first + 1 + rng_below(&rng, n < 20 ? KV_SPLIT - 40 : 50);
        fill_pages(t, n);
        fill(MAXN);
        for (uint32_t i = 0; i < TILE_ROWS * KV_SCORES_LD; i++)
            kv_p[i] = rng_unit(&rng);
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
        return check_scores(k_scores_##type##_ref, (scores_f32_fn *)fn, n, t);                     \
    }                                                                                              \
    static bool check_values_##type(void (*fn)(void), uint32_t n)                                  \
    {                                                                                              \
        return check_values(k_values_##type##_ref, (values_f32_fn *)fn, n, t);                     \
    }
CHECK_KV(f32, KV_F32)
CHECK_KV(f16, KV_F16)
CHECK_KV(bf16, KV_BF16)
CHECK_KV(i8, KV_I8)
CHECK_KV(fp8, KV_FP8)
CHECK_KV(i4, KV_I4)

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
#endif
