// fuzz-sources: common/tokenizer/likely*.c
// fuzz-sources: common/json/reader.c
// Bodies of the routes of embedders and rerankers: what they make of foreign bytes, and their
// answers.

// fuzz-sources: router/body/body.c router/body/body_ask.c router/body/body_unread.c
// fuzz-sources: router/http/errors.c
// fuzz-sources: router/call/embed_body.c router/call/embed_numbers.c router/call/embed_cosines.c
// fuzz-sources: router/call/embed_vector.c router/api/cohere/embed.c
// fuzz-sources: router/api/cohere/route_cohere_embed*.c
// fuzz-sources: router/api/openai/messages_input.c
// fuzz-sources: router/api/openai/route_embeddings.c router/api/openai/route_score.c
// fuzz-sources: router/api/gemini/embed.c router/api/gemini/schema.c
// fuzz-sources: router/api/tei/*.c router/api/cohere/rerank.c router/api/cohere/route_rerank*.c
// fuzz-sources: common/arena.c common/buf.c common/err.c common/json/json.c common/json/exact.c
// fuzz-sources: common/model/visual_form.c
// fuzz-sources: common/utf8.c common/model/sentence*.c common/model/model_file.c common/gguf/*.c
// fuzz-sources: common/tokenizer/gguf*.c common/tokenizer/vocab.c common/file/file_map.c
// fuzz-sources: common/tokenizer/longest.c
// fuzz-sources: common/tokenizer/scored.c common/tokenizer/folder*.c
// fuzz-sources: common/tokenizer/sentencepiece.c
// fuzz-sources: common/model/first_module.c router/call/embed_images.c router/chat/pictures.c
// fuzz-sources: common/image/data_url.c
#include "common/json/json.h"
#include "router/api/gemini/gemini.h"
#include "router/api/openai/chat_completion.h"
#include "router/call/embed_body.h"
#include "router/chat/parts.h"
#include "router/media/media.h"
#include "tests/fuzz/call_texts.h"
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 3 };

int64_t tokenizer_id(const struct tokenizer *t, const char *token)
{
    return (void)t, (void)token, -1;
}
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
bool edge_has_adapter(const struct edge *g, const char *name)
{
    (void)g;
    return !strcmp(name, "adapter");
}
const struct infer_limits *edge_limits(const struct edge *g)
{
    static const struct infer_limits rerank = {.task = TASK_RERANK, .embed_width = WIDTH},
                                     embed = {.task = TASK_EMBED, .embed_width = WIDTH};
    return g->has_keys ? &rerank : &embed;
}

/* A model with images, unless the edge has keys. */
struct media edge_media(const struct edge *g)
{
    static char any;
    return (struct media){.vision = g->has_keys ? NULL : (const struct vision *)(const void *)&any};
}
const char *vision_marker(const struct vision *v) { return (void)v, "<image>"; }
const char *vision_marker_around(const struct vision *v) { return (void)v, "(<image>)"; }
bool parts_is_thought(const cJSON *part) { return (void)part, false; }
/* Templates are in another fuzzer, body. */
const struct ask *chat_prompt_alone(struct call *c, struct body *b, struct object root)
{
    static const struct ask prompt = {.inputs = "a prompt", .n_inputs = sizeof("a prompt") - 1};
    (void)c;
    if (!cJSON_IsArray(json_get(root.json, "messages")))
        body_mistyped(b, root, "messages", json_get(root.json, "messages"), "a sequence");
    return b->failed ? NULL : &prompt;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_shown(const struct text_input *in)
{
    const struct ask *q = in->shown;
    if (in->text || in->ids || strlen(q->inputs) != q->n_inputs)
        abort();
    for (uint32_t i = 0; i < q->n_images; i++)
        if (strlen(q->images[i].url) != q->images[i].n_url)
            abort();
}

/* Every input is a text, a pair or ids, whole. Returns how many tokens stand for them here. */
static size_t check_inputs(struct embed_text *out)
{
    size_t rows = 0;
    if (!asked.n)
        abort();
    for (uint32_t i = 0; i < asked.n; i++) {
        const struct text_input *in = &asked.in[i];
        if (in->shown)
            check_shown(in);
        else if (in->text ? strlen(in->text) != in->n : !in->ids || !in->n_ids)
            abort();
        if (in->second && strlen(in->second) != in->n_second)
            abort();
        out[i] = (struct embed_text){.n = 1};
        rows++;
    }
    return rows;
}

static void answer(struct call *c)
{
    struct err e = ERR_INIT;
    struct embed_text *list = calloc(asked.n, sizeof(*list));
    const size_t rows = check_inputs(list);
    texts.job = (struct embed_job){.texts = list, .n = asked.n, .width = WIDTH};
    texts.job.values = calloc(rows * WIDTH, sizeof(float));
    if (texts.render(c, &e) || !c->out.len)
        abort();
    free(texts.job.values);
    free(list);
}

/* The first byte picks the route, or one of Google's actions. A refusal has a status and one line;
 * what is accepted is answered with JSON. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    extern const struct route route_embeddings, route_score, route_embed, route_embed_all,
        route_predict, route_rerank, route_rerank_documents, route_similarity, route_cohere_embed;
    const struct route *const all[] = {
        &route_embeddings,       &route_score,      &route_embed,
        &route_embed_all,        &route_predict,    &route_rerank,
        &route_rerank_documents, &route_similarity, &route_cohere_embed};
    static struct router_config config = {.max_client_batch_size = 4};
    struct edge edge = {.config = &config, .model_id = "m", .has_keys = n && data[0] & 64};
    struct err e = ERR_INIT;
    struct call c = {.edge = &edge, .id = "1"};
    arena_init(&c.arena, 64 << 20);
    if (n)
        buf_add(&c.body, data + 1, n - 1);
    static const char *const actions[] = {"embedContent", "batchEmbedContents", "predict"};
    const uint8_t route = n ? data[0] : 0;
    const int rc = route & 128 ? gemini_embed(&c, actions[route % 3], &e)
                               : all[route % (sizeof(all) / sizeof(all[0]))]->work(&c, &e);
    if (rc == 0) {
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
