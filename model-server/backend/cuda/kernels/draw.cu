/* draw.cu - samples one token from each row of logits: the chain of model-server/sample/sample.c.
 *
 * A team (draw_team.cuh) processes a row. There is no sort and no list of candidates. A filter
 * computes a threshold (struct Cuts), and each pass over the row uses the thresholds to select
 * the remaining tokens. With KEPT these passes read shared memory. Only the sum in a log-probability has a different order than on the host:
 * it is in double, and its order is fixed for a vocabulary. */
#include "model-server/backend/cuda/kernels/draw_team.cuh"

/* ---------------------------------------------------------------- the scores */

/* A row of logits, whose ids are read in ascending order: the part of one rank after the other. */
struct RowReader {
    const logits &x;
    uint32_t row, rank, first, end;
    __device__ RowReader(const logits &x, uint32_t row, uint32_t id) : x(x), row(row)
    {
        /* the last rank whose part begins at or before id */
        move(x.world == 1 ? 0 : (uint32_t)(((u64)id * x.world + x.world - 1) / x.vocab));
    }
    __device__ void move(uint32_t to)
    {
        rank = to;
        first = (uint32_t)((u64)x.vocab * rank / x.world);
        end = (uint32_t)((u64)x.vocab * (rank + 1) / x.world);
    }
    __device__ float at(uint32_t id)
    {
        while (id >= end)
            move(rank + 1);
        return x.p[rank * x.stride + (size_t)row * (end - first) + (id - first)];
    }
};

static __device__ __forceinline__ bool allowed(const uint32_t *mask, uint32_t id)
{
    return !mask || mask[id / 32] >> id % 32 & 1;
}

/* Rows that need no other form are copied to shared memory as they are. */
static __device__ __forceinline__ bool plain_rows(const draw_args &a)
{
    return a.scores == a.logits.p;
}

/* Starts the copies of this thread's share of a plain row. */
template <class T>
static __device__ __forceinline__ void begin_copy(const T &t, const draw_args &a, uint32_t row)
{
    const float *from = a.logits.p + (size_t)row * a.logits.vocab;
    for (uint32_t i = t.begin + 4 * threadIdx.x; i < t.end; i += 4 * THREADS)
        copy_async(t.own + (i - t.begin), from + i, true);
    copy_commit();
}

/* Brings this thread's share to `to`: [end - begin] of the slice. */
template <class T>
static __device__ void copy(const T &t, const draw_args &a, const uint32_t *mask, uint32_t row,
                            float *to)
{
    const uint32_t from = t.begin + 4 * threadIdx.x;
    if (from >= t.end)
        return;
    RowReader in(a.logits, row, from);
#pragma unroll 2
    for (uint32_t i = from; i < t.end; i += 4 * THREADS)
        for (uint32_t id = i; id < t.end && id < i + 4; id++) {
            const float x = in.at(id);
            to[id - t.begin] = allowed(mask, id) ? x : -INFINITY;
        }
}

template <class T> static __device__ void apply_mask(const T &t, const uint32_t *mask)
{
    for (uint32_t i = t.begin + 4 * threadIdx.x; i < t.end; i += 4 * THREADS)
        for (uint32_t id = i; id < t.end && id < i + 4; id++)
            if (!allowed(mask, id))
                t.own[id - t.begin] = -INFINITY;
}

/* This thread's share of the row, where t.own says, or in a.scores for the host. */
template <class T>
static __device__ void take_row(const T &t, const draw_args &a, const draw_view &v, uint32_t row)
{
    const uint32_t *mask = v.mask == DRAW_KNOWN ? NULL : a.words + v.mask;
    const bool plain = plain_rows(a);
    if (T::KEPT && plain)
        copy_wait<0>();
    if (T::KEPT && plain && !v.fetch) {
        if (mask)
            apply_mask(t, mask);
    } else if (mask || !plain) {
        float *scores = a.scores + (size_t)row * a.pitch + t.begin;
        copy(t, a, mask, row, v.fetch ? scores : t.own);
    }
}

/* Adds biases to single tokens, in the order of the list; the first entry of an id handles all
 * entries of this id. */
template <class T>
static __device__ void add(const T &t, const draw_args &a, const draw_view &v)
{
    const uint32_t *id = a.words + v.adds, *value = id + v.n_adds;
    for (uint32_t i = t.rank * THREADS + threadIdx.x; i < v.n_adds; i += t.size * THREADS) {
        bool first = id[i] < a.logits.vocab;
        for (uint32_t j = 0; j < i && first; j++)
            first = id[j] != id[i];
        if (!first)
            continue;
        float *at = score_at(t, id[i]), x = *at;
        for (uint32_t j = i; j < v.n_adds; j++)
            if (id[j] == id[i]) {
                float by = __uint_as_float(value[j]);
                x = by == -INFINITY ? by : x + by;
            }
        *at = x;
    }
}

template <class T>
static __device__ void penalise(const T &t, const draw_view &v, uint32_t id, uint32_t all,
                                uint32_t generated, uint32_t length)
{
    float *at = score_at(t, id), x = *at;
    if (v.repetition != 1.0f)
        x = x < 0 ? x * v.repetition : x / v.repetition;
    if (v.frequency != 0.0f)
        x -= v.frequency * (float)all / (float)length;
    if (generated)
        x -= v.openai_presence + v.openai_frequency * (float)generated;
    *at = x;
}

/* Penalises the context that the host knows, and its last token if that comes from the device. */
template <class T>
static __device__ void penalise_all(T &t, const draw_args &a, const draw_view &v)
{
    const bool waits = v.last != DRAW_KNOWN;
    const uint32_t last = waits ? a.board[v.last].id : DRAW_KNOWN, length = v.length + waits;
    const uint32_t *c = a.words + v.counts;
    u64 found = 0;
    for (uint32_t i = t.rank * THREADS + threadIdx.x; i < v.n_counts; i += t.size * THREADS) {
        bool more = c[3 * i] == last;
        found |= more;
        if (c[3 * i] < a.logits.vocab)
            penalise(t, v, c[3 * i], c[3 * i + 1] + more, c[3 * i + 2] + more, length);
    }
    found = sum_of(t, found);
    if (waits && !found && t.rank == 0 && threadIdx.x == 0)
        penalise(t, v, last, 1, 1, length);
}

/* Divides this thread's scores by the temperature once, if no pass needs the scores themselves. */
template <class T> static __device__ void scale(T &t, const draw_view &v)
{
    const bool once = T::KEPT && !v.raw && t.temperature != 1.0f;
    for (uint32_t i = t.begin + 4 * threadIdx.x; once && i < t.end; i += 4 * THREADS) {
        float4 *at = (float4 *)(t.own + (i - t.begin)), q = *at;
        q.x /= t.temperature, q.y /= t.temperature, q.z /= t.temperature, q.w /= t.temperature;
        *at = q;
    }
    if (once)
        t.temperature = 1.0f;
}

/* ---------------------------------------------------------------- the filters */

template <class T> static __device__ void cut_top_k(T &t, Cuts &c, uint32_t k)
{
    u64 at = select(
        t, t.temperature, [&](float s) { return c.max - s; },
        [&](uint32_t, float s, Item *x) {
            *x = Item{place_of(-s, 0), 1};
            return s != -INFINITY;
        },
        false, 0, k, false);
    c.k = at == ~0ull ? ~0u : order_of(at);
}

/* Among ties, the higher ids are kept. */
template <class T> static __device__ void cut_top_p(T &t, Cuts &c, double p)
{
    const uint32_t last = (1u << TIE_BITS) - 1;
    u64 at = select(
        t, t.temperature, [&](float s) { return c.max - s; },
        [&](uint32_t id, float s, Item *x) {
            float w;
            bool in = stays(c, id, s, &w);
            *x = Item{place_of(-s, last - id), draw_units(w)};
            return in;
        },
        true, p, 0, true);
    c.p = order_of(at);
    c.p_id = last - tie_of(at);
}

template <class T> static __device__ void cut_typical(T &t, Cuts &c, double p)
{
    Both sums = {0, 0}; /* of weights, and of weights times logarithms */
    each(t, t.temperature, [&](uint32_t id, float s) {
        float w;
        if (stays(c, id, s, &w)) {
            sums.a += draw_units(w);
            sums.b += draw_units_of_log(w, s - c.max);
        }
    });
    sums = sum_of(t, sums);
    const double mean = (double)sums.b / (double)sums.a;
    u64 at = select(
        t, t.temperature, [&](float s) { return draw_atypical(s - c.max, mean); },
        [&](uint32_t id, float s, Item *x) {
            float w, key = draw_atypical(s - c.max, mean);
            bool in = stays(c, id, s, &w);
            *x = Item{place_of(key, 0), draw_units(w)};
            return in;
        },
        true, p, 0, false);
    c.mean = mean;
    c.typical = order_of(at);
}

/* ---------------------------------------------------------------- what comes of it */

/* The place of the best token; 0 if a score is NaN. */
template <class T> static __device__ u64 best_of(T &t, float temperature)
{
    float top = -INFINITY;
    uint32_t at = t.begin + 4 * threadIdx.x;
    bool nan = false;
    const bool any = at < t.end;
    each(t, temperature, [&](uint32_t id, float s) {
        nan |= s != s;
        if (s > top)
            top = s, at = id;
    });
    return least(t, nan ? 0 : any ? place_of(-top, at) : ~0ull);
}

/* The same of the tokens that remain. */
template <class T> static __device__ u64 best_left(T &t, float temperature, const Cuts &c)
{
    u64 best = ~0ull;
    each(t, temperature, [&](uint32_t id, float s) {
        float w;
        u64 place = place_of(-s, id);
        if (stays(c, id, s, &w) && place < best)
            best = place;
    });
    return least(t, best);
}

template <class T> static __device__ double weigh(T &t, float temperature, const Cuts &c)
{
    double sum = 0;
    each(t, temperature, [&](uint32_t id, float s) {
        float w;
        if (stays(c, id, s, &w))
            sum += w;
    });
    return sum_of(t, sum);
}

/* The n best of the remaining tokens, written by the leader; returns their number. */
template <class T>
static __device__ uint32_t best_n(T &t, float temperature, const Cuts &c, uint32_t n, double sum,
                                  scored *out)
{
    u64 last = select(
        t, temperature, [&](float s) { return c.max - s; },
        [&](uint32_t id, float s, Item *x) {
            float w;
            *x = Item{place_of(-s, id), 1};
            return stays(c, id, s, &w);
        },
        false, 0, n, true);
    Shared *lead = peer(t, 0);
    each(t, temperature, [&](uint32_t id, float s) {
        float w;
        if (place_of(-s, id) > last || !stays(c, id, s, &w))
            return;
        uint32_t at = atomicAdd(&lead->n_list, 1u);
        lead->list[at] = Entry{place_of(-s, id), s};
    });
    team_barrier(t);
    const uint32_t found = lead->n_list, i = threadIdx.x;
    if (t.rank == 0 && i < found) {
        const Entry mine = lead->list[i];
        uint32_t before = 0;
        for (uint32_t j = 0; j < found; j++)
            before += lead->list[j].place < mine.place;
        out[before] = scored{tie_of(mine.place), (float)((double)(mine.s - c.max) - log(sum))};
    }
    return found;
}

/* The bounds of E / w by few instructions. E is the variate of noise_exp(u): u <= E, E <= u + u^2
 * for u <= 1/2, and E < 23. The margins are more than what rounding to fp32 can change. */
static __device__ __forceinline__ float race_floor(uint32_t bits)
{
    return (float)bits * (0x1p-32f * (1 - 0x1p-20f)); /* of E */
}
static __device__ __forceinline__ float race_ceiling(uint32_t bits, float w)
{
    const float u = (float)bits * 0x1p-32f + 0x1p-32f;
    return (u > 0.5f ? 23.0f : u + u * u) * (1 + 0x1p-18f) / w;
}

/* The sum of the weights, and argmin E / w, ties go to the lowest id; DRAW_KNOWN if no weight is
 * positive. A logarithm is computed only of a token that may be the best of its warp. */
template <class T>
static __device__ Weighed weigh_and_race(T &t, const Cuts &c, const draw_view &v)
{
    const uint32_t key[2] = {v.seed[0], v.seed[1]};
    uint32_t counter[4];
    noise_counter((u64)v.position[1] << 32 | v.position[0], 0, counter + 1);
    Weighed mine = {0, INFINITY, DRAW_KNOWN};
    float bound = INFINITY; /* a token of this warp has at most this E / w */
    each_four(t, [&](uint32_t first, const float s[4], uint32_t n) {
        float w[4], ceiling = bound;
        uint32_t bits[4] = {};
        bool any = false;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (j >= n || !stays(c, first + j, scaled(s[j], t.temperature), &w[j]))
                w[j] = 0;
            else
                mine.sum += w[j];
            any |= w[j] > 0;
        }
        if (any) {
            counter[0] = first / 4;
            philox4x32(counter, key, bits);
        }
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (w[j] > 0 && race_floor(bits[j]) <= ceiling * w[j]) {
                const float upto = race_ceiling(bits[j], w[j]);
                ceiling = upto < ceiling ? upto : ceiling;
            }
        }
        ceiling = warp_fold(ceiling, [](float a, float b) { return b < a ? b : a; });
        bound = ceiling;
        uint32_t left = 0; /* of the four: a bit for each that may be the best */
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            left |= (w[j] > 0 && race_floor(bits[j]) <= bound * w[j]) << j;
#pragma unroll 1
        for (uint32_t j = 0; left >> j; j++) {
            if (!(left >> j & 1))
                continue;
            const uint32_t b = j == 0 ? bits[0] : j == 1 ? bits[1] : j == 2 ? bits[2] : bits[3];
            const float of = j == 0 ? w[0] : j == 1 ? w[1] : j == 2 ? w[2] : w[3];
            const double e = noise_exp(b) / of;
            if (e < mine.least)
                mine.least = e, mine.id = first + j;
        }
    });
    return reduce(t, mine, [](Weighed a, Weighed b) {
        const bool first = a.least < b.least || (a.least == b.least && a.id < b.id);
        return Weighed{a.sum + b.sum, first ? a.least : b.least, first ? a.id : b.id};
    });
}

static __device__ Cuts no_cuts(float max)
{
    Cuts c = {max, ~0u, ~0u, 0, 0.0f, ~0u, 0.0};
    return c;
}

/* False: no token can be sampled, and *status says why. */
template <class T>
static __device__ bool begin(T &t, float temperature, Cuts *c, u64 *best, uint32_t *status)
{
    *best = best_of(t, temperature);
    const uint32_t infinite = draw_order(-INFINITY), nothing = draw_order(INFINITY);
    *status = *best == 0 || order_of(*best) == infinite ? DRAW_NOT_FINITE
              : order_of(*best) == nothing              ? DRAW_NOTHING_ALLOWED
                                                        : DRAW_DONE;
    if (*status != DRAW_DONE)
        return false;
    *c = no_cuts(scaled(*score_at(t, tie_of(*best)), temperature));
    return true;
}

/* Samples the token from the scores; the leader writes the results. */
template <class T> static __device__ void choose(T &t, const draw_view &v, drawn *out)
{
    Cuts plain, c;
    u64 best;
    drawn d = {0, 0.0f, DRAW_DONE, 0};
    double plain_sum = 0;
    if (v.raw && begin(t, 1.0f, &plain, &best, &d.status)) {
        plain_sum = weigh(t, 1.0f, plain);
        if (v.n_top)
            d.n_top = best_n(t, 1.0f, plain, v.n_top, plain_sum, v.host_top);
    }
    scale(t, v);
    if (d.status == DRAW_DONE && begin(t, t.temperature, &c, &best, &d.status)) {
        if (v.top_k)
            cut_top_k(t, c, v.top_k);
        if (v.top_p < 1.0f)
            cut_top_p(t, c, v.top_p);
        c.min_weight = v.min_p;
        if (v.typical_p < 1.0f)
            cut_typical(t, c, v.typical_p);
        Weighed w = {0, 0, DRAW_KNOWN};
        if (v.sample)
            w = weigh_and_race(t, c, v);
        else
            w.sum = weigh(t, t.temperature, c);
        d.id = (uint32_t)w.id;
        if (d.id == DRAW_KNOWN)
            d.id = tie_of(c.typical == ~0u ? best : best_left(t, t.temperature, c));
        const float s = *score_at(t, d.id);
        d.logprob = v.raw ? (float)((double)(s - plain.max) - log(plain_sum))
                          : (float)((double)(scaled(s, t.temperature) - c.max) - log(w.sum));
        if (v.n_top && !v.raw)
            d.n_top = best_n(t, t.temperature, c, v.n_top, w.sum, v.host_top);
    }
    if (d.status != DRAW_DONE)
        d.n_top = 0;
    if (t.rank == 0 && threadIdx.x == 0)
        *out = *v.host = d;
}

/* grid: (team size, rows) */
template <bool KEPT> static __global__ void __launch_bounds__(THREADS, 1) draw_kernel(draw_args a)
{
    const uint32_t row = blockIdx.y;
    Team<KEPT> t;
    t.s = dynamic_shared<Shared>();
    t.rank = blockIdx.x, t.size = gridDim.x, t.parity = 0;
    t.share = (a.logits.vocab + 4 * t.size - 1) / (4 * t.size) * 4;
    t.begin = t.rank * t.share < a.logits.vocab ? t.rank * t.share : a.logits.vocab;
    t.end = t.begin + t.share < a.logits.vocab ? t.begin + t.share : a.logits.vocab;
    t.own = KEPT ? (float *)((char *)t.s + shared_bytes(t.size))
                 : a.scores + (size_t)row * a.pitch + t.begin;
    if (threadIdx.x == 0)
        t.s->n_list = 0;
    depend();
    if (KEPT && plain_rows(a))
        begin_copy(t, a, row);
    if (threadIdx.x < sizeof(draw_view) / 4)
        ((uint32_t *)&t.s->view)[threadIdx.x] = ((const uint32_t *)&a.v[row])[threadIdx.x];
    __syncthreads();
    const draw_view &v = t.s->view;
    t.temperature = v.temperature;
    take_row(t, a, v, row);
    if (v.fetch)
        return;
    team_barrier(t); /* each block has begun, and its scores are complete */
    if (v.n_adds) {
        add(t, a, v);
        team_barrier(t);
    }
    if (v.penalised) {
        penalise_all(t, a, v);
        team_barrier(t);
    }
    choose(t, v, a.board + v.out);
    team_barrier(t); /* no block exits while others read its shared memory */
}

extern "C" size_t draw_kept_bytes(uint32_t vocab, uint32_t team)
{
    return shared_bytes(team) + (vocab + 4 * team - 1) / (4 * team) * 4 * sizeof(float);
}

extern "C" cudaError_t draw_launch(const struct launch *l, const void *args)
{
    const draw_args *a = (const draw_args *)args;
    const dim3 grid(a->team, a->rows);
    if (a->kept)
        return launch_team(draw_kernel<true>, grid, THREADS,
                           draw_kept_bytes(a->logits.vocab, a->team), l->stream, l->overlap, *a);
    return launch_team(draw_kernel<false>, grid, THREADS, shared_bytes(a->team), l->stream,
                       l->overlap, *a);
}

/* ---------------------------------------------------------------- feeding tokens */

/* grid: ceil(n / 256) */
static __global__ void __launch_bounds__(THREADS) feed_kernel(feed_args a)
{
    depend();
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < a.n && a.from[i] != DRAW_KNOWN)
        a.ids[i] = a.board[a.from[i]].id;
}

extern "C" cudaError_t feed_launch(const struct launch *l, const void *args)
{
    const feed_args *a = (const feed_args *)args;
    return launch(feed_kernel, (a->n + THREADS - 1) / THREADS, THREADS, 0, l->stream, l->overlap,
                  *a);
}
