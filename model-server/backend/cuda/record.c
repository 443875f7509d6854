/* record.c - operations are recorded, then run; repeated decode steps are replayed as graphs.
 *
 * Recording costs about 50 ns per operation. It makes graphs safe by construction. A graph is
 * found by comparing everything that was recorded (launchers, pointers, sizes) with what it was
 * captured from. So any change (a batch size, a reallocated buffer, a longer context's grid) is
 * simply a different step. Data that changes between steps without being recorded is in the batch
 * record, at addresses that depend only on the sizes. Collectives are operations like the others;
 * all ranks together decide whether a step with them is replayed (group_agree). */
#include "model-server/backend/cuda/cuda.h"
#include <stdlib.h>
#include <string.h>

static int grow(void **p, uint32_t *cap, uint32_t need, size_t size)
{
    if (need <= *cap)
        return 0;
    uint32_t n = need > 2 * *cap ? need : 2 * *cap;
    void *fresh = realloc(*p, n * size);
    if (!fresh)
        return -1;
    *p = fresh, *cap = n;
    return 0;
}

void cuda_record(struct device *d, launch_fn *fn, const char *name, const void *args, uint32_t size)
{
    struct recorder *r = &d->rec;
    uint32_t padded = (size + 15) & ~15u;
    if (d->fault.kind != ERR_NONE)
        return;
    unread_look(d, fn, args, size);
    if (grow((void **)&r->commands, &r->cap, r->n + 1, sizeof(*r->commands)) ||
        grow((void **)&r->bytes, &r->cap_bytes, r->n_bytes + padded, 1)) {
        err_nomem(&d->fault);
        return;
    }
    memcpy(r->bytes + r->n_bytes, args, size);
    memset(r->bytes + r->n_bytes + size, 0, padded - size);
    r->commands[r->n++] = (struct command){fn, name, r->n_bytes, size};
    r->n_bytes += padded;
}

/* ---------------------------------------------------------------- running */

static void run(struct device *d)
{
    const struct recorder *r = &d->rec;
    const struct launch l = {d->stream, d->features & CUDA_OVERLAP};
    for (uint32_t i = 0; i < r->n; i++) {
        cudaError_t rc = r->commands[i].fn(&l, r->bytes + r->commands[i].at);
        if (rc != cudaSuccess) {
            cuda_fault(d, rc, "launching a kernel"); /* unless it has set a more specific error */
            return;
        }
    }
}

static bool same(const struct graph *g, const struct recorder *r)
{
    return g->used && g->n == r->n && g->n_bytes == r->n_bytes &&
           memcmp(g->bytes, r->bytes, r->n_bytes) == 0 &&
           memcmp(g->commands, r->commands, r->n * sizeof(*r->commands)) == 0;
}

static void graph_free(struct graph *g)
{
    if (g->exec)
        cudaGraphExecDestroy(g->exec);
    free(g->commands), free(g->bytes);
    *g = (struct graph){0};
}

/* The graph of the recorded step, or a place for it: a free one, else the least recently used
 * one. Decode steps usually repeat the last one, so that is compared first. Others differ from it
 * in an early byte or in the number of bytes: a hash over all of them would cost more. */
static struct graph *find(struct recorder *r)
{
    struct graph *oldest = &r->graphs[0];
    if (same(&r->graphs[r->last], r))
        return &r->graphs[r->last];
    for (uint32_t i = 0; i < MAX_GRAPHS; i++) {
        if (i != r->last && same(&r->graphs[i], r))
            return &r->graphs[r->last = i];
        if (r->graphs[i].used < oldest->used)
            oldest = &r->graphs[i];
    }
    r->last = (uint32_t)(oldest - r->graphs);
    graph_free(oldest);
    return oldest;
}

static void remember(struct graph *g, const struct recorder *r)
{
    g->commands = malloc(r->n * sizeof(*g->commands));
    g->bytes = malloc(r->n_bytes);
    if (!g->commands || !g->bytes) { /* this step continues without a graph */
        graph_free(g);
        return;
    }
    memcpy(g->commands, r->commands, r->n * sizeof(*g->commands));
    memcpy(g->bytes, r->bytes, r->n_bytes);
    g->n = r->n, g->n_bytes = r->n_bytes;
}

void recorder_drop_graphs(struct device *d)
{
    cudaGraph_t graph = NULL;
    if (d->rec.capturing)
        cudaStreamEndCapture(d->stream, &graph);
    d->rec.capturing = false;
    if (graph)
        cudaGraphDestroy(graph);
    for (int i = 0; i < MAX_GRAPHS; i++)
        graph_free(&d->rec.graphs[i]);
}

static void capture(struct device *d, struct graph *g)
{
    cudaGraph_t graph = NULL;
    if (g->exec)
        cudaGraphExecDestroy(g->exec);
    g->exec = NULL;
    g->number = ++d->rec.captured;
    cudaError_t rc = cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
    if (rc == cudaSuccess) {
        d->rec.capturing = true;
        run(d); /* a rank that is lost meanwhile ends the capture */
        rc = d->rec.capturing ? cudaStreamEndCapture(d->stream, &graph)
                              : cudaErrorStreamCaptureInvalidated;
        d->rec.capturing = false;
    }
    if (rc == cudaSuccess)
        rc = cudaGraphInstantiate(&g->exec, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    if (rc == cudaErrorMemoryAllocation && !group_of_captures(d)) {
        cudaGetLastError(); /* this step runs without a graph, and the next ones have memory */
        recorder_drop_graphs(d);
    } else if (rc != cudaSuccess) {
        cuda_fault(d, rc, "capturing a step");
    }
}

/* With several ranks all decide together: a collective is replayed by all or by none. */
static int choose(struct device *d, int mine)
{
    struct group *g = group_of_captures(d);
    return g ? group_agree(g, mine) : mine;
}

static void replay(struct device *d, struct graph *g)
{
    cudaError_t rc = cudaGraphLaunch(g->exec, d->stream);
    if (rc != cudaSuccess)
        cuda_fault(d, rc, "launching a graph");
}

static void run_repeating(struct device *d)
{
    struct recorder *r = &d->rec;
    struct graph *g = find(r);
    int step = choose(d, !g->used ? STEP_RUN : !g->exec ? STEP_CAPTURE : g->number);
    if (!g->used)
        remember(g, r);
    g->used = ++r->clock;
    if (step == STEP_FAILED)
        return;
    if (step == STEP_RUN) {
        run(d);
        return;
    }
    if (step == STEP_CAPTURE)
        capture(d, g);
    if (d->fault.kind == ERR_NONE && g->exec)
        replay(d, g);
    else if (d->fault.kind == ERR_NONE)
        run(d);
}

void cuda_flush(struct device *d, bool repeats)
{
    struct recorder *r = &d->rec;
    const bool ok = d->fault.kind == ERR_NONE;
    unread_end(d);
    if (d->rehearsal) {
        r->n = r->n_bytes = 0;
        return;
    }
    repeats = repeats && d->features & CUDA_GRAPHS;
    if (ok && r->n) {
        batch_send(d);
        draw_send(d);
        if (d->profile.fn)
            profile_run(d);
        else if (repeats)
            run_repeating(d);
        else
            run(d);
    } else if (repeats) {
        choose(d, ok ? STEP_RUN : STEP_FAILED); /* the others ask */
    }
    r->n = r->n_bytes = 0;
}

void recorder_free(struct device *d)
{
    recorder_drop_graphs(d);
    free(d->rec.commands), free(d->rec.bytes);
}
