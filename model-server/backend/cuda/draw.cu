/* draw.cu - samples one token from each row of logits: the chain of model-server/sample/sample.c.
 *
 * A team (draw_team.cuh) processes a row. There is no sort and no list of candidates. A filter
 * computes a threshold (struct Cuts), and each pass over the row uses the thresholds to select
 * the remaining tokens. Only the sum in a log-probability has a different order than on the host:
 * it is in double, and its order is fixed for a vocabulary. */
#include "model-server/backend/cuda/draw_team.cuh"

/* ---------------------------------------------------------------- the scores */

static __device__ __forceinline__ float logit_at(const draw_args &a, uint32_t row, uint32_t id)
{
    const logits &x = a.logits;
    if (x.world == 1)
        return x.p[(size_t)row * x.vocab + id];
    /* the last rank whose part begins at or before id */
    uint32_t r = (uint32_t)(((u64)id * x.world + x.world - 1) / x.vocab);
    uint32_t first = (uint32_t)((u64)x.vocab * r / x.world);
    uint32_t end = (uint32_t)((u64)x.vocab * (r + 1) / x.world);
    return x.p[r * x.stride + (size_t)row * (end - first) + (id - first)];
}

static __device__ void copy(const Team &t, const draw_args &a, const draw_view &v, uint32_t row)
{
    const uint32_t *mask = v.mask == DRAW_KNOWN ? NULL : a.words + v.mask;
    if (!mask && a.scores == a.logits.p) /* they are there */
        return;
    for (uint32_t id = t.begin + threadIdx.x; id < t.end; id += THREADS) {
        float x = logit_at(a, row, id);
        t.row[id] = mask && !(mask[id / 32] >> id % 32 & 1) ? -INFINITY : x;
    }
}

/* Adds biases to single tokens, in the order of the list; the first entry of an id handles all
 * entries of this id. */
static __device__ void add(const Team &t, const draw_args &a, const draw_view &v)
{
    const uint32_t *id = a.words + v.adds, *value = id + v.n_adds;
    for (uint32_t i = t.rank * THREADS + threadIdx.x; i < v.n_adds; i += t.size * THREADS) {
        bool first = id[i] < a.logits.vocab;
        for (uint32_t j = 0; j < i && first; j++)
            first = id[j] != id[i];
        if (!first)
            continue;
        float x = t.row[id[i]];
        for (uint32_t j = i; j < v.n_adds; j++)
            if (id[j] == id[i]) {
                float by = __uint_as_float(value[j]);
                x = by == -INFINITY ? by : x + by;
            }
        t.row[id[i]] = x;
    }
}

static __device__ void penalise(const Team &t, const draw_view &v, uint32_t id, uint32_t all,
                                uint32_t generated, uint32_t length)
{
    float x = t.row[id];
    if (v.repetition != 1.0f)
        x = x < 0 ? x * v.repetition : x / v.repetition;
    if (v.frequency != 0.0f)
        x -= v.frequency * (float)all / (float)length;
    if (generated)
        x -= v.openai_presence + v.openai_frequency * (float)generated;
    t.row[id] = x;
}

/* Penalises the context that the host knows, and its last token if that comes from the device. */
static __device__ void penalise_all(Team &t, const draw_args &a, const draw_view &v)
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

/* ---------------------------------------------------------------- the filters */

static __device__ void cut_top_k(Team &t, Cuts &c, uint32_t k)
{
    u64 at = select(
        t, t.temperature,
        [&](uint32_t, float s, Item *x) {
            *x = Item{c.max - s, place_of(-s, 0), 1};
            return s != -INFINITY;
        },
        false, 0, k, false);
    c.k = at == ~0ull ? ~0u : order_of(at);
}

/* Among ties, the higher ids are kept. */
static __device__ void cut_top_p(Team &t, Cuts &c, double p)
{
    const uint32_t last = (1u << TIE_BITS) - 1;
    u64 at = select(
        t, t.temperature,
        [&](uint32_t id, float s, Item *x) {
            float w;
            bool in = stays(c, id, s, &w);
            *x = Item{c.max - s, place_of(-s, last - id), draw_units(w)};
            return in;
        },
        true, p, 0, true);
    c.p = order_of(at);
    c.p_id = last - tie_of(at);
}

static __device__ void cut_typical(Team &t, Cuts &c, double p)
{
    u64 sum = 0, logs = 0;
    each(t, t.temperature, [&](uint32_t id, float s) {
        float w;
        if (stays(c, id, s, &w)) {
            sum += draw_units(w);
            logs += draw_units_of_log(w, s - c.max);
        }
    });
    sum = sum_of(t, sum);
    logs = sum_of(t, logs);
    const double mean = (double)logs / (double)sum;
    u64 at = select(
        t, t.temperature,
        [&](uint32_t id, float s, Item *x) {
            float w, key = draw_atypical(s - c.max, mean);
            bool in = stays(c, id, s, &w);
            *x = Item{key, place_of(key, 0), draw_units(w)};
            return in;
        },
        true, p, 0, false);
    c.mean = mean;
    c.typical = order_of(at);
}

/* ---------------------------------------------------------------- what comes of it */

/* The place of the best token; 0 if a score is NaN. */
static __device__ u64 best_of(Team &t, float temperature, const Cuts *c)
{
    u64 best = ~0ull;
    each(t, temperature, [&](uint32_t id, float s) {
        float w;
        u64 place = s != s ? 0 : place_of(-s, id);
        if ((!c || stays(*c, id, s, &w)) && place < best)
            best = place;
    });
    return least(t, best);
}

static __device__ double weigh(Team &t, float temperature, const Cuts &c)
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
static __device__ uint32_t best_n(Team &t, float temperature, const Cuts &c, uint32_t n, double sum,
                                  scored *out)
{
    u64 last = select(
        t, temperature,
        [&](uint32_t id, float s, Item *x) {
            float w;
            *x = Item{c.max - s, place_of(-s, id), 1};
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

/* argmin E / w, ties go to the lowest id; DRAW_KNOWN if no weight is positive. */
static __device__ uint32_t race(Team &t, const Cuts &c, const draw_view &v)
{
    const uint32_t key[2] = {v.seed[0], v.seed[1]};
    uint32_t counter[4], at = DRAW_KNOWN;
    noise_counter((u64)v.position[1] << 32 | v.position[0], 0, counter + 1);
    double best = INFINITY;
    each_four(t, [&](uint32_t first, const float s[4], uint32_t n) {
        float w[4] = {0, 0, 0, 0};
        uint32_t bits[4];
        bool any = false;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (j >= n || !stays(c, first + j, s[j] / t.temperature, &w[j]))
                w[j] = 0;
            any |= w[j] > 0;
        }
        if (!any)
            return;
        counter[0] = first / 4;
        philox4x32(counter, key, bits);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (!(w[j] > 0) || !(noise_unit(bits[j]) < best * w[j]))
                continue;
            double e = noise_exp(bits[j]) / w[j];
            if (e < best)
                best = e, at = first + j;
        }
    });
    u64 mine = (u64)__double_as_longlong(best),
        all = least(t, mine); /* positive: ordered as bits */
    return (uint32_t)least(t, mine == all ? at : DRAW_KNOWN);
}

static __device__ Cuts no_cuts(float max)
{
    Cuts c = {max, ~0u, ~0u, 0, 0.0f, ~0u, 0.0};
    return c;
}

/* False: no token can be sampled, and *status says why. */
static __device__ bool begin(Team &t, float temperature, Cuts *c, u64 *best, uint32_t *status)
{
    *best = best_of(t, temperature, NULL);
    const uint32_t infinite = draw_order(-INFINITY), nothing = draw_order(INFINITY);
    *status = *best == 0 || order_of(*best) == infinite ? DRAW_NOT_FINITE
              : order_of(*best) == nothing              ? DRAW_NOTHING_ALLOWED
                                                        : DRAW_DONE;
    if (*status != DRAW_DONE)
        return false;
    *c = no_cuts(t.row[tie_of(*best)] / temperature);
    return true;
}

/* Samples the token from the scores; the leader writes `out` and `top`. */
static __device__ void choose(Team &t, const draw_view &v, drawn *out, scored *top)
{
    Cuts plain, c;
    u64 best;
    drawn d = {0, 0.0f, DRAW_DONE, 0};
    double plain_sum = 0;
    if (v.raw && begin(t, 1.0f, &plain, &best, &d.status)) {
        plain_sum = weigh(t, 1.0f, plain);
        if (v.n_top)
            d.n_top = best_n(t, 1.0f, plain, v.n_top, plain_sum, top);
    }
    if (d.status == DRAW_DONE && begin(t, t.temperature, &c, &best, &d.status)) {
        if (v.top_k)
            cut_top_k(t, c, v.top_k);
        if (v.top_p < 1.0f)
            cut_top_p(t, c, v.top_p);
        c.min_weight = v.min_p;
        if (v.typical_p < 1.0f)
            cut_typical(t, c, v.typical_p);
        const double sum = weigh(t, t.temperature, c);
        d.id = v.sample ? race(t, c, v) : DRAW_KNOWN;
        if (d.id == DRAW_KNOWN)
            d.id = tie_of(c.typical == ~0u ? best : best_of(t, t.temperature, &c));
        const float s = t.row[d.id];
        d.logprob = v.raw ? (float)((double)(s - plain.max) - log(plain_sum))
                          : (float)((double)(s / t.temperature - c.max) - log(sum));
        if (v.n_top && !v.raw)
            d.n_top = best_n(t, t.temperature, c, v.n_top, sum, top);
    }
    if (d.status != DRAW_DONE)
        d.n_top = 0;
    if (t.rank == 0 && threadIdx.x == 0)
        *out = d;
}

/* grid: (team size, rows) */
static __global__ void __launch_bounds__(THREADS) draw_kernel(draw_args a)
{
    const uint32_t row = blockIdx.y;
    Team t;
    depend();
    const draw_view v = a.v[row];
    t.s = dynamic_shared<Shared>();
    t.rank = blockIdx.x, t.size = gridDim.x, t.parity = 0;
    t.row = a.scores + (size_t)row * a.pitch;
    t.temperature = v.temperature;
    const uint32_t share = (a.logits.vocab + 4 * t.size - 1) / (4 * t.size) * 4;
    t.begin = t.rank * share < a.logits.vocab ? t.rank * share : a.logits.vocab;
    t.end = t.begin + share < a.logits.vocab ? t.begin + share : a.logits.vocab;
    if (threadIdx.x == 0)
        t.s->n_list = 0;
    copy(t, a, v, row);
    if (v.fetch)
        return;
    team_barrier(t);
    if (v.n_adds) {
        add(t, a, v);
        team_barrier(t);
    }
    if (v.penalised) {
        penalise_all(t, a, v);
        team_barrier(t);
    }
    choose(t, v, a.board + v.out, a.top + v.top);
    team_barrier(t); /* no block exits while others read its shared memory */
}

extern "C" cudaError_t draw_launch(const struct launch *l, const void *args)
{
    const draw_args *a = (const draw_args *)args;
    return launch_team(draw_kernel, dim3(a->team, a->rows), THREADS, sizeof(Shared), l->stream,
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
