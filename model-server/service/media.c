#include "model-server/service/media.h"
#include <string.h>

static void refuse(struct seq_spec *spec, struct rpc_mem *m, const struct err *e)
{
    spec->refusal = rpc_mem_strdup(m, e->msg, strlen(e->msg));
    if (!spec->refusal)
        spec->refusal = "out of memory";
}

static struct media_spec *take(struct seq_spec *spec, struct rpc_mem *m, size_t n)
{
    struct media_spec *v = n <= SERVICE_MOST_MEDIA ? RPC_NEW(m, struct media_spec, n + 1) : NULL;
    spec->media = v;
    spec->n_media = 0;
    return v;
}

/* The router has moved the prompt to the first token's medium. */
static int read_encoded(const Generate__V3__Request *q, struct rpc_mem *m, struct seq_spec *spec)
{
    const Generate__V3__Media *p = q->media[0];
    if (q->n_media != 1 || p->position || p->tokens != 1) {
        spec->refusal = "a prompt is one text for the encoder, at the first token";
        return 0;
    }
    struct media_spec *v = take(spec, m, 1);
    if (!v)
        return -1;
    *v = (struct media_spec){
        .ids = p->text, .n_ids = (uint32_t)p->n_text, .tokens = 1, .digest = p->digest};
    if (p->image) {
        v->bytes = p->image->data.data;
        v->n_bytes = p->image->data.len;
    }
    spec->n_media = 1;
    return 0;
}

int encode_prompt(const struct service *s, struct rpc_mem *m, struct seq_spec *spec)
{
    struct media_spec *v = take(spec, m, 1);
    if (!v)
        return -1;
    *v = (struct media_spec){.ids = spec->prompt, .n_ids = spec->n_prompt, .tokens = 1};
    spec->n_media = 1;
    spec->prompt = &s->o.model->start;
    spec->n_prompt = 1;
    return 0;
}

void limit_positions(const struct service *s, struct rpc_mem *m, struct seq_spec *spec)
{
    const struct model_info *i = s->o.model;
    struct err e = ERR_INIT;
    if (!i->answer_positions)
        return;
    const uint32_t n = spec->media[0].n_ids, most = i->answer_positions;
    const uint32_t before = spec->n_prompt - spec->n_generated; /* start, forced tokens */
    const uint32_t left = before < most ? most - before : 0;
    if (n > i->text_positions) {
        err_set(&e, ERR_VALIDATION, "a text of %u tokens: the encoder has %u positions", n,
                i->text_positions);
        refuse(spec, m, &e);
    }
    if (spec->max_new_tokens > left)
        spec->max_new_tokens = left ? left : 1;
}

struct media_spec *media_specs(Generate__V3__Media *const *media, size_t n, struct rpc_mem *m)
{
    struct media_spec *v = RPC_NEW(m, struct media_spec, n + 1);
    for (size_t i = 0; v && i < n; i++) {
        const Generate__V3__Media *p = media[i];
        v[i] =
            (struct media_spec){.position = p->position, .tokens = p->tokens, .digest = p->digest};
        if (p->image) {
            v[i].bytes = p->image->data.data;
            v[i].n_bytes = p->image->data.len;
        }
    }
    return v;
}

int read_media(const struct service *s, const Generate__V3__Request *q, struct rpc_mem *m,
               struct seq_spec *spec)
{
    if (!q->n_media)
        return 0;
    if (s->o.model->attends_text)
        return read_encoded(q, m, spec);
    if (!s->o.vision || q->n_media > SERVICE_MOST_MEDIA) {
        spec->refusal = s->o.vision ? "too many pictures" : "this model reads text only";
        return 0;
    }
    spec->media = media_specs(q->media, q->n_media, m);
    spec->n_media = spec->media ? (uint32_t)q->n_media : 0;
    return spec->media ? 0 : -1;
}

/* ---------------------------------------------------------------- between texts */

/* The template's text around the marker is kept around its replacement. */
static void add_placeholders(const struct vision *v, const struct vision_plan *p, uint32_t nth,
                             struct buf *out)
{
    const char *around = vision_marker_around(v), *marker = vision_marker(v);
    const char *at = strstr(around, marker);
    buf_add(out, around, at ? (size_t)(at - around) : 0);
    vision_expand(v, p, nth, out);
    if (at)
        buf_str(out, at + strlen(marker));
}

static int add_picture(const struct service *s, const Generate__V3__Image *image, uint32_t nth,
                       struct media_spec *to, struct buf *out, struct err *e)
{
    struct image_info info;
    struct vision_plan plan;
    if (image_sniff(image->data.data, image->data.len, &image_default_limits, &info, e) ||
        vision_plan(s->o.vision, info.width, info.height, &plan, e))
        return -1;
    add_placeholders(s->o.vision, &plan, nth, out);
    *to = (struct media_spec){
        .bytes = image->data.data, .n_bytes = image->data.len, .tokens = plan.n_tokens};
    return 0;
}

int join_chunks(const struct service *s, const Generate__V3__Input *in, struct rpc_mem *m,
                struct seq_spec *spec, struct buf *out)
{
    struct err e = ERR_INIT;
    size_t n = 0;
    for (size_t i = 0; i < in->n_chunks; i++)
        n += in->chunks[i]->chunk_case == GENERATE__V3__INPUT_CHUNK__CHUNK_IMAGE;
    if (n > SERVICE_MOST_MEDIA) {
        spec->refusal = "too many pictures";
        return 0;
    }
    struct media_spec *v = take(spec, m, n);
    if (!v)
        return -1;
    for (size_t i = 0; i < in->n_chunks && !spec->refusal; i++) {
        const Generate__V3__InputChunk *c = in->chunks[i];
        if (c->chunk_case == GENERATE__V3__INPUT_CHUNK__CHUNK_TEXT)
            buf_str(out, c->text);
        else if (c->chunk_case == GENERATE__V3__INPUT_CHUNK__CHUNK_IMAGE &&
                 add_picture(s, c->image, spec->n_media, &v[spec->n_media], out, &e))
            refuse(spec, m, &e);
        else if (c->chunk_case == GENERATE__V3__INPUT_CHUNK__CHUNK_IMAGE)
            spec->n_media++;
    }
    return 0;
}

/* So far `tokens` is the number of an image's placeholders; other tokens may lie between them. */
void place_media(const struct service *s, struct seq_spec *spec)
{
    struct media_spec *v = (struct media_spec *)(uintptr_t)spec->media;
    uint32_t at = 0;
    for (uint32_t i = 0; i < spec->n_media; i++) {
        const uint32_t features = v[i].tokens, token = vision_token(s->o.vision);
        while (at < spec->n_prompt && spec->prompt[at] != token)
            at++;
        v[i].position = at;
        for (uint32_t n = 0; at < spec->n_prompt && n < features; at++)
            n += spec->prompt[at] == token;
        v[i].tokens = at - v[i].position;
    }
}
