#include "router/call/call.h"
#include <string.h>

static void text(struct buf *out, const char *key, const char *s)
{
    buf_fmt(out, ",\"%s\":", key);
    if (s)
        buf_json_str(out, s, strlen(s));
    else
        buf_str(out, "null");
}

static void number(struct buf *out, const char *key, uint32_t v)
{
    buf_fmt(out, ",\"%s\":%u", key, v);
}

static void labels(struct buf *out, const struct infer_limits *l)
{
    buf_str(out, "{\"id2label\":{");
    for (uint32_t i = 0; i < l->n_labels; i++) {
        buf_fmt(out, "%s\"%u\":", i ? "," : "", i);
        buf_json_str(out, l->labels[i], strlen(l->labels[i]));
    }
    buf_str(out, "},\"label2id\":{");
    for (uint32_t i = 0; i < l->n_labels; i++) {
        buf_str(out, i ? "," : "");
        buf_json_str(out, l->labels[i], strlen(l->labels[i]));
        buf_fmt(out, ":%u", i);
    }
    buf_str(out, "}}");
}

/* In text-embeddings-inference's format. */
static void model_type(struct buf *out, const struct infer_limits *l)
{
    number(out, "max_input_length", l->max_input_tokens);
    number(out, "max_batch_tokens", l->max_batch_prefill_tokens);
    buf_str(out, ",\"model_type\":{");
    const bool embeds = l->task == TASK_EMBED || l->task == TASK_TOKEN_EMBED;
    if (embeds)
        buf_fmt(out, "\"embedding\":{%s\"dimensions\":%u}",
                l->sparse ? "\"pooling\":\"splade\"," : "", l->embed_width);
    else
        buf_str(out, l->task == TASK_RERANK ? "\"reranker\":" : "\"classifier\":");
    if (!embeds)
        labels(out, l);
    buf_ch(out, '}');
}

static void replica(void *arg, const struct replica_view *v)
{
    struct buf *out = arg;
    buf_str(out, out->p[out->len - 1] == '[' ? "" : ",");
    buf_str(out, "{\"name\":");
    buf_json_str(out, v->name, strlen(v->name));
    buf_fmt(out, ",\"state\":\"%s\",\"role\":\"%s\",\"running\":%u,\"waiting\":%u}", v->state,
            v->role, v->stats.running, v->stats.queued);
}

/* Only if there may be several. */
static void replicas(struct buf *out, struct fleet *f)
{
    const size_t before = out->len;
    buf_str(out, ",\"replicas\":[");
    const size_t begun = out->len;
    fleet_each(f, replica, out);
    if (out->len == begun)
        out->len = before;
    else
        buf_ch(out, ']');
}

static void reply(struct call *c)
{
    const struct edge *g = c->edge;
    const struct router_config *f = g->config;
    bool open = atomic_load(&g->fleet) != NULL; /* the limits are final */
    struct buf *out = &c->out;
    buf_str(out, "{\"model_id\":");
    buf_json_str(out, g->model_id, strlen(g->model_id));
    text(out, "model_sha", g->model_sha);
    const bool takes_images = open && edge_media(g).vision;
    const bool answers = g->limits.task <= TASK_GENERATE;
    text(out, "model_pipeline_tag", takes_images && answers ? "image-text-to-text" : NULL);
    text(out, "model_dtype", open ? g->limits.dtype : NULL);
    text(out, "model_device_type", open ? g->limits.device : NULL);
    text(out, "quantize", open && *g->limits.quantize ? g->limits.quantize : NULL);
    text(out, "activations", open && *g->limits.activations ? g->limits.activations : NULL);
    text(out, "matrices", open && *g->limits.matrices ? g->limits.matrices : NULL);
    number(out, "max_concurrent_requests", f->max_concurrent_requests);
    number(out, "max_best_of", f->max_best_of);
    number(out, "max_stop_sequences", f->max_stop_sequences);
    number(out, "max_input_tokens", open ? g->limits.max_input_tokens : f->max_input_tokens);
    number(out, "max_total_tokens", open ? g->limits.max_total_tokens : f->max_total_tokens);
    number(out, "validation_workers", f->validation_workers);
    number(out, "max_client_batch_size", f->max_client_batch_size);
    text(out, "router", "text-generation-router");
    text(out, "version", VERSION);
    text(out, "sha", NULL);
    text(out, "docker_label", NULL);
    if (takes_images)
        buf_str(out, ",\"input_modalities\":[\"text\",\"image\"]");
    if (open && g->limits.task > TASK_GENERATE)
        model_type(out, &g->limits);
    if (open)
        replicas(out, atomic_load(&g->fleet));
    buf_ch(out, '}');
    call_reply(c);
}

const struct route route_info = {
    .method = "GET",
    .paths = {"/info"},
    .summary = "The model and the limits. A model that takes images says so in "
               "`model_pipeline_tag` and `input_modalities`.",
    .access = ACCESS_DESCRIBES,
    .reply = reply,
};
