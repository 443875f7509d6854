/* experts_stream.cu - products of experts as those of few rows (linear_stream.cu): a decode step of
 * a mixture, and quantised experts.
 *
 * An item is a tile of an expert's 16 outputs for up to 8 of its pairs (row, expert). The items of
 * the experts that have pairs are dealt out to two blocks for each multiprocessor, and a block's
 * ring of weights runs on from item to item. So the routing decides what is read, and loads never
 * stop between experts. `group` has listed the experts.
 *
 * With the sum of the results (mix) a tile has one block, which takes all experts in turn, in the
 * order of their numbers: a row's sum is the chain that mix_kernel computes. Biases, factors and
 * gates are applied to the sum of the slices, as the operations by themselves do. */
#include "model-server/backend/cuda/kernels/numbers.cuh"
#include "model-server/backend/cuda/kernels/stream_slice.cuh"

/* An expert with pairs: in shared memory, as every tile needs it. */
struct active_expert {
    const char *w;
    uint32_t first, n, expert, reserved;
};
static_assert(sizeof(active_expert) == EXPERT_BYTES, "shared memory");

/* What a block of experts has in shared memory after the sums: the experts, sums of the tile's
 * outputs of each row (mix), and with x also the pairs' list. */
struct expert_room {
    active_expert *experts;
    float *mixed;
    uint32_t *list;
    unsigned char *x;
};
static __device__ __forceinline__ expert_room room_of(const stream_args &s)
{
    unsigned char *p = ring_room<1>() + SLICES * s.slots * stream_slot_bytes(s.l.w.quant);
    expert_room r;
    r.experts = (active_expert *)p;
    r.mixed = (float *)(p + stream_active_bytes(&s));
    r.list = (uint32_t *)((unsigned char *)r.mixed + stream_mixed_bytes(&s));
    r.x = (unsigned char *)r.list + stream_list_bytes(&s);
    return r;
}

/* Eight pairs, from `at` on, of an expert, and a tile of its outputs. Items are dealt out to the
 * blocks such that neighbouring blocks have neighbouring tiles of an expert. To be mixed, a tile
 * has one block, which takes all experts in turn: a row's sum is one chain. */
struct expert_walk {
    enum { SCARCE = 1 };
    const char *w;
    uint32_t tile, number, job, at, jobs;

    __device__ __forceinline__ const char *matrix(const stream_args &) const { return w; }
    __device__ __forceinline__ void find(const stream_args &s, uint32_t n)
    {
        const uint32_t tiles = tiles_of(s.l);
        number = n, at = 0;
        job = s.mix.y ? n % jobs : n / tiles;
        tile = s.mix.y ? blockIdx.x + n / jobs * gridDim.x : job < jobs ? n % tiles : NO_TILE;
        if (tile < tiles)
            w = room_of(s).experts[job].w;
    }
    __device__ __forceinline__ void next(const stream_args &s)
    {
        if (at + 8 < room_of(s).experts[job].n)
            at += 8;
        else
            find(s, number + (s.mix.y ? 1 : gridDim.x));
    }
};

/* A lane's row of x: of its pair of an item. */
template <class F>
static __device__ __forceinline__ void take_pair(x_shared<F> *x, const stream_args &s,
                                                 const stream_rows &rows, const unsigned char *room)
{
    const uint32_t i = threadIdx.x % 32 / 4;
    x->init(s.l, room, (uint32_t)rows.x(s.l, rows.has(i) ? i : 0));
}
template <class F>
static __device__ __forceinline__ void take_pair(x_rows<F> *x, const stream_args &s,
                                                 const stream_rows &rows, const unsigned char *)
{
    x->init(s.l, rows, threadIdx.x % 32 / 4);
}

/* A thread's result of an item: of a pair and an output, or of an output and the one it gates. What
 * it needs from global memory is loaded before the item's product. */
template <class F> struct item_result {
    uint32_t row, out;
    size_t pair;
    bool there;
    output_terms terms[2];
    float scale, weight;

    __device__ __forceinline__ item_result(const stream_args &s, const active_expert &e,
                                           const stream_rows &rows, uint32_t tile)
    {
        const uint32_t outs = tile_outs(s.l);
        row = threadIdx.x / outs, out = threadIdx.x % outs;
        there = row < 8 && rows.has(row) && tile * outs + out < outputs(s.l);
        pair = there ? rows.y(row) : 0;
        scale = weight = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            if (there && (!i || s.l.gate))
                terms[i] = terms_of_expert<F>(s.l, e.w, s.bias_of, e.expert,
                                              output_row(s.l, tile, out + 8 * i));
        if (there && s.scale_of)
            scale = s.scale_of[pair];
        if (there && s.mix.y)
            weight = s.mix.plain ? 1.0f : s.mix.weight[pair];
    }

    /* The product's output, or the one that is gated, with its bias and its factor. */
    __device__ __forceinline__ float total_of(const stream_args &s, const stream_rows &rows,
                                              const typename F::T::sum *sums, uint32_t gated) const
    {
        const float y = total<F, 1>(s, terms[gated], rows, sums, row, out + 8 * gated);
        return s.scale_of ? y * scale : y;
    }
};
static_assert(OUTS * 8 <= (int)THREADS, "a thread has one result");

template <class F>
static __device__ __forceinline__ void
store_item(const stream_args &s, const stream_rows &rows, const item_result<F> &of,
           const typename F::T::sum *sums, uint32_t tile, float *mixed)
{
    if (!of.there)
        return;
    float y = of.total_of(s, rows, sums, 0);
    if (s.l.gate)
        y = math_gate(y, of.total_of(s, rows, sums, 1), (enum act)s.l.act);
    else if (s.acts)
        y = math_act(y, (enum act)s.l.act);
    if (s.mix.y) { /* a row has no second pair of this expert */
        float *to = &mixed[of.pair / s.mix.top_k * OUTS + of.out];
        *to = fmaf(of.weight, y, *to);
    } else {
        s.l.y[of.pair * outputs(s.l) + tile * tile_outs(s.l) + of.out] = y;
    }
}

/* The tile's sums of all experts, after a barrier; from then on they are zero. */
static __device__ void store_mixed(const stream_args &s, uint32_t tile, float *mixed)
{
    for (uint32_t i = threadIdx.x; i < s.mix.rows * OUTS; i += THREADS) {
        const uint32_t out = tile * OUTS + i % OUTS;
        const size_t at = (size_t)(i / OUTS) * s.mix.n + out;
        const float y = mixed[i];
        mixed[i] = 0.0f;
        if (out >= s.mix.n)
            continue;
        if (s.mix.sum)
            s.mix.sum[at] = fmaf(s.mix.scale, y, s.mix.sum[at]);
        else
            s.mix.y[at] = y;
    }
}

/* The experts with pairs, and with x the list. Complete after a barrier. */
static __device__ __forceinline__ void take_experts(const stream_args &s, const expert_room &r,
                                                    uint32_t jobs)
{
    for (uint32_t i = threadIdx.x; i < jobs; i += THREADS) {
        const expert_job j = s.l.jobs[i];
        r.experts[i] = active_expert{(const char *)s.l.table[j.expert], j.first, j.n, j.expert, 0};
    }
    for (uint32_t i = threadIdx.x; i < stream_mixed_bytes(&s) / sizeof(float); i += THREADS)
        r.mixed[i] = 0.0f;
    for (uint32_t i = threadIdx.x; s.shared_x && i < stream_pairs(&s); i += THREADS)
        r.list[i] = s.l.list[i];
}

/* The items of this block. */
template <class F, class X>
static __device__ void expert_items(const stream_args &s, const expert_room &r, expert_walk now,
                                    weight_ring<F, expert_walk> *ring, typename F::T::sum *sums)
{
    typedef typename F::T::sum SUM;
    const uint32_t set = SLICES * OUTS * 8;
    const uint32_t *list = s.shared_x ? r.list : s.l.list;
    uint32_t turn = 0;
    while (now.tile < tiles_of(s.l)) {
        const active_expert &e = r.experts[now.job];
        const stream_rows rows{list + e.first, e.n, now.at};
        const uint32_t tile = now.tile;
        SUM acc[1][4] = {};
        X x[1];
        take_pair(&x[0], s, rows, r.x);
        const item_result<F> of(s, e, rows, tile);
        stream_slice<F, 1>(s, ring, x, acc);
        leave_sums<F, 1>(sums + turn * set, acc);
        __syncthreads();
        store_item<F>(s, rows, of, sums + turn * set, tile, r.mixed);
        now.next(s), turn ^= 1;
        if (s.mix.y && now.tile != tile) {
            __syncthreads();
            store_mixed(s, tile, r.mixed);
        }
    }
}

/* grid: any number of blocks, to be mixed at most one for each tile. X: x of all rows in shared
 * memory, or x_rows. */
template <class F, class X>
static __global__ void __launch_bounds__(THREADS, 2) linear_experts_kernel(stream_args s)
{
    unsigned char *slots = ring_room<1>();
    const expert_room r = room_of(s);
    weight_ring<F, expert_walk> ring;
    expert_walk first;
    depend();
    first.jobs = s.l.begin[s.l.experts + 1];
    take_experts(s, r, first.jobs);
    __syncthreads();
    if (!first.jobs) { /* the chosen experts are on other ranks */
        for (uint32_t tile = blockIdx.x; s.mix.y && tile < tiles_of(s.l); tile += gridDim.x)
            store_mixed(s, tile, r.mixed);
        return;
    }
    first.find(s, s.mix.y ? 0 : blockIdx.x);
    if (first.tile >= tiles_of(s.l))
        return;
    ring.start(s, first, slots);
    if constexpr (F::T::BYTES == 2)
        if (s.shared_x)
            take_rows<F, 8>(s.l, r.x);
    expert_items<F, X>(s, r, first, &ring, dynamic_shared<typename F::T::sum>());
}

template <class F> static cudaError_t start_experts(const struct launch *l, const stream_args *s)
{
    const uint64_t tiles = tiles_of(s->l), jobs = stream_active_bytes(s) / EXPERT_BYTES;
    const uint64_t items = s->mix.y ? tiles : tiles * jobs;
    const uint32_t blocks = items < s->l.blocks ? (uint32_t)items : s->l.blocks;
    const size_t bytes = stream_shared_bytes(s);
    if constexpr (F::T::BYTES == 2)
        if (s->shared_x)
            return launch(linear_experts_kernel<F, x_shared<F>>, blocks, THREADS, bytes, l->stream,
                          l->overlap, *s);
    return launch(linear_experts_kernel<F, x_rows<F>>, blocks, THREADS, bytes, l->stream,
                  l->overlap, *s);
}

extern "C" cudaError_t experts_stream_launch(const struct launch *l, const void *args)
{
    const stream_args *s = (const stream_args *)args;
    return with_format(s->l.w, [=](auto f) { return start_experts<decltype(f)>(l, s); });
}
