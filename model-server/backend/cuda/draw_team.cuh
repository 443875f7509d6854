/* draw_team.cuh - a team of blocks for a row of logits, and its search for a threshold.
 *
 * A team is a cluster of blocks that divide the vocabulary into slices and access each other's
 * shared memory; one block if there are no clusters. A threshold is found digit by digit from
 * histograms of integer weights, whose sums do not depend on the order. So token and cutoffs
 * equal those of the host, in every bit. */
#ifndef MODEL_SERVER_BACKEND_CUDA_DRAW_TEAM_CUH
#define MODEL_SERVER_BACKEND_CUDA_DRAW_TEAM_CUH
#include "model-server/backend/cuda/device.cuh"
#include "model-server/backend/cuda/kernels.h"
#include "model-server/backend/cuda/numbers.cuh"
#define inline __host__ __device__ inline
#include "model-server/backend/draw_math.h"
#undef inline

typedef unsigned long long u64;

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    BINS = 2048,
    BINS_EACH = BINS / THREADS,
    TIE_BITS = 22
};

struct Entry {
    u64 place; /* order, then id */
    float s;
};

struct Shared {
    u64 hist[BINS];   /* of this block's slice */
    u64 merged[BINS]; /* [BINS / team size] of the whole team */
    u64 part[THREADS], group[WARPS];
    u64 bin, before; /* the bin where a histogram's sum reaches the target */
    u64 warp[WARPS], slot[2];
    uint32_t n_list; /* of the leader: */
    Entry list[DRAW_MOST_TOP];
};

/* ---------------------------------------------------------------- a team */

struct Team {
    Shared *s;
    float *row; /* [vocab] this row's scores, in global memory: the logits or a copy */
    float temperature;
    uint32_t rank, size, begin, end, parity;
};

static __device__ __forceinline__ Shared *peer(const Team &t, uint32_t rank)
{
    return t.size == 1 ? t.s : cluster_shared(t.s, rank);
}

static __device__ __forceinline__ void team_barrier(const Team &t)
{
    if (t.size == 1)
        __syncthreads();
    else
        cluster_barrier();
}

/* f over the values of all threads, the same in all of them. */
template <typename F> static __device__ u64 reduce(Team &t, u64 v, F f)
{
    for (int mask = 16; mask; mask /= 2)
        v = f(v, __shfl_xor_sync(~0u, v, mask));
    u64 *warp = t.s->warp;
    __syncthreads(); /* the last result has been read */
    if (threadIdx.x % 32 == 0)
        warp[threadIdx.x / 32] = v;
    __syncthreads();
    v = warp[0];
    for (int i = 1; i < WARPS; i++)
        v = f(v, warp[i]);
    if (t.size == 1)
        return v;
    /* two slots in turn: the barrier of the next one says that this one has been read */
    if (threadIdx.x == 0)
        t.s->slot[t.parity] = v;
    team_barrier(t);
    v = peer(t, 0)->slot[t.parity];
    for (uint32_t r = 1; r < t.size; r++)
        v = f(v, peer(t, r)->slot[t.parity]);
    t.parity ^= 1;
    return v;
}

static __device__ __forceinline__ u64 least(Team &t, u64 v)
{
    return reduce(t, v, [](u64 a, u64 b) { return a < b ? a : b; });
}
static __device__ __forceinline__ u64 sum_of(Team &t, u64 v)
{
    return reduce(t, v, [](u64 a, u64 b) { return a + b; });
}
static __device__ __forceinline__ double sum_of(Team &t, double v)
{
    u64 sum = reduce(t, (u64)__double_as_longlong(v), [](u64 a, u64 b) {
        return (u64)__double_as_longlong(__longlong_as_double((long long)a) +
                                         __longlong_as_double((long long)b));
    });
    return __longlong_as_double((long long)sum);
}

/* Calls f(first id, its scores, count) for this thread's share, four tokens at a time. */
template <typename F> static __device__ __forceinline__ void each_four(const Team &t, F f)
{
    for (uint32_t i = t.begin + 4 * threadIdx.x; i < t.end; i += 4 * THREADS) {
        const float4 q = *(const float4 *)(t.row + i);
        const float s[4] = {q.x, q.y, q.z, q.w};
        f(i, s, t.end - i < 4 ? t.end - i : 4);
    }
}

/* Calls f(id, score) for this thread's share; `temperature` 1: unscaled scores. */
template <typename F>
static __device__ __forceinline__ void each(const Team &t, float temperature, F f)
{
    each_four(t, [&](uint32_t first, const float s[4], uint32_t n) {
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (j < n)
                f(first + j, s[j] / temperature);
    });
}

/* ---------------------------------------------------------------- selection */

/* The best tokens that remain after the filters so far. */
struct Cuts {
    float max;           /* of the row */
    uint32_t k, p, p_id; /* orders of -score; p_id: the lowest id among those of order p */
    float min_weight;
    uint32_t typical;
    double mean;
};

static __device__ __forceinline__ bool stays(const Cuts &c, uint32_t id, float s, float *w)
{
    uint32_t order = draw_order(-s);
    *w = 0.0f;
    if (s == -INFINITY || order > c.k || order > c.p || (order == c.p && id < c.p_id))
        return false;
    *w = draw_weight(s - c.max);
    return !(*w < c.min_weight) &&
           (c.typical == ~0u || draw_order(draw_atypical(s - c.max, c.mean)) <= c.typical);
}

static __device__ __forceinline__ uint32_t bucket(float distance)
{
    float b = distance * 64.0f;
    return b < BINS - 1 ? (uint32_t)b : BINS - 1;
}

/* A token in a selection. */
struct Item {
    float distance; /* not negative, ascending with `place` */
    u64 place;      /* its order, unique: 32 bits and TIE_BITS */
    u64 mass;
};

/* Adds a histogram of f(id, score, &bin) -> mass over the team, and finds the bin in which the
 * sum reaches `need`, or with `share` that part of the total. False: it does not. */
template <typename F>
static __device__ bool reach(Team &t, float temperature, F f, bool share, double p, u64 *need,
                             uint32_t *bin)
{
    Shared *s = t.s;
    const uint32_t tid = threadIdx.x, each_block = BINS / t.size;
    for (uint32_t i = tid; i < BINS; i += THREADS)
        s->hist[i] = 0;
    __syncthreads();
    each(t, temperature, [&](uint32_t id, float x) {
        uint32_t b = 0;
        u64 mass = f(id, x, &b);
        if (mass)
            atomicAdd(&s->hist[b], mass);
    });
    team_barrier(t);
    if (tid == 0)
        s->bin = BINS; /* the last bin has been read */
    for (uint32_t i = tid; i < each_block; i += THREADS) {
        u64 sum = 0;
        for (uint32_t r = 0; r < t.size; r++)
            sum += peer(t, r)->hist[t.rank * each_block + i];
        s->merged[i] = sum;
    }
    team_barrier(t);
    u64 mine[BINS_EACH], sum = 0, before = 0, total = 0;
#pragma unroll
    for (uint32_t i = 0; i < BINS_EACH; i++) {
        uint32_t b = tid * BINS_EACH + i;
        mine[i] = peer(t, b / each_block)->merged[b % each_block];
        sum += mine[i];
    }
    s->part[tid] = sum;
    __syncthreads();
    for (uint32_t i = tid / 32 * 32; i < tid; i++)
        before += s->part[i];
    if (tid % 32 == 31)
        s->group[tid / 32] = before + sum;
    __syncthreads();
    for (uint32_t i = 0; i < WARPS; i++) {
        before += i < tid / 32 ? s->group[i] : 0;
        total += s->group[i];
    }
    if (share)
        *need = draw_share(p, total);
#pragma unroll
    for (uint32_t i = 0; i < BINS_EACH; i++) {
        if (before < *need && before + mine[i] >= *need) {
            s->bin = tid * BINS_EACH + i;
            s->before = before;
        }
        before += mine[i];
    }
    __syncthreads();
    *bin = (uint32_t)s->bin;
    *need -= *bin < BINS ? s->before : 0;
    return *bin < BINS;
}

/* The place of the token with which the masses, in ascending order, reach `need` (or the share
 * `p` of all); ~0 if they never do. First by distance, whose even distribution keeps the
 * histogram's bins separate, then by the digits of the place among the few of that bin. `ties`:
 * down to the last bit; else all tokens of one order have the same result. */
template <typename F>
static __device__ u64 select(Team &t, float temperature, F item, bool share, double p, u64 need,
                             bool ties)
{
    uint32_t first, digit;
    if (!reach(
            t, temperature,
            [&](uint32_t id, float s, uint32_t *bin) -> u64 {
                Item x;
                if (!item(id, s, &x))
                    return 0;
                *bin = bucket(x.distance);
                return x.mass;
            },
            share, p, &need, &first))
        return ~0ull;
    u64 prefix = 0;
    int shift = 32 + TIE_BITS;
    for (int i = 0; i < (ties ? 5 : 3); i++) {
        const int bits = i == 2 ? 10 : 11;
        const int next = shift - bits;
        reach(
            t, temperature,
            [&](uint32_t id, float s, uint32_t *bin) -> u64 {
                Item x;
                if (!item(id, s, &x) || bucket(x.distance) != first || x.place >> shift != prefix)
                    return 0;
                *bin = (uint32_t)(x.place >> next) & ((1u << bits) - 1);
                return x.mass;
            },
            false, 0, &need, &digit);
        prefix = prefix << bits | digit;
        shift = next;
    }
    return prefix << shift;
}

static __device__ __forceinline__ uint32_t order_of(u64 place)
{
    return (uint32_t)(place >> TIE_BITS);
}
static __device__ __forceinline__ uint32_t tie_of(u64 place)
{
    return (uint32_t)place & ((1u << TIE_BITS) - 1);
}
static __device__ __forceinline__ u64 place_of(float key, uint32_t tie)
{
    return (u64)draw_order(key) << TIE_BITS | tie;
}
#endif
