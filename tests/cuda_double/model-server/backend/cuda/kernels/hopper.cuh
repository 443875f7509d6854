/* hopper.cuh - the double's side of the file of the same name: see hopper.cc. */
#ifndef MODEL_SERVER_BACKEND_CUDA_HOPPER_CUH
#define MODEL_SERVER_BACKEND_CUDA_HOPPER_CUH
#include "model-server/backend/cuda/kernels/device.cuh"
#include "tests/cuda_double/inside.h"
#include <cuda.h>

static inline uint32_t shared_address(const void *p) { return double_shared_address(p); }

struct mbarrier {
    uint64_t state;
};
void mbarrier_init(mbarrier *b, uint32_t arrivals);
void mbarrier_init_fence(void);
void mbarrier_arrive(mbarrier *b);
void mbarrier_expect(mbarrier *b, uint32_t bytes);
void mbarrier_wait(mbarrier *b, uint32_t parity);
void tile_load(void *dst, const CUtensorMap *map, mbarrier *b, uint32_t column, uint32_t row);
static inline void tile_acquire(const CUtensorMap *) {}
static inline void tile_prefetch(const CUtensorMap *) {}

template <int N> static inline void registers_give(void)
{
    static_assert(N % 8 == 0 && N >= 24 && N <= 256, "setmaxnreg");
    double_warpgroup([](void *const *) {}, NULL);
}
template <int N> static inline void registers_take(void) { registers_give<N>(); }

void wgmma_fence(void);
void wgmma_commit(void);
void double_wgmma_wait(uint32_t left);
template <int LEFT> static inline void wgmma_wait(void) { double_wgmma_wait(LEFT); }

static inline void async_fence(void) {}
static inline void warpgroup_barrier(uint32_t id)
{
    if (id < 1 || id > 15)
        double_die("a barrier that is not one of a warpgroup");
    double_warpgroup([](void *const *) {}, NULL);
}

/* a: registers, or a_tile: a descriptor. columns: n runs fastest in b. add: c += instead of c =.
 * c: of S8 integers. */
enum double_factors { FACTORS_F16, FACTORS_BF16, FACTORS_S8 };
struct double_wgmma_lane {
    float *c;
    const uint32_t *a[4];
    uint64_t b, a_tile;
    uint32_t n;
    bool columns, add;
    double_factors type;
};
void double_wgmma(const double_wgmma_lane *mine);

#define DOUBLE_WGMMA(T, TYPE)                                                                      \
    template <int N8>                                                                              \
    static inline void wgmma(T, float(&c)[N8][4], const uint32_t &a0, const uint32_t &a1,          \
                             const uint32_t &a2, const uint32_t &a3, uint64_t b, bool add = true)  \
    {                                                                                              \
        double_wgmma_lane mine = {&c[0][0], {&a0, &a1, &a2, &a3}, b, 0, N8 * 8, false, add, TYPE}; \
        double_wgmma(&mine);                                                                       \
    }                                                                                              \
    template <int N8>                                                                              \
    static inline void wgmma_tiles(T, float(&c)[N8][4], uint64_t a, uint64_t b, bool add)          \
    {                                                                                              \
        double_wgmma_lane mine = {&c[0][0], {}, b, a, N8 * 8, false, add, TYPE};                   \
        double_wgmma(&mine);                                                                       \
    }                                                                                              \
    template <int N8>                                                                              \
    static inline void wgmma_columns(T, float(&c)[N8][4], const uint32_t(&a)[4], uint64_t b,       \
                                     bool add)                                                     \
    {                                                                                              \
        double_wgmma_lane mine = {&c[0][0], {&a[0], &a[1], &a[2], &a[3]}, b, 0, N8 * 8, true, add, \
                                  TYPE};                                                           \
        double_wgmma(&mine);                                                                       \
    }
DOUBLE_WGMMA(Bf16, FACTORS_BF16)
DOUBLE_WGMMA(F16, FACTORS_F16)
template <int N8>
static inline void wgmma(S8, int32_t (&c)[N8][4], const uint32_t &a0, const uint32_t &a1,
                         const uint32_t &a2, const uint32_t &a3, uint64_t b, bool add = true)
{
    double_wgmma_lane mine = {(float *)&c[0][0], {&a0, &a1, &a2, &a3}, b, 0, N8 * 8, false, add,
                              FACTORS_S8};
    double_wgmma(&mine);
}
static inline void unset_integer(int32_t *i) { *i = 0x5a5a5a5a; }
#undef DOUBLE_WGMMA
#endif
