#include "model-server/model/stage.h"
#include "common/thread/watchdog.h"
#include "model-server/model/residual.h"
#include <assert.h>
#include <stdlib.h>

/* Passes of a large step, for each stage. A pass is so large that it takes longer to multiply with
 * the weights than to read them: on a CPU that is so from a few rows on. */
enum { PASSES_EACH = 2, SMALLEST_PASS = 16, SMALLEST_PASS_GPU = 256 };

/* ---------------------------------------------------------------- where to cut */

/* True if a layer from `at` on reads what an earlier one kept in a place. */
static bool is_kept(const struct decoder_spec *s, uint32_t at, int place)
{
    for (uint32_t i = at; i < s->n_layers; i++)
        if ((s->layers[i].keeps | s->layers[i].joins) >> place & 1)
            return !(s->layers[i].keeps >> place & 1);
    return false;
}

/* A stage may end before layer `at`: no layer from there on refers to an earlier one. */
static bool may_end(const struct decoder_spec *s, uint32_t at)
{
    if (s->moe.shortcut && at < s->n_layers && s->layers[at - 1].moe)
        return false;
    if (s->moe.router_width && at < s->n_layers) /* its sum goes from layer to layer */
        return false;
    if (s->sphere.before_turns && at < s->n_layers) /* what the first layers made */
        return false;
    if (s->rwkv.decay && at < s->n_layers) /* the first layer's values as well */
        return false;
    for (int k = 0; k < KEPT_PLACES; k++)
        if (is_kept(s, at, k))
            return false;
    for (uint32_t i = at; i < s->n_layers; i++) {
        const struct layer_spec *l = &s->layers[i];
        if ((l->kv_of && l->kv_of <= at) || (l->same_as && l->same_as <= at) ||
            (l->top_of && l->top_of <= at))
            return false;
    }
    return true;
}

/* For stage k that ends before layer i: the first layer that minimises the largest of stages 0 ..
 * k, and its size. */
struct cuts {
    uint16_t from[COMM_MOST_RANKS][SPEC_MAX_LAYERS + 1];
    uint64_t least[COMM_MOST_RANKS][SPEC_MAX_LAYERS + 1];
    uint64_t before[SPEC_MAX_LAYERS + 1]; /* bytes of the layers before each */
    bool ends[SPEC_MAX_LAYERS + 1];       /* a stage may end there */
};
static const uint64_t never = UINT64_MAX;

static void best_start(struct cuts *c, const struct stage_sizes *z, int k, int world, uint32_t i)
{
    const uint64_t more = k == world - 1 ? z->head : 0;
    uint64_t *least = &c->least[k][i];
    *least = never;
    if (k == 0)
        *least = z->embed + c->before[i] + more;
    for (uint32_t j = (uint32_t)k; k && j < i; j++) {
        const uint64_t mine = c->before[i] - c->before[j] + more, others = c->least[k - 1][j];
        const uint64_t most = mine > others ? mine : others;
        if (c->ends[j] && others != never && most < *least) {
            *least = most;
            c->from[k][i] = (uint16_t)j;
        }
    }
}

/* False: no such division exists. */
static bool find_cuts(struct cuts *c, const struct decoder_spec *s, const struct stage_sizes *z,
                      int world)
{
    for (uint32_t i = 0; i < s->n_layers; i++) {
        c->before[i + 1] = c->before[i] + z->layer[i];
        c->ends[i + 1] = may_end(s, i + 1);
    }
    for (int k = 0; k < world; k++)
        for (uint32_t i = 1; i <= s->n_layers; i++)
            best_start(c, z, k, world, i);
    return c->least[world - 1][s->n_layers] != never;
}

int stage_cut(const struct decoder_spec *s, const struct stage_sizes *z, int rank, int world,
              struct stage *out, struct err *e)
{
    struct cuts *c = calloc(1, sizeof(*c));
    uint32_t end = s->n_layers;
    assert(rank >= 0 && rank < world && world <= COMM_MOST_RANKS);
    if (!c)
        return err_nomem(e);
    const bool found = find_cuts(c, s, z, world);
    for (int k = world - 1; found && k > rank; k--)
        end = c->from[k][end];
    const uint32_t first = found && rank ? c->from[rank][end] : 0;
    free(c);
    if (!found)
        return err_set(
            e, ERR_VALIDATION,
            "--pipeline-parallel-size %d: the %u layers of this model cannot be cut into "
            "so many stages",
            world, s->n_layers);
    *out = (struct stage){first, end - first, rank == 0, rank == world - 1};
    return 0;
}

int stage_agree(struct decoder *d, struct err *e)
{
    const struct comm *c = d->stages;
    const uint32_t links = d->ops->link_open != NULL;
    const uint32_t least = links ? SMALLEST_PASS_GPU : SMALLEST_PASS;
    uint32_t mine[4] = {d->stage.first, d->stage.n, least, links}, all[COMM_MOST_RANKS][4], at = 0;
    bool linked = true;
    if (comm_gather_bytes(d->stages, mine, all, sizeof(mine), e))
        return -1;
    for (int i = 0; i < c->world; i++) {
        linked &= all[i][3] != 0;
        d->smallest_pass = all[i][2] > d->smallest_pass ? all[i][2] : d->smallest_pass;
        if (all[i][0] != at)
            return err_set(
                e, ERR_VALIDATION,
                "stage %d of the pipeline begins at layer %u, and the one before ends at "
                "%u: are the model's files the same on all machines?",
                i, all[i][0], at);
        at += all[i][1];
    }
    assert(!linked || d->ops->link_open); /* `links` of this rank */
    return linked ? d->ops->link_open(d->dev, d->stages, &d->link, e) : 0;
}

/* ---------------------------------------------------------------- in a step */

/* While one stage computes, the others wait: for a watchdog they are idle. The communicator has
 * its own deadline, and checks whether all ranks live. */
static int after_wait(const struct decoder *d, int rc)
{
    if (d->busy_ns)
        watch_busy(d->busy_ns);
    return rc;
}

static void before_wait(const struct decoder *d)
{
    if (d->busy_ns)
        watch_idle(d->busy_ns);
}

/* Without a link messages are in host memory. Rows of a device with memory of its own pass through
 * scratch.host then. */
static int receive(struct decoder *d, int from, float *x, size_t n, struct err *e)
{
    float *host = stage_copies(d) ? d->scratch.host : x;
    if (d->rehearsed)
        return 0;
    if (d->link)
        return comm_recv(d->link, from, x, n, e);
    before_wait(d);
    if (after_wait(d, comm_recv(d->stages, from, host, n, e)))
        return -1;
    return host == x ? 0 : d->ops->upload(d->dev, x, host, n * sizeof(*x), e);
}

/* To the stages [first, end). */
static int deliver(struct decoder *d, int first, int end, const float *x, size_t n, struct err *e)
{
    const float *host = stage_copies(d) ? d->scratch.host : x;
    int rc = 0;
    if (d->rehearsed)
        return 0;
    for (int r = first; d->link && r < end && rc == 0; r++)
        rc = comm_send(d->link, r, x, n, e);
    if (d->link)
        return rc;
    if (host != x && d->ops->download(d->dev, d->scratch.host, x, n * sizeof(*x), e))
        return -1;
    before_wait(d);
    for (int r = first; r < end && rc == 0; r++)
        rc = comm_send(d->stages, r, host, n, e);
    return after_wait(d, rc);
}

bool stage_copies(const struct decoder *d) { return d->stages && d->ops->comm_open && !d->link; }

int stage_take_rows(struct decoder *d, uint32_t t, struct err *e)
{
    uint32_t width;
    float *x = residual_rows(d, &width);
    return receive(d, d->stages->rank - 1, x, (size_t)t * width, e);
}

int stage_give_rows(struct decoder *d, uint32_t t, struct err *e)
{
    const int next = d->stages->rank + 1;
    uint32_t width;
    const float *x = residual_rows(d, &width);
    return deliver(d, next, next + 1, x, (size_t)t * width, e);
}

int stage_share(struct decoder *d, float *x, size_t n, struct err *e)
{
    const int last = d->stages->world - 1;
    return d->stage.ends ? deliver(d, 0, last, x, n, e) : receive(d, last, x, n, e);
}

uint32_t stage_pass_tokens(const struct decoder *d, uint32_t tokens, uint32_t most)
{
    if (!d->stages)
        return most;
    const uint32_t parts = (uint32_t)d->stages->world * PASSES_EACH;
    uint32_t each = (tokens + parts - 1) / parts;
    each = each > d->smallest_pass ? each : d->smallest_pass;
    return each < most ? each : most;
}
