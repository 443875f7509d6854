#include "router/api/cohere/embed.h"
#include "common/json/json.h"
#include "router/call/embed_images.h"
#include "router/call/embed_vector.h"
#include <string.h>

enum { MOST_TEXTS = 2048, KINDS = 4 };

/* Types of vectors in the order of an answer. */
static const struct kind {
    const char *name;
    enum vector_type type;
    bool base64;
} kinds[KINDS] = {{"float", VECTOR_FLOAT, false},
                  {"binary", VECTOR_BINARY, false},
                  {"ubinary", VECTOR_UBINARY, false},
                  {"base64", VECTOR_FLOAT, true}};

struct vectors {
    int version;
    bool plain; /* version 1 without types */
    bool wanted[KINDS];
    uint32_t dimensions;
    const struct text_input *texts;
};

/* ---------------------------------------------------------------- the answer */

static void write_kind(struct call *c, const struct vectors *q, const struct kind *k)
{
    const struct call_texts *t = c->texts;
    const uint32_t n = q->dimensions ? q->dimensions : t->job.width;
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < t->job.n; i++) {
        if (i)
            buf_ch(&c->out, ',');
        vector_write(&c->out, t->job.values + (size_t)i * t->job.width, n, k->type, k->base64);
    }
    buf_ch(&c->out, ']');
}

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct vectors *q = t->state;
    struct buf *out = &c->out;
    bool more = false;
    for (uint32_t i = 0; i < t->job.n; i++)
        texts_normalize(t->job.values + (size_t)i * t->job.width,
                        q->dimensions ? q->dimensions : t->job.width);
    buf_fmt(out, "{\"id\":\"%s\",\"embeddings\":%s", c->id, q->plain ? "" : "{");
    if (q->plain)
        write_kind(c, q, &kinds[0]);
    for (int k = 0; !q->plain && k < KINDS; k++) {
        if (!q->wanted[k])
            continue;
        buf_fmt(out, "%s\"%s\":", more ? "," : "", kinds[k].name);
        write_kind(c, q, &kinds[k]);
        more = true;
    }
    buf_str(out, q->plain ? ",\"texts\":[" : "},\"texts\":[");
    more = false;
    for (uint32_t i = 0; i < t->job.n; i++) {
        if (!q->texts[i].text) /* it has images */
            continue;
        buf_str(out, more ? "," : "");
        buf_json_str(out, q->texts[i].text, q->texts[i].n);
        more = true;
    }
    buf_fmt(out,
            "],\"meta\":{\"api_version\":{\"version\":\"%d\"},\"billed_units\":{\"input_tokens\":"
            "%llu}},\"response_type\":\"%s\"}",
            q->version, (unsigned long long)t->tokens,
            q->plain ? "embeddings_floats" : "embeddings_by_type");
    return out->oom ? err_nomem(e) : 0;
}

/* ---------------------------------------------------------------- the body */

/* Objects with `content`, or with `images` the data: URLs alone. */
static const struct text_input *read_items(struct call *c, struct body *b, const char *key,
                                           uint32_t *n)
{
    const struct object root = body_root(b);
    const cJSON *list = json_get(b->root, key);
    const bool images = strcmp(key, "images") == 0;
    *n = 0;
    if (!cJSON_IsArray(list) || !list->child) {
        body_mistyped(b, root, key, list,
                      images ? "a list of at least one image" : "a list of at least one object");
        return NULL;
    }
    struct text_input *in =
        ARENA_NEW(b->arena, struct text_input, (size_t)cJSON_GetArraySize(list));
    if (!in)
        body_nomem(b, root, key);
    for (const cJSON *item = list->child; item && !b->failed; item = item->next) {
        const struct shown_part image = {.url = cJSON_IsString(item) ? item->valuestring : NULL};
        if (!images)
            texts_content(c, b, key, json_get(item, "content"), &in[*n]);
        else if (image.url)
            texts_show(c, b, key, &image, 1, &in[*n]);
        else
            body_mistyped(b, root, key, item, "a data: URL");
        ++*n;
    }
    return b->failed ? NULL : in;
}

static void read_types(struct body *b, struct object root, struct vectors *q)
{
    uint32_t n = 0;
    const char *const *words = body_strings(b, root, "embedding_types", false, true, &n);
    q->plain = n == 0 && q->version == 1;
    q->wanted[0] = n == 0;
    for (uint32_t i = 0; words && i < n; i++) {
        int k = 0;
        while (k < KINDS && strcmp(kinds[k].name, words[i]) != 0)
            k++;
        if (k == KINDS)
            body_fail(b, root, "embedding_types",
                      "`embedding_types` must be of float, binary, ubinary and base64");
        else
            q->wanted[k] = true;
    }
}

/* END is Cohere's default. */
static void read_truncate(struct body *b, struct object root, struct texts_ask *ask)
{
    const char *word = body_str(b, root, "truncate", false);
    const struct opt_u64 most = body_u32(b, root, "max_tokens");
    ask->left = word && strcmp(word, "START") == 0;
    ask->truncate = !word || ask->left || strcmp(word, "END") == 0;
    if (!ask->truncate && strcmp(word, "NONE") != 0)
        body_fail(b, root, "truncate", "`truncate` must be NONE, START or END");
    if (most.set && most.v == 0)
        body_fail(b, root, "max_tokens", "`max_tokens` must be positive");
    ask->most = most.set ? (uint32_t)most.v : 0;
}

static void read_texts(struct call *c, struct body *b, struct object root, struct texts_ask *ask)
{
    static const char *const keys[] = {"inputs", "images"};
    bool batch;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (!json_get(b->root, keys[i]))
            continue;
        if (ask->in || json_get(b->root, "texts"))
            body_fail(b, root, keys[i], "`texts`, `inputs` and `images` exclude each other");
        if (!b->failed)
            ask->in = read_items(c, b, keys[i], &ask->n);
    }
    if (!b->failed && !ask->in)
        ask->in = body_texts(b, root, "texts", &ask->n, &batch);
    for (uint32_t i = 0; !b->failed && i < ask->n; i++)
        if (!ask->in[i].text && !ask->in[i].shown)
            body_fail(b, root, "texts", "texts are expected, not ids");
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    const struct object root = body_root(b);
    struct vectors *q = state;
    read_texts(c, b, root, ask);
    q->texts = ask->in;
    read_types(b, root, q);
    read_truncate(b, root, ask);
    q->dimensions = texts_dimensions(c, b, root, "output_dimension", 1);
    const char *kind = body_str(b, root, "input_type", false);
    if (kind) /* classification and clustering have no prompt in most models */
        texts_prompt(c, kind, ask);
    return MOST_TEXTS;
}

static uint32_t read_version_1(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    ((struct vectors *)state)->version = 1;
    return read_options(c, b, ask, state);
}

static uint32_t read_version_2(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    ((struct vectors *)state)->version = 2;
    return read_options(c, b, ask, state);
}

int cohere_embed(struct call *c, int version, struct err *e)
{
    const struct texts_row row = {.tasks = 1u << TASK_EMBED,
                                  .state = sizeof(struct vectors),
                                  .read = version == 1 ? read_version_1 : read_version_2,
                                  .render = render};
    return texts_work(c, &row, e);
}
