#include "router/call/embed_images.h"
#include "common/image/data_url.h"
#include "common/json/json.h"
#include "router/chat/pictures.h"
#include "router/media/media.h"
#include <assert.h>
#include <string.h>

enum { MOST_PARTS = 2048 }; /* of an input */

/* ---------------------------------------------------------------- a prompt of parts */

/* A file in base64 becomes a data: URL; the type is found in the file. */
static const char *url_of(struct call *c, const char *url)
{
    static const char front[] = "data:image/png;base64,";
    const size_t n = strlen(url);
    if (data_url_is(url, n) || strstr(url, "://"))
        return url;
    char *own = arena_alloc(&c->arena, sizeof(front) + n, 1);
    if (own) {
        memcpy(own, front, sizeof(front) - 1);
        memcpy(own + sizeof(front) - 1, url, n + 1);
    }
    return own;
}

static bool has_marker(const struct shown_part *parts, uint32_t n, const char *marker)
{
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].text && strstr(parts[i].text, marker))
            return true;
    return false;
}

/* Joins the texts, with `around` for each image. */
static bool join(struct call *c, const struct shown_part *parts, uint32_t n, const char *around,
                 struct ask *q)
{
    struct buf text = BUF_INIT;
    buf_reserve(&text, 0);
    for (uint32_t i = 0; i < n; i++)
        buf_str(&text, parts[i].text ? parts[i].text : around);
    q->n_inputs = text.len;
    q->inputs = text.oom ? NULL : arena_strdup(&c->arena, text.p, text.len);
    buf_free(&text);
    return q->inputs != NULL;
}

/* A document that is the image of a page has a prompt of the model's own. */
static bool is_page(const struct call *c, const struct shown_part *parts, uint32_t n)
{
    return c->edge->sentence.late.visual && n == 1 && !parts[0].text;
}

bool texts_show(struct call *c, struct body *b, const char *key, const struct shown_part *parts,
                uint32_t n, struct text_input *out)
{
    const struct shown_part page[] = {parts[0], {.text = c->edge->sentence.late.page}};
    if (is_page(c, parts, n))
        parts = page, n = 2;
    else if (c->edge->sentence.late.visual && (n != 1 || !parts[0].text))
        body_fail(b, body_root(b), key,
                  "`%s`: this model embeds a text or one image, not both together", key);
    const struct vision *v = edge_media(c->edge).vision;
    struct ask *q = ARENA_NEW(&c->arena, struct ask, 1);
    struct ask_image *images = ARENA_NEW(&c->arena, struct ask_image, n + (size_t)1);
    bool ok = q && images;
    if (b->failed)
        return false;
    if (ok)
        *q = (struct ask){.style = ASK_OPENAI, .images = images, .add_special_tokens = true};
    for (uint32_t i = 0; ok && i < n; i++) {
        if (parts[i].text)
            continue;
        assert(parts[i].url);
        struct ask_image *to = &images[q->n_images++];
        *to = (struct ask_image){.url = url_of(c, parts[i].url)};
        ok = to->url != NULL;
        to->n_url = ok ? strlen(to->url) : 0;
    }
    const bool placed = ok && v && has_marker(parts, n, vision_marker(v));
    ok = ok && join(c, parts, n, v && !placed ? vision_marker_around(v) : "", q);
    if (!ok)
        body_nomem(b, body_root(b), key);
    else if (q->n_images && !v)
        body_fail(b, body_root(b), key, "image inputs are not supported by this model");
    else if (!q->n_images && !q->n_inputs)
        body_fail(b, body_root(b), key, "`%s` cannot be empty", key);
    else if (q->n_images)
        *out = (struct text_input){.shown = q};
    else
        *out = (struct text_input){.text = q->inputs, .n = q->n_inputs};
    return !b->failed;
}

/* ---------------------------------------------------------------- JSON */

/* A part of the types `text` and `image_url`. False: the body was failed. */
static bool read_part(struct body *b, const char *key, const cJSON *item, struct shown_part *out)
{
    const char *text =
        strcmp(json_str(item, "type", "text"), "text") == 0 ? json_str(item, "text", NULL) : NULL;
    *out = (struct shown_part){text, text ? NULL : picture_url(item)};
    if (!out->text && !out->url)
        body_fail(b, body_root(b), key, "a part of `content` must be a `text` or an `image_url`");
    return !b->failed;
}

bool texts_content(struct call *c, struct body *b, const char *key, const cJSON *content,
                   struct text_input *out)
{
    const int n = cJSON_IsArray(content) ? cJSON_GetArraySize(content) : 0;
    struct shown_part *parts = ARENA_NEW(&c->arena, struct shown_part, (size_t)n + 1), *p = parts;
    const cJSON *item;
    if (!parts) {
        body_nomem(b, body_root(b), key);
        return false;
    }
    if (cJSON_IsString(content))
        *p++ = (struct shown_part){.text = content->valuestring};
    else if (!n || n > MOST_PARTS)
        body_fail(b, body_root(b), key, "`content` must be a text or a list of up to %d parts",
                  MOST_PARTS);
    for (item = json_first(content); item && !b->failed; item = item->next)
        read_part(b, key, item, p++);
    return !b->failed && texts_show(c, b, key, parts, (uint32_t)(p - parts), out);
}

static bool read_object(struct call *c, struct body *b, const char *key, const cJSON *v,
                        struct text_input *out)
{
    const char *text = json_str(v, "text", NULL), *image = json_str(v, "image", NULL);
    struct shown_part parts[2], *p = parts;
    if (json_get(v, "content"))
        return texts_content(c, b, key, json_get(v, "content"), out);
    if (image)
        *p++ = (struct shown_part){.url = image};
    if (text)
        *p++ = (struct shown_part){.text = text};
    if (p == parts)
        body_fail(b, body_root(b), key, "an item of `%s` must have `text`, `image` or `content`",
                  key);
    return !b->failed && texts_show(c, b, key, parts, (uint32_t)(p - parts), out);
}

static bool any_object(const cJSON *list)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        if (cJSON_IsObject(item))
            return true;
    }
    return false;
}

const struct text_input *body_texts_or_images(struct call *c, struct body *b, struct object o,
                                              const char *key, uint32_t *n)
{
    const cJSON *v = json_get(o.json, key), *item;
    bool batch;
    if (!cJSON_IsObject(v) && !(cJSON_IsArray(v) && any_object(v)))
        return body_texts(b, o, key, n, &batch);
    const bool one = cJSON_IsObject(v);
    struct text_input *in =
        ARENA_NEW(&c->arena, struct text_input, one ? 1 : (size_t)cJSON_GetArraySize(v));
    *n = 0;
    if (!in) {
        body_nomem(b, o, key);
        return NULL;
    }
    if (one)
        return read_object(c, b, key, v, &in[(*n)++]) ? in : NULL;
    cJSON_ArrayForEach(item, v)
    {
        struct shown_part text = {.text = cJSON_IsString(item) ? item->valuestring : NULL};
        struct text_input *to = &in[(*n)++];
        if (text.text)
            texts_show(c, b, key, &text, 1, to);
        else if (cJSON_IsObject(item))
            read_object(c, b, key, item, to);
        else
            body_mistyped(b, o, key, item, "a string or an object");
        if (b->failed)
            return NULL;
    }
    return in;
}

/* The parts of `content`, each of which is a document. */
static const struct text_input *each_part(struct call *c, struct body *b, const char *key,
                                          const cJSON *content, uint32_t *n)
{
    const int count = cJSON_IsArray(content) ? cJSON_GetArraySize(content) : 0;
    struct text_input *in = ARENA_NEW(&c->arena, struct text_input, (size_t)count + 1);
    const cJSON *item;
    struct shown_part part;
    if (!in)
        body_nomem(b, body_root(b), key);
    else if (!count)
        body_empty(b, key);
    for (item = json_first(content); item && !b->failed; item = item->next)
        if (read_part(b, key, item, &part))
            texts_show(c, b, key, &part, 1, &in[(*n)++]);
    return b->failed ? NULL : in;
}

static bool any_shown(const cJSON *list)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        if (json_get(item, "image") || json_get(item, "content"))
            return true;
    }
    return false;
}

const struct text_input *body_documents_or_images(struct call *c, struct body *b, struct object o,
                                                  const char *key, uint32_t *n)
{
    const cJSON *v = json_get(o.json, key);
    *n = 0;
    if (cJSON_IsObject(v))
        return each_part(c, b, key, json_get(v, "content"), n);
    return cJSON_IsArray(v) && any_shown(v) ? body_texts_or_images(c, b, o, key, n)
                                            : body_documents(b, o, key, n);
}

struct text_input text_pair(const struct text_input *query, const struct text_input *document)
{
    struct text_input pair = *query;
    pair.first_shown = query->shown;
    pair.second_shown = document->shown;
    pair.second = document->text;
    pair.n_second = document->n;
    pair.shown = NULL;
    return pair;
}
