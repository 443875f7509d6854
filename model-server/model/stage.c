#include "model-server/model/stage.h"
#include "common/watchdog.h"
#include "model-server/model/decoder.h"
#include <assert.h>
#include <string.h>

enum { PASSES_EACH = 2, SMALLEST_PASS = 256 }; /* passes of a large step, for each stage */

/* ---------------------------------------------------------------- where to cut */

/* A stage may end in front of layer `at`: none from there on refers to one before. */
static bool may_end(const struct decoder_spec *s, uint32_t at)
{
    for (uint32_t i = at; i < s->n_layers; i++) {
        const struct layer_spec *l = &s->layers[i];
        if ((l->kv_of && l->kv_of <= at) || (l->same_as && l->same_as <= at))
            return false;
    }
    return true;
}

/* The most that a stage may take: stages are filled in their order, each as far as that goes.
 * Returns whether `world` of them hold all layers; ends[k]: where stage k ends. */
static bool fill(const struct decoder_spec *s, const struct stage_sizes *z, int world,
                 uint64_t most, uint32_t *ends)
{
    uint32_t at = 0;
    for (int k = 0; k < world; k++) {
        const uint32_t left = (uint32_t)(world - 1 - k); /* each of these needs a layer */
        uint64_t sum = k ? 0 : z->embed;
        uint32_t end = at;
        for (uint32_t i = at; i + left < s->n_layers; i++) {
            sum += z->layer[i] + (i + 1 == s->n_layers ? z->head : 0);
            if (sum > most)
                break;
            if (may_end(s, i + 1) && (left || i + 1 == s->n_layers))
                end = i + 1;
        }
        if (end == at)
            return false;
        ends[k] = at = end;
    }
    return at == s->n_layers;
}

int stage_cut(const struct decoder_spec *s, const struct stage_sizes *z, int rank, int world,
              struct stage *out, struct err *e)
{
    uint32_t ends[SPEC_MAX_LAYERS];
    uint64_t low = 0, high = z->embed + z->head;
    assert(rank >= 0 && rank < world);
    for (uint32_t i = 0; i < s->n_layers; i++)
        high += z->layer[i];
    if ((uint32_t)world > s->n_layers || !fill(s, z, world, high, ends))
        return err_set(
            e, ERR_VALIDATION,
            "--pipeline-parallel-size %d: the %u layers of this model cannot be cut into "
            "so many stages",
            world, s->n_layers);
    while (low < high) { /* the least that works */
        const uint64_t middle = low + (high - low) / 2;
        if (fill(s, z, world, middle, ends))
            high = middle;
        else
            low = middle + 1;
    }
    fill(s, z, world, high, ends);
    const uint32_t first = rank ? ends[rank - 1] : 0;
    *out = (struct stage){first, ends[rank] - first, rank == 0, rank == world - 1};
    return 0;
}

int stage_agree(const struct decoder *d, struct err *e)
{
    const struct comm *c = d->stages;
    uint32_t mine[2] = {d->stage.first, d->stage.n}, all[COMM_MOST_RANKS][2], at = 0;
    if (comm_gather_bytes(d->stages, mine, all, sizeof(mine), e))
        return -1;
    for (int i = 0; i < c->world; i++) {
        if (all[i][0] != at)
            return err_set(
                e, ERR_VALIDATION,
                "stage %d of the pipeline begins at layer %u, and the one before ends at "
                "%u: are the model's files the same on all machines?",
                i, all[i][0], at);
        at += all[i][1];
    }
    return 0;
}

/* ---------------------------------------------------------------- in a step */

/* While one stage computes, the others wait: to a watchdog they have no work. The communicator has
 * a deadline of its own, and looks whether all ranks live. */
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

int stage_take_rows(struct decoder *d, float *x, uint32_t t, struct err *e)
{
    before_wait(d);
    return after_wait(
        d, comm_recv(d->stages, d->stages->rank - 1, x, (size_t)t * d->spec.hidden, e));
}

int stage_give_rows(struct decoder *d, const float *x, uint32_t t, struct err *e)
{
    before_wait(d);
    return after_wait(
        d, comm_send(d->stages, d->stages->rank + 1, x, (size_t)t * d->spec.hidden, e));
}

int stage_share(struct decoder *d, float *x, size_t n, struct err *e)
{
    const int last = d->stages->world - 1;
    int rc = 0;
    before_wait(d);
    if (!d->stage.ends)
        return after_wait(d, comm_recv(d->stages, last, x, n, e));
    for (int r = 0; r < last && rc == 0; r++)
        rc = comm_send(d->stages, r, x, n, e);
    return after_wait(d, rc);
}

uint32_t stage_pass_tokens(const struct decoder *d, uint32_t tokens, uint32_t most)
{
    if (!d->stages)
        return most;
    const uint32_t parts = (uint32_t)d->stages->world * PASSES_EACH;
    uint32_t each = (tokens + parts - 1) / parts;
    each = each > SMALLEST_PASS ? each : SMALLEST_PASS;
    return each < most ? each : most;
}
