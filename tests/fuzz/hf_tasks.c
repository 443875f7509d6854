// fuzz-sources: common/tokenizer/likely*.c
// fuzz-sources: common/json/reader.c
// Bodies of Hugging Face's tasks, whose answers are about places in their texts: windows, groups,
// spans and masks. A byte is a token, a space ends a word.

// fuzz-sources: router/body/body.c router/body/body_ask.c router/body/body_unread.c
// fuzz-sources: router/http/errors.c
// fuzz-sources: router/call/embed_body.c router/call/embed_numbers.c router/call/embed_windows.c
// fuzz-sources: router/api/hf/*.c router/api/tei/*.c router/api/cohere/rerank.c
// fuzz-sources: router/call/embed_cosines.c common/model/first_module.c
// fuzz-sources: common/arena.c common/buf.c common/err.c common/json/json.c common/json/exact.c
// fuzz-sources: common/model/visual_form.c
// fuzz-sources: common/utf8.c common/model/sentence*.c common/model/model_file.c common/gguf/*.c
// fuzz-sources: common/tokenizer/gguf*.c common/tokenizer/vocab.c common/file/file_map.c
// fuzz-sources: common/tokenizer/longest.c
// fuzz-sources: common/tokenizer/scored.c common/tokenizer/folder*.c
// fuzz-sources: common/tokenizer/sentencepiece.c
#include "common/json/json.h"
#include "router/api/hf/hf.h"
#include "router/call/embed_body.h"
#include "router/call/embed_images.h"
#include "router/call/embed_impl.h"
#include "tests/fuzz/call_texts.h"
#include <stdlib.h>
#include <string.h>

enum { CLS = 1, SEP = 2, VOCAB = 256, MOST = 24 };
static enum model_task task;

/* ---------------------------------------------------------------- what stands for the rest */

int texts_ask_lists(struct call *c, struct texts_ask *ask, const struct text_input *in,
                    uint32_t n_first, struct err *e)
{
    (void)c, (void)ask, (void)in, (void)n_first, (void)e;
    abort(); /* no model here ranks lists */
}
float *texts_list_scores(struct call *c, uint32_t n_first, uint32_t n)
{
    (void)c, (void)n_first, (void)n;
    abort();
}
bool texts_show(struct call *c, struct body *b, const char *key, const struct shown_part *parts,
                uint32_t n, struct text_input *out)
{
    (void)c, (void)b, (void)key, (void)parts, (void)n, (void)out;
    abort(); /* no model here has images */
}
/* Those of router/call/embed_images.c without images. */
const struct text_input *body_documents_or_images(struct call *c, struct body *b, struct object o,
                                                  const char *key, uint32_t *n)
{
    (void)c;
    return body_documents(b, o, key, n);
}
struct text_input text_pair(const struct text_input *query, const struct text_input *document)
{
    struct text_input pair = *query;
    pair.second = document->text;
    pair.n_second = document->n;
    return pair;
}
bool edge_has_adapter(const struct edge *g, const char *name) { return (void)g, (void)name, false; }
const struct infer_limits *edge_limits(const struct edge *g)
{
    static char *labels[] = {"O", "B-entail", "I-entail"};
    static struct infer_limits l = {.max_input_tokens = MOST, .labels = labels, .n_labels = 3};
    (void)g;
    l.task = task;
    return &l;
}
void tok_ids_free(struct tok_ids *ids)
{
    free(ids->id), free(ids->at), free(ids->word);
    *ids = (struct tok_ids){0};
}
int tokenizer_encode(const struct tokenizer *t, const char *s, size_t n, unsigned flags,
                     struct tok_scratch **scratch, struct tok_ids *out, struct err *e)
{
    (void)t, (void)flags, (void)scratch, (void)e;
    *out = (struct tok_ids){.id = calloc(n + 1, sizeof(*out->id)),
                            .at = calloc(n + 1, sizeof(*out->at)),
                            .word = calloc(n + 1, sizeof(*out->word)),
                            .n = (uint32_t)n};
    for (uint32_t i = 0; i < n; i++) {
        out->id[i] = (uint8_t)s[i];
        out->at[i] = (struct tok_offset){i, i + 1};
        out->word[i] = i ? out->word[i - 1] + (s[i] == ' ') : 0;
    }
    return 0;
}
int embed_ids(const struct encoding *x, const char *text, size_t n, unsigned flags,
              struct tok_part *out)
{
    uint32_t *ids = ARENA_NEW(&x->c->arena, uint32_t, n + 1);
    (void)flags;
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint8_t)text[i];
    *out = (struct tok_part){ids, (uint32_t)n};
    return 0;
}
const char *tokenizer_token(const struct tokenizer *t, uint32_t id)
{
    static char one[2];
    (void)t;
    one[0] = (char)(id ? id : '?');
    return one;
}
const char *tokenizer_special(const struct tokenizer *t, const char *name)
{
    return (void)t, !strcmp(name, "mask_token") ? "_" : !strcmp(name, "cls_token") ? "\x01" : NULL;
}
int64_t tokenizer_id(const struct tokenizer *t, const char *token)
{
    return (void)t, strlen(token) == 1 ? (uint8_t)*token : -1;
}
bool tokenizer_marks_inner(const struct tokenizer *t) { return (void)t, false; }
void tokenizer_join(const struct tokenizer *t, const struct tok_text *tokens, size_t n,
                    struct buf *out)
{
    (void)t;
    for (size_t i = 0; i < n; i++)
        buf_add(out, tokens[i].p, tokens[i].n);
}
void tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                      struct buf *out)
{
    (void)t;
    for (size_t i = 0; i < n; i++)
        if (!skip_special || ids[i] > SEP)
            buf_ch(out, (char)ids[i]);
}
uint32_t tok_frame_special(const struct tokenizer *t, bool pair) { return (void)t, pair ? 3 : 2; }
const uint8_t *tok_frame_types(const uint8_t *types, uint32_t n) { return (void)n, types; }
uint32_t tok_frame_first(const struct tokenizer *t, const struct tok_part *a,
                         const struct tok_part *b)
{
    return (void)t, b ? a->n + 2 : 1;
}
void tok_frame(const struct tokenizer *t, const struct tok_part *a, const struct tok_part *b,
               uint32_t *ids, uint8_t *types)
{
    (void)t, (void)types;
    *ids++ = CLS;
    memcpy(ids, a->id, a->n * sizeof(*ids));
    ids += a->n;
    *ids++ = SEP;
    for (uint32_t i = 0; b && i < b->n; i++)
        *ids++ = b->id[i];
    if (b)
        *ids = SEP;
}

/* ---------------------------------------------------------------- the answer */

static uint32_t width_of(void)
{
    return task == TASK_ANSWER ? 2 : task == TASK_FILL_MASK ? VOCAB : 3;
}

/* Any logits. */
static void answer(struct call *c)
{
    struct err e = ERR_INIT;
    struct embed_text *list = calloc(asked.n, sizeof(*list));
    size_t rows = 0;
    uint32_t random = asked.n;
    for (uint32_t i = 0; i < asked.n; i++) {
        list[i].n = asked.in[i].ids ? asked.in[i].n_ids : 1;
        if (asked.in[i].ids && (list[i].n > MOST || asked.in[i].skip >= list[i].n))
            abort();
        rows += asked.all ? list[i].n : 1;
    }
    texts.job =
        (struct embed_job){.texts = list, .n = asked.n, .all = asked.all, .width = width_of()};
    texts.job.values = calloc(rows * width_of(), sizeof(float));
    for (size_t i = 0; i < rows * width_of(); i++)
        texts.job.values[i] = (float)((random = random * 1664525 + 1013904223) >> 16) / 8192 - 4;
    if (texts.render(c, &e) || !c->out.len)
        abort();
    free(texts.job.values);
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The first byte picks the task. A refusal has a status and one line; what is accepted is answered
 * with JSON. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const enum model_task all[] = {TASK_TOKEN_CLASSIFY, TASK_ANSWER, TASK_CLASSIFY,
                                          TASK_FILL_MASK};
    static struct router_config config = {.max_client_batch_size = 40};
    struct edge edge = {.config = &config, .model_id = "m"};
    struct err e = ERR_INIT;
    struct call c = {.edge = &edge, .id = "1"};
    const uint8_t which = (n ? data[0] : 0) % (sizeof(all) / sizeof(all[0]));
    arena_init(&c.arena, 64 << 20);
    if (n)
        buf_add(&c.body, data + 1, n - 1);
    task = all[which];
    if (texts_work_form(&c, 1u << task, hf_form, &e) == 0) {
        answer(&c);
        cJSON *j = json_parse(c.out.p, c.out.len, &e);
        if (!j)
            abort();
        cJSON_Delete(j);
    } else if (err_status(e.kind) < 400 || err_status(e.kind) >= 500 || !e.msg[0]) {
        abort();
    }
    buf_free(&c.body);
    buf_free(&c.out);
    arena_reset(&c.arena);
    return 0;
}
