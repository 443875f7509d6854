/* Audit of what the scheduler holds and which sequences hold it, for operators and tests.
 *
 * The block tables of the sequences are counted as holders; kv_blocks has its own count of blocks
 * in use. Both counts are independent, so a difference shows a leak on either side. */
#include "router/scheduler/scheduler.h"
#include "router/scheduler/state.h"
#include <stdlib.h>

enum { LISTED_MAX = 1000 };

struct held_blocks { /* of one cache */
    uint8_t *seen;   /* [n] */
    uint32_t n, held;
    uint64_t references;
};

struct audit_tally {
    struct held_blocks blocks, windows;
    uint32_t slots, cells, streams, listed, left_out;
};

static const char *const states[] = {
    [SEQ_FOLLOWING] = "following", [SEQ_FETCHING] = "fetching", [SEQ_WAITING] = "waiting",
    [SEQ_JOINING] = "joining",     [SEQ_RUNNING] = "running",   [SEQ_LEAVING] = "leaving",
    [SEQ_GOING] = "going",
};

static void hold(struct held_blocks *t, uint32_t block)
{
    t->references++;
    if (block >= t->n || t->seen[block])
        return;
    t->seen[block] = 1;
    t->held++;
}

static void add_table(struct audit_tally *t, const struct kv_table *kv)
{
    for (uint32_t i = 0; i < kv->len; i++)
        hold(&t->blocks, kv->ids[i]);
    for (uint32_t i = kv->windows_from; i < kv->windows_to; i++)
        hold(&t->windows, kv->windows[i]);
    if (kv->copy_from)
        hold(&t->blocks, kv->copy_from);
    if (kv->window_copy)
        hold(&t->windows, kv->window_copy);
    t->cells += kv->stateful ? CELLS_EACH : 0;
}

static void add(struct audit_tally *t, const struct scheduler *s, const struct seq *q,
                struct buf *out)
{
    add_table(t, &q->kv);
    t->slots += q->n_slots;
    t->streams += q->req != NULL;
    if (t->listed == LISTED_MAX) {
        t->left_out++;
        return;
    }
    buf_fmt(out,
            "%s{\"id\":%llu,\"state\":\"%s\",\"client\":%s,\"prompt_tokens\":%u,\"tokens\":%u,"
            "\"blocks\":%u,\"shared\":%u,\"swap_slots\":%u}",
            t->listed++ ? "," : "", (unsigned long long)q->id, states[q->state],
            q->req ? "true" : "false", q->n_prompt, q->n_tokens, q->kv.len,
            kv_shared(s->kv, &q->kv), q->n_slots);
}

bool sched_audit(const struct scheduler *s, struct buf *out)
{
    static const char *const calls[] = {"none",      "prefill", "decode", "clean",
                                        "clear_all", "probe",   "change", "offload"};
    struct kv_stats kv = kv_stats(s->kv);
    struct cells_stats cells = {0};
    if (kv_cells(s->kv))
        cells = cells_stats(kv_cells(s->kv));
    struct windows_stats windows = {0};
    if (kv_windows(s->kv))
        windows = windows_stats(kv_windows(s->kv));
    struct audit_tally t = {
        .blocks = {.seen = calloc(kv.total + 1, 1), .n = kv.total + 1},
        .windows = {.seen = calloc(windows.total + 1, 1), .n = windows.total + 1}};
    if (!t.blocks.seen || !t.windows.seen) {
        free(t.blocks.seen), free(t.windows.seen);
        buf_str(out, "{\"error\":\"out of memory\"}");
        return false;
    }
    buf_fmt(out, "{\"call\":\"%s\",\"sequences\":[", calls[s->call]);
    for (size_t i = 0; i < sizeof(s->known.bucket) / sizeof(s->known.bucket[0]); i++)
        for (const struct seq *q = s->known.bucket[i]; q; q = q->chain)
            add(&t, s, q, out);
    /* blocks that are being loaded */
    add_table(&t, &s->offload.table);
    const bool balanced = kv.used == t.blocks.held && swap_used(&s->swap) == t.slots &&
                          cells.owned == t.cells && windows.used == t.windows.held;
    buf_fmt(out,
            "],\"left_out\":%u,\"known\":%u,\"running\":%u,\"joining\":%u,\"streams\":%u,"
            "\"blocks\":{\"total\":%u,\"free\":%u,\"cached\":%u,\"used\":%u,\"held\":%u,"
            "\"references\":%llu},\"swap\":{\"used\":%u,\"held\":%u},"
            "\"cells\":{\"total\":%u,\"free\":%u,\"snapshots\":%u,\"used\":%u,\"held\":%u},"
            "\"windows\":{\"total\":%u,\"free\":%u,\"cached\":%u,\"used\":%u,\"held\":%u},"
            "\"balanced\":%s}",
            t.left_out, s->known.n, s->n_running, s->n_joining, t.streams, kv.total, kv.free,
            kv.cached, kv.used, t.blocks.held, (unsigned long long)t.blocks.references,
            swap_used(&s->swap), t.slots, cells.total, cells.free, cells.snapshots, cells.owned,
            t.cells, windows.total, windows.free, windows.cached, windows.used, t.windows.held,
            balanced ? "true" : "false");
    free(t.blocks.seen), free(t.windows.seen);
    return balanced;
}
