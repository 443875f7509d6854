#include "router/models/edge.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/vision/vision.h"
#include "router/chat/chat.h"
#include "router/metrics.h"
#include "router/models/models.h"
#include <stdio.h>
#include <string.h>

/* Equal for equal vocabularies: the wire carries ids only, so a client with another tokenizer would
 * not notice. */
static uint64_t hash_vocab(const struct tokenizer *t)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < tokenizer_vocab_size(t); i++) {
        const char *text = tokenizer_token(t, i);
        h = hash_bytes(h, text ? text : "", text ? strlen(text) + 1 : 0);
    }
    return h;
}

void edge_set_text(struct edge *g, const struct tokenizer *t, const struct chat *c)
{
    g->tokenizer = t;
    g->chat = c;
    g->vocab_hash = hash_vocab(t);
}

struct chat *edge_load_chat(const struct router_config *c, const char *dir, const char *config_path,
                            const struct tokenizer *t, struct err *e)
{
    struct chat *chat = chat_load(dir, config_path, t, e);
    if (!chat && config_path && *config_path)
        err_wrap(e, "--tokenizer-config-path");
    if (chat && c->special_tokens_in_messages)
        chat_trust_messages(chat);
    return chat;
}

int edge_load_vision(const char *dir, const struct tokenizer *t, struct chat *c,
                     struct vision **out, struct err *e)
{
    struct err why = ERR_INIT;
    *out = NULL;
    if (vision_load(dir, t, out, &why) != 0)
        LOG(LOG_WARN, "Images are not supported", LOGS("why", why.msg));
    if (!*out)
        return 0;
    const bool videos = vision_takes_videos(*out);
    const struct chat_marks marks = {
        .marker = vision_marker(*out),
        .around = vision_marker_around(*out),
        .video = videos ? vision_video_marker(*out) : NULL,
        .around_video = videos ? vision_video_around(*out) : NULL,
    };
    return chat_see(c, &marks, e);
}

int edge_load_defaults(struct edge *g, const struct router_config *c, const char *dir,
                       struct err *e)
{
    struct buf text = BUF_INIT;
    if (defaults_load(&g->defaults, dir, c->generation_config, c->override_generation_config, e))
        return -1;
    defaults_print(&g->defaults, &text);
    if (text.len)
        LOG(LOG_INFO, "Sampling parameters of requests that set none (except on TGI's routes)",
            LOGS("parameters", text.p));
    buf_free(&text);
    if (*g->defaults.ignored)
        LOG(LOG_WARN, "generation_config.json has members without effect here",
            LOGS("members", g->defaults.ignored));
    return 0;
}

void edge_open(struct edge *g, struct fleet *f)
{
    g->limits = *fleet_limits(f);
    if (g->limits.vocab_size && tokenizer_vocab_size(g->tokenizer) > g->limits.vocab_size)
        LOG(LOG_WARN,
            "the tokenizer has more tokens than the model; a prompt with one of them fails",
            LOGI("tokenizer", tokenizer_vocab_size(g->tokenizer)),
            LOGI("model", g->limits.vocab_size));
    atomic_store(&g->fleet, f);
}

struct startup_view edge_startup(const struct edge *g)
{
    const struct startup_board *b = g->startup;
    uint32_t n = 0;
    while (n < STARTUP_RANKS && startup_seconds(b, n, STARTUP_CONFIG) > 0)
        n++; /* local ranks, from 0 */
    return startup_look(b, 0, n ? n : 1);
}

void edge_publish_startup(const struct edge *g)
{
    static const enum startup_phase own[] = {STARTUP_CONFIG, STARTUP_TOKENIZER, STARTUP_SHARDS};
    char name[48];
    for (int p = STARTUP_CONFIG; g->startup && p < STARTUP_READY; p++) {
        double most = 0;
        for (uint32_t r = 0; r < STARTUP_RANKS; r++) {
            const double s = startup_seconds(g->startup, r, (enum startup_phase)p);
            most = s > most ? s : most;
        }
        if (p != STARTUP_SHARDS)
            metrics_set(g->metrics, M_STARTUP_PHASE, startup_name((enum startup_phase)p), most);
    }
    for (size_t i = 0; g->startup && i < sizeof(own) / sizeof(own[0]); i++) {
        snprintf(name, sizeof(name), "router_%s", startup_name(own[i]));
        metrics_set(g->metrics, M_STARTUP_PHASE, name,
                    startup_seconds(g->startup, STARTUP_ROUTER, own[i]));
    }
    if (g->startup)
        metrics_set(g->metrics, M_STARTUP_PHASE, "ready",
                    startup_seconds(g->startup, STARTUP_ROUTER, STARTUP_READY));
}

const struct infer_limits *edge_limits(const struct edge *g)
{
    static const struct infer_limits none;
    return atomic_load(&g->fleet) ? &g->limits : &none;
}

const char *edge_closed(struct edge *g)
{
    struct fleet *f = atomic_load(&g->fleet);
    return !f                                     ? "the model is being loaded"
           : atomic_load(&edge_home(g)->draining) ? "the server is shutting down"
                                                  : NULL;
}

struct adapter_shelf *edge_adapters(const struct edge *g)
{
    struct fleet *f = atomic_load(&g->fleet);
    return f && g->limits.lists_adapters ? fleet_adapters(f) : NULL;
}

bool edge_has_adapter(const struct edge *g, const char *name)
{
    struct adapter_shelf *a = edge_adapters(g);
    return a && name && adapter_shelf_has(a, name);
}

const char *edge_adapter(struct edge *g, const char *model)
{
    struct adapter_shelf *a = edge_adapters(g);
    if (!model || !*model)
        return NULL;
    if (a && adapter_shelf_knows(a, model))
        return model;
    return edge_limits(g)->runtime_adapters && !models_own_name(g, model) ? model : NULL;
}

struct media edge_media(const struct edge *g)
{
    const struct edge *home = g->home ? g->home : g;
    const struct infer_limits *l = edge_limits(g);
    const bool open = atomic_load(&g->fleet); /* before that, the shards' features are unknown */
    return (struct media){
        .vision = !open || l->takes_images ? g->vision : NULL,
        .decoder = home->decoder,
        .rules = &home->media_rules,
        .max_tokens = open ? l->max_input_tokens : UINT32_MAX,
        .max_whole = g->vision && vision_two_way(g->vision) ? l->max_batch_prefill_tokens : 0,
    };
}

struct validator edge_validator(const struct edge *g)
{
    return (struct validator){
        .tokenizer = g->tokenizer,
        .defaults = &g->defaults,
        .max_best_of = g->config->max_best_of,
        .max_stop_sequences = g->config->max_stop_sequences,
        .max_top_n_tokens = g->config->max_top_n_tokens,
        .compact_json = g->config->json_whitespace == WHITESPACE_COMPACT,
        .no_constraints = g->config->disable_grammar_support,
        .max_input_tokens = g->limits.max_input_tokens,
        .max_total_tokens = g->limits.max_total_tokens,
        .has_encoder = g->limits.has_encoder,
        .decoder_start = g->limits.decoder_start,
        .text_only = !g->limits.takes_input_ids,
        .takes_bias = g->limits.takes_bias,
        .takes_grammars = g->limits.takes_grammars,
        .sampling_fields = g->limits.sampling_fields,
        .adapters = edge_adapters(g),
        .media = edge_media(g),
        .vocab_size =
            g->limits.vocab_size ? g->limits.vocab_size : tokenizer_vocab_size(g->tokenizer),
    };
}

struct infer_config edge_infer_config(struct edge *home)
{
    const struct router_config *c = home->config;
    return (struct infer_config){
        .max_input_tokens = c->max_input_tokens,
        .max_total_tokens = c->max_total_tokens,
        .max_batch_prefill_tokens = c->max_batch_prefill_tokens,
        .max_batch_total_tokens = c->max_batch_total_tokens,
        .max_batch_size = c->max_batch_size,
        .max_waiting_tokens = c->max_waiting_tokens,
        .waiting_served_ratio = c->waiting_served_ratio,
        .target_inter_token_ms = c->target_inter_token_ms,
        .target_inter_token_factor = c->target_inter_token_factor,
        .connect_timeout_ms = c->shard_connect_timeout * 1000,
        .return_ms = c->shard_return_timeout * 1000,
        .failed = &home->failed,
    };
}
