/* draw_team.cuh - a team of blocks for a row of logits: its slices, sums over them, and the search
 * for a threshold.
 *
 * A team is a cluster of blocks that divide the vocabulary into slices and access each other's
 * shared memory; one block if there are no clusters. A slice stays in shared memory if it fits
 * (KEPT), so that only the first of the passes over a row waits for device memory.
 *
 * A threshold is found by a histogram of integer weights, whose sums do not depend on the order,
 * and then among the few tokens of one bin. So token and cutoffs equal those of the host, in every
 * bit. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_DRAW_TEAM_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_DRAW_TEAM_CUH
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/numbers.cuh"
#define inline __host__ __device__ inline
#include "model-server/backend/draw_math.h"
#undef inline

typedef unsigned long long u64;

enum {
    THREADS = 512,
    WARPS = THREADS / 32,
    BINS = 2048,
    BINS_EACH = BINS / THREADS,
    TIE_BITS = 22,
    FEW = 512, /* tokens of one bin in a block that are listed; */
    FEW_ALL = 1024, /* and in its team */
};

struct Entry {
    u64 place; /* order, then id */
    float s;
};

/* A token of the bin in which a threshold lies. */
struct Near {
    u64 place, mass;
};

/* What reduce() can reduce. Weighed: a sum of weights, and the race's best so far. */
struct Both {
    u64 a, b;
};
struct Weighed {
    double sum, least;
    u64 id;
};

/* Then follow [BINS / team size] bins of the whole team's histogram, and the slice if KEPT. */
struct Shared {
    union {
        struct {
            uint32_t low[BINS], high[BINS]; /* histogram of this block's slice, in halves */
        };
        Near all[FEW_ALL];
    };
    Near near[FEW];
    u64 part[WARPS];
    u64 bin, before; /* the bin where a histogram's sum reaches the target */
    u64 answer;
    u64 warp[2][WARPS * 3], slot[2][3];
    draw_view view;
    uint32_t n_near;
    uint32_t n_list; /* of the leader: */
    Entry list[DRAW_MOST_TOP];
};

static __host__ __device__ __forceinline__ size_t shared_bytes(uint32_t team)
{
    return (sizeof(Shared) + BINS / team * sizeof(u64) + 15) / 16 * 16;
}
static __device__ __forceinline__ u64 *merged_of(Shared *s) { return (u64 *)(s + 1); }

/* ---------------------------------------------------------------- a team */

template <bool KEPT_> struct Team {
    static const bool KEPT = KEPT_;
    Shared *s;
    float *own; /* [end - begin] scores of this block's slice; not KEPT: in global memory */
    float temperature;
    uint32_t rank, size, begin, end, share, parity;
};

template <class T> static __device__ __forceinline__ Shared *peer(const T &t, uint32_t rank)
{
    return t.size == 1 ? t.s : cluster_shared(t.s, rank);
}

/* Where the score of any token is. */
template <class T> static __device__ __forceinline__ float *score_at(const T &t, uint32_t id)
{
    if (T::KEPT && t.size > 1)
        return cluster_shared(t.own, id / t.share) + id % t.share;
    return t.own + ((int64_t)id - t.begin);
}

template <class T> static __device__ __forceinline__ void team_barrier(const T &t)
{
    if (t.size == 1)
        __syncthreads();
    else
        cluster_barrier();
}

static __device__ __forceinline__ Both other_lane(Both v, int mask)
{
    return Both{other_lane(v.a, mask), other_lane(v.b, mask)};
}
static __device__ __forceinline__ Weighed other_lane(Weighed v, int mask)
{
    return Weighed{other_lane(v.sum, mask), other_lane(v.least, mask), other_lane(v.id, mask)};
}

/* f over the values of all threads of the team, the same in all of them. f is commutative. All
 * blocks' earlier writes to shared memory are visible afterwards. */
template <class T, typename V, typename F> static __device__ V reduce(T &t, V v, F f)
{
    const uint32_t lane = threadIdx.x % 32;
    u64 *warp = t.s->warp[t.parity];
    v = warp_fold(v, f);
    if (lane == 0)
        memcpy(warp + threadIdx.x / 32 * 3, &v, sizeof(v));
    __syncthreads();
    memcpy(&v, warp + lane % WARPS * 3, sizeof(v));
    for (int mask = WARPS / 2; mask; mask /= 2)
        v = f(v, other_lane(v, mask));
    if (t.size > 1) {
        if (threadIdx.x == 0)
            memcpy(t.s->slot[t.parity], &v, sizeof(v));
        team_barrier(t);
        memcpy(&v, peer(t, lane % t.size)->slot[t.parity], sizeof(v));
        for (uint32_t mask = t.size / 2; mask; mask /= 2)
            v = f(v, other_lane(v, (int)mask));
    }
    t.parity ^= 1; /* the barrier of the next one says that this one has been read */
    return v;
}

template <class T> static __device__ __forceinline__ u64 least(T &t, u64 v)
{
    return reduce(t, v, [](u64 a, u64 b) { return a < b ? a : b; });
}
template <class T> static __device__ __forceinline__ u64 sum_of(T &t, u64 v)
{
    return reduce(t, v, [](u64 a, u64 b) { return a + b; });
}
template <class T> static __device__ __forceinline__ Both sum_of(T &t, Both v)
{
    return reduce(t, v, [](Both a, Both b) { return Both{a.a + b.a, a.b + b.b}; });
}
template <class T> static __device__ __forceinline__ double sum_of(T &t, double v)
{
    return reduce(t, v, [](double a, double b) { return a + b; });
}

/* Calls f(first id, its scores, count) for this thread's share, four tokens at a time; all
 * threads of the block call it equally often, with a count of 0 past the end. */
template <class T, typename F> static __device__ __forceinline__ void each_four(const T &t, F f)
{
#pragma unroll 1
    for (uint32_t from = t.begin; from < t.end; from += 4 * THREADS) {
        const uint32_t i = from + 4 * threadIdx.x;
        const uint32_t n = i >= t.end ? 0 : t.end - i < 4 ? t.end - i : 4;
        float4 q = {};
        if (n)
            q = *(const float4 *)(t.own + (i - t.begin));
        const float s[4] = {q.x, q.y, q.z, q.w};
        f(i, s, n);
    }
}

static __device__ __forceinline__ float scaled(float s, float temperature)
{
    return temperature == 1.0f ? s : s / temperature;
}

/* Calls f(id, score) for this thread's share; `temperature` 1: unscaled scores. */
template <class T, typename F>
static __device__ __forceinline__ void each(const T &t, float temperature, F f)
{
    each_four(t, [&](uint32_t first, const float s[4], uint32_t n) {
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (j < n)
                f(first + j, scaled(s[j], temperature));
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
    u64 place; /* its order, unique: 32 bits and TIE_BITS */
    u64 mass;  /* at least 0 */
};

static __device__ __forceinline__ void count_in(Shared *s, uint32_t bin, u64 mass)
{
    const uint32_t low = (uint32_t)mass, old = atomicAdd(&s->low[bin], low);
    const uint32_t high = (uint32_t)(mass >> 32) + (old + low < low);
    if (high)
        atomicAdd(&s->high[bin], high);
}

/* The bin of a merged histogram in which the sum reaches `need`, or with `share` that part of the
 * total; reduces *need by the bins before it. False: it does not. */
template <class T>
static __device__ bool bin_of(const T &t, bool share, double p, u64 *need, uint32_t *bin)
{
    Shared *s = t.s;
    const uint32_t tid = threadIdx.x, lane = tid % 32, warp = tid / 32, each_block = BINS / t.size;
    const uint32_t first = tid * BINS_EACH;
    const u64 *from = merged_of(peer(t, first / each_block)) + first % each_block;
    u64 mine[BINS_EACH], sum = 0, before = 0, total = 0;
#pragma unroll
    for (uint32_t i = 0; i < BINS_EACH; i++) {
        mine[i] = from[i];
        sum += mine[i];
    }
    u64 upto = sum; /* over the lanes up to this one */
    for (uint32_t by = 1; by < 32; by *= 2) {
        const u64 below = __shfl_up_sync(~0u, upto, by);
        upto += lane >= by ? below : 0;
    }
    if (lane == 31)
        s->part[warp] = upto;
    __syncthreads();
    for (uint32_t i = 0; i < WARPS; i++) {
        const u64 part = s->part[i];
        before += i < warp ? part : 0;
        total += part;
    }
    before += upto - sum;
    if (share)
        *need = draw_share(p, total);
#pragma unroll
    for (uint32_t i = 0; i < BINS_EACH; i++) {
        if (before < *need && before + mine[i] >= *need) {
            s->bin = first + i;
            s->before = before;
        }
        before += mine[i];
    }
    __syncthreads();
    *bin = (uint32_t)s->bin;
    *need -= *bin < BINS ? s->before : 0;
    return *bin < BINS;
}

/* Adds a histogram of f(id, score, &bin) -> mass over the team, and finds the bin in which the sum
 * reaches `need`: see bin_of(). */
template <class T, typename F>
static __device__ bool reach(T &t, float temperature, F f, bool share, double p, u64 *need,
                             uint32_t *bin)
{
    Shared *s = t.s;
    const uint32_t tid = threadIdx.x, each_block = BINS / t.size;
    for (uint32_t i = tid; i < BINS; i += THREADS)
        s->low[i] = s->high[i] = 0;
    __syncthreads();
    each(t, temperature, [&](uint32_t id, float x) {
        uint32_t b = 0;
        u64 mass = f(id, x, &b);
        if (mass)
            count_in(s, b, mass);
    });
    team_barrier(t);
    if (tid == 0) {
        s->bin = BINS; /* the last bin has been read */
        s->n_near = 0;
    }
    for (uint32_t i = tid; i < each_block; i += THREADS) {
        u64 sum = 0;
        for (uint32_t r = 0; r < t.size; r++) {
            const Shared *of = peer(t, r);
            const uint32_t b = t.rank * each_block + i;
            sum += (u64)of->high[b] << 32 | of->low[b];
        }
        merged_of(s)[i] = sum;
    }
    team_barrier(t);
    return bin_of(t, share, p, need, bin);
}

/* Finds among the listed tokens of all blocks the place at which the masses, in ascending order,
 * reach `need`. False: they are too many. */
template <class T> static __device__ bool among_near(T &t, u64 need, u64 *place)
{
    Shared *s = t.s;
    const uint32_t tid = threadIdx.x, lane = tid % 32;
    uint32_t n = 0, most = 0;
    for (uint32_t r = 0; r < t.size; r++) {
        const uint32_t here = peer(t, r)->n_near;
        most = here > most ? here : most;
        n += here;
    }
    if (most > FEW || n > FEW_ALL)
        return false;
    for (uint32_t i = tid; i < n; i += THREADS) {
        uint32_t r = 0, left = i;
        for (uint32_t here; left >= (here = peer(t, r)->n_near); r++)
            left -= here;
        s->all[i] = peer(t, r)->near[left];
    }
    __syncthreads();
    /* a warp for each token of this block */
    for (uint32_t i = tid / 32; i < s->n_near; i += WARPS) {
        const u64 mine = s->near[i].place;
        Both sum = {0, 0}; /* of the places before it, and up to it */
        for (uint32_t j = lane; j < n; j += 32) {
            const Near other = s->all[j];
            sum.a += other.place < mine ? other.mass : 0;
            sum.b += other.place <= mine ? other.mass : 0;
        }
        for (int mask = 16; mask; mask /= 2) {
            const Both more = other_lane(sum, mask);
            sum.a += more.a, sum.b += more.b;
        }
        if (sum.a < need && sum.b >= need && lane < t.size)
            peer(t, lane)->answer = mine;
    }
    team_barrier(t);
    *place = s->answer;
    return true;
}

/* The place of the token with which the masses, in ascending order, reach `need` (or the share
 * `p` of all); ~0 if they never do. far(score) is the distance of a token: not negative, ascending
 * with its place. item(id, score, &item) is false for a token that does not take part. First by
 * distance, whose even distribution keeps the histogram's bins separate, then among the few of
 * that bin; if they are many, by the digits of their places. `ties`: down to the last bit; else
 * all tokens of one order have the same result. */
template <class T, typename D, typename F>
static __device__ u64 select(T &t, float temperature, D far, F item, bool share, double p, u64 need,
                             bool ties)
{
    Shared *s = t.s;
    uint32_t first, digit;
    if (!reach(
            t, temperature,
            [&](uint32_t id, float score, uint32_t *bin) -> u64 {
                Item x;
                if (!item(id, score, &x))
                    return 0;
                *bin = bucket(far(score));
                return x.mass;
            },
            share, p, &need, &first))
        return ~0ull;
    each(t, temperature, [&](uint32_t id, float score) {
        Item x;
        if (bucket(far(score)) != first || !item(id, score, &x))
            return;
        const uint32_t at = atomicAdd(&s->n_near, 1u);
        if (at < FEW)
            s->near[at] = Near{x.place, x.mass};
    });
    team_barrier(t);
    u64 prefix = 0;
    if (among_near(t, need, &prefix))
        return prefix;
    int shift = 32 + TIE_BITS;
    for (int i = 0; i < (ties ? 5 : 3); i++) {
        const int bits = i == 2 ? 10 : 11;
        const int next = shift - bits;
        reach(
            t, temperature,
            [&](uint32_t id, float score, uint32_t *bin) -> u64 {
                Item x;
                if (bucket(far(score)) != first || !item(id, score, &x) ||
                    x.place >> shift != prefix)
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
