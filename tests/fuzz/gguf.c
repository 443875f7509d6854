// fuzz-sources: common/tokenizer/likely*.c
// fuzz-sources: common/gguf/*.c common/tokenizer/gguf*.c common/tokenizer/vocab.c common/buf.c
// fuzz-sources: common/tokenizer/longest.c
// fuzz-sources: common/json/json.c common/json/reader.c common/arena.c common/json/exact.c
// fuzz-sources: common/err.c common/utf8.c common/file/file_map.c common/tokenizer/scored.c
#include "common/buf.h"
#include "common/gguf/family.h"
#include "common/gguf/pooling.h"
#include "common/gguf/projector.h"
#include "common/gguf/vocab.h"
#include "common/json/json.h"
#include "common/tokenizer/gguf_lists.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Refused in one line, or what it is made into is JSON. */
static void check(int rc, const struct err *e, const struct buf *made)
{
    struct err why = {0};
    if (rc) {
        if (!e->msg[0] || strchr(e->msg, '\n'))
            abort();
        return;
    }
    cJSON *j = json_parse(made->p, made->len, &why);
    if (!j && why.kind != ERR_SYSTEM)
        abort();
    cJSON_Delete(j);
}

static void check_tree(cJSON *j, const struct err *e)
{
    if (!j && (!e->msg[0] || strchr(e->msg, '\n')))
        abort();
    cJSON_Delete(j);
}

static void check_tensors(const struct gguf *g, const uint8_t *data, size_t n)
{
    volatile uint8_t sink = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        if (gguf_tensor(g, t->name) != t || t->data < data || t->bytes > n ||
            (size_t)(t->data - data) > n - t->bytes)
            abort();
        for (uint64_t k = 0; k < t->bytes; k += 61)
            sink = sink ^ t->data[k];
    }
}

/* Every accepted tensor lies inside the file and is found by its name; every list can be walked;
 * what the file stands for is JSON. */
/* The same without its lists, and the merges that scores stand for. */
static void check_lists(const struct gguf *g, struct err *e)
{
    struct gguf_lists l;
    struct scored_merge *m = NULL;
    size_t count = 0;
    if (gguf_lists_open(&l, g, "<image>", e))
        return;
    check(0, e, &l.json);
    if (l.pieces && scored_merges(l.pieces, l.vocab.n, NULL, &m, &count, e) == 0)
        for (size_t i = 0; i < count; i++)
            if (m[i].id >= l.vocab.n || m[i].left >= l.vocab.n || m[i].right >= l.vocab.n ||
                m[i].cut >= l.pieces[m[i].id].n)
                abort();
    free(m);
    gguf_lists_close(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct gguf g;
    struct err e = {0};
    struct buf out = BUF_INIT;
    if (gguf_parse(&g, "f", data, n, &e)) {
        check(-1, &e, &out);
        return 0;
    }
    check_tensors(&g, data, n);
    for (uint32_t i = 0; i < g.n_values; i++) {
        const struct gguf_value *v = &g.values[i];
        const uint8_t *at = v->data;
        struct gguf_str s;
        for (uint64_t k = 0; v->type == GGUF_T_STRING && k < v->n; k++)
            if (!gguf_next(v, &at, &s))
                abort();
        if (v->n)
            gguf_number_at(v, v->n - 1);
    }
    check(gguf_tokenizer(&g, "<image>", &out, &e), &e, &out);
    buf_reset(&out);
    check_lists(&g, &e);
    check(gguf_tokenizer_config(&g, &out, &e), &e, &out);
    buf_free(&out);
    const struct gguf_set set = {&g, 1, NULL}, sees = {&g, 1, &g}; /* as its own projector */
    check_tree(gguf_config(&set, &e), &e);
    check_tree(gguf_generation_config(&set, &e), &e);
    check_tree(gguf_config(&sees, &e), &e);
    check_tree(gguf_projector_pixels(&sees, &e), &e);
    if (gguf_pools(&set)) {
        check_tree(gguf_modules(&set, &e), &e);
        check_tree(gguf_pooling(&set, &e), &e);
    }
    gguf_close(&g);
    return 0;
}
