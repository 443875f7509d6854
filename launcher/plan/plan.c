#include "launcher/plan/plan.h"
#include "common/flag/env.h"
#include <stdarg.h>
#include <string.h>

/* sizeof(sockaddr_un.sun_path) - 1, without "-draft-<rank>" and ".lock" */
enum { UDS_PREFIX_MAX = 107 - 16 };

static char *format(struct arena *a, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return n < 0 || (size_t)n >= sizeof(text) ? NULL : arena_strdup(a, text, (size_t)n);
}

/* A NULL word (out of memory, too long) sets cap to SIZE_MAX; done() checks this once. */
static void add(struct arena *a, struct words *w, const char *word)
{
    if (w->cap == SIZE_MAX)
        return;
    if (w->n + 2 > w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 64;
        char **v = ARENA_NEW(a, char *, cap);
        if (v && w->n)
            memcpy(v, w->v, w->n * sizeof(*v));
        w->v = v;
        w->cap = v ? cap : SIZE_MAX;
    }
    char *copy = word && w->v ? arena_strdup(a, word, strlen(word)) : NULL;
    if (!copy) {
        w->cap = SIZE_MAX;
        return;
    }
    w->v[w->n++] = copy;
    w->v[w->n] = NULL;
}

static int done(const struct command *c, struct err *e)
{
    if (c->argv.cap != SIZE_MAX && c->env.cap != SIZE_MAX)
        return 0;
    err_nomem(e);
    return err_wrap(e, "command line of %s", c->program);
}

static bool named(const char *entry, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(entry, name, n) && entry[n] == '=';
}

/* The last entry applies: a variable set again replaces the inherited one. */
static void set_env(struct arena *a, struct command *c, const char *name, const char *value)
{
    const size_t n = strlen(name), v = value ? strlen(value) : 0;
    char *entry = value ? ARENA_NEW(a, char, n + v + 2) : NULL; /* of any length: a list of keys */
    if (entry)
        snprintf(entry, n + v + 2, "%s=%s", name, value);
    for (size_t i = 0; c->env.cap != SIZE_MAX && i < c->env.n; i++)
        if (named(c->env.v[i], name)) {
            c->env.v[i] = c->env.v[--c->env.n];
            c->env.v[c->env.n] = NULL;
            break;
        }
    add(a, &c->env, entry);
}

/* The launcher passes its own settings by command line. The inherited LOG_LEVEL (a filter
 * expression) and HOSTNAME (set by every container) would be misread. The service manager's
 * variables are for the launcher only (notify.h). */
static bool inherited(const char *entry)
{
    static const char *const own[] = {"LOG_LEVEL",     "HOSTNAME",      "API_KEY",
                                      "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (named(entry, own[i]))
            return false;
    return true;
}

static void begin(const struct plan *p, struct command *c, const char *program)
{
    *c = (struct command){.program = program};
    add(p->arena, &c->argv, program);
    for (char *const *v = p->environ; v && *v; v++)
        if (inherited(*v))
            add(p->arena, &c->env, *v);
}

static void option(const struct plan *p, struct command *c, const char *name, const char *value)
{
    add(p->arena, &c->argv, format(p->arena, "--%s", name));
    if (value)
        add(p->arena, &c->argv, value);
}

/* Adds every option with a value whose tag includes `who`. */
static void options(const struct plan *p, struct command *c, unsigned children)
{
    for (const struct flag *f = launcher_flags.flags; f->name; f++) {
        struct buf text = BUF_INIT;
        if ((f->tag & children) && flag_text(f, p->cfg, &text))
            option(p, c, f->name, f->type == FLAG_BOOL ? NULL : text.p);
        buf_free(&text);
    }
}

static void variables(const struct plan *p, struct command *c, unsigned children)
{
    char name[64];
    for (const struct flag *f = launcher_flags.flags; f->name; f++) {
        struct buf text = BUF_INIT;
        flag_env_name(f, name);
        if ((f->tag & children) && flag_text(f, p->cfg, &text))
            set_env(p->arena, c, name, text.p);
        buf_free(&text);
    }
}

static void number_variable(const struct plan *p, struct command *c, const char *name, uint32_t v)
{
    set_env(p->arena, c, name, format(p->arena, "%u", v));
}

static const char *environment(const struct plan *p, const char *name)
{
    for (char *const *v = p->environ; v && *v; v++)
        if (named(*v, name))
            return *v + strlen(name) + 1;
    return NULL;
}

/* HF_API_TOKEN is the name in older deployments. */
static void hub_token(const struct plan *p, struct command *c)
{
    const char *token = environment(p, "HF_API_TOKEN");
    if (token && !environment(p, "HF_TOKEN"))
        set_env(p->arena, c, "HF_TOKEN", token);
}

/* `id`, `id@revision`, `name=id`, `name=id@revision`; validated by the shard. */
static int add_source(struct plan *p, const char *item, struct err *e)
{
    const char *id = strchr(item, '=') ? strchr(item, '=') + 1 : item;
    size_t n = strcspn(id, "@");
    struct source *s = &p->sources[p->n_sources++];
    s->id = arena_strdup(p->arena, id, n);
    s->flag = "--lora-adapters";
    s->revision = id[n] ? arena_strdup(p->arena, id + n + 1, strlen(id + n + 1)) : NULL;
    return s->id && (s->revision || !id[n]) ? 0 : err_nomem(e);
}

static int add_sources(struct plan *p, struct err *e)
{
    const struct flag_list *adapters = &p->cfg->lora_adapters;
    if (!(p->sources = ARENA_NEW(p->arena, struct source, adapters->n + (size_t)2)))
        return err_nomem(e);
    p->sources[p->n_sources++] = (struct source){p->cfg->model_id, p->cfg->revision, NULL};
    if (p->cfg->draft_model_id)
        p->sources[p->n_sources++] =
            (struct source){p->cfg->draft_model_id, NULL, "--draft-model-id"};
    for (uint32_t i = 0; i < adapters->n; i++)
        if (add_source(p, adapters->v[i], e))
            return -1;
    return 0;
}

static const char *socket_prefix(const struct config *cfg, struct arena *a)
{
    const char *path = cfg->shard_uds_path;
    if (!path)
        return format(a, "/tmp/text-generation-server-%u", cfg->port);
    return strncmp(path, "unix://", 7) ? path : path + 7;
}

int plan_init(struct plan *p, const struct config *cfg, const char *group, char *const *env,
              struct arena *a, uint32_t cores, struct err *e)
{
    *p = (struct plan){.cfg = cfg, .environ = env, .arena = a, .group = group, .log_level = "info"};
    p->n = cfg->num_shard / cfg->nnodes;
    p->first = p->n * cfg->node_rank;
    p->draft_threads = cfg->draft_threads ? cfg->draft_threads : cores / 4 ? cores / 4 : 1;
    if (cfg->draft_model_id && cfg->device != DEVICE_CUDA && cores > p->draft_threads)
        cores -= p->draft_threads;
    p->threads = cfg->threads ? cfg->threads : cores / p->n / (cfg->replicas ? cfg->replicas : 1);
    if (!p->threads)
        p->threads = 1;
    p->uds_path = socket_prefix(cfg, a);
    if (!p->uds_path)
        return err_nomem(e);
    p->draft_uds_path = format(a, "%s-draft", p->uds_path);
    p->draft_group = format(a, "%s-draft", p->group);
    if (!p->draft_uds_path || !p->draft_group)
        return err_nomem(e);
    if (!*p->uds_path || strlen(p->uds_path) > UDS_PREFIX_MAX)
        return err_set(e, ERR_VALIDATION,
                       "Invalid argument: `shard_uds_path` must have 1 to %d bytes",
                       UDS_PREFIX_MAX);
    return add_sources(p, e);
}

void plan_other(const struct plan *base, const char *model_id, const char *uds_path,
                const char *group, struct config *cfg, struct arena *a, struct plan *out)
{
    *cfg = *base->cfg;
    cfg->model_id = model_id;
    cfg->revision = NULL;
    cfg->mmproj = NULL;
    cfg->rope_scaling = cfg->task = cfg->pooling = cfg->cutoff_layer = 0;
    cfg->rope_factor = 0;
    cfg->lora_adapters = (struct flag_list){0};
    cfg->max_runtime_adapters = 0;
    cfg->weights_cache = NULL;
    cfg->kv_transfer_address = NULL;
    *out = *base;
    out->cfg = cfg;
    out->arena = a;
    out->startup_fd = 0;
    out->uds_path = uds_path;
    out->group = group;
}

/* Replicas share the host memory: each may use its part of a single service's limit. */
static void share_memory(struct config *c)
{
    c->cuda_memory_fraction /= c->replicas;
    if (c->kv_cache_memory <= 1) /* a fraction, not bytes */
        c->kv_cache_memory /= c->replicas;
}

void plan_replica(const struct plan *base, uint32_t k, const struct share *part, struct config *cfg,
                  struct arena *a, struct plan *out)
{
    const cpu_set_t *cores = CPU_COUNT(&part->cores) ? &part->cores : NULL;
    const char *devices = *part->devices ? part->devices : NULL;
    const uint32_t n = cores ? (uint32_t)CPU_COUNT(cores) / base->n : base->threads;
    *cfg = *base->cfg;
    if (!devices)
        share_memory(cfg);
    *out = *base;
    out->cfg = cfg;
    out->arena = a;
    out->uds_path = format(a, "%s-r%u", base->uds_path, k);
    out->group = format(a, "%s-r%u", base->group, k);
    out->startup_fd = k ? 0 : base->startup_fd; /* only the first one's progress is shown */
    out->cores = cores;
    out->devices = devices;
    if (!cfg->threads && n < base->threads)
        out->threads = n ? n : 1;
    cfg->master_port += k * base->n;
}

const char *plan_socket(const struct plan *p, uint32_t rank)
{
    return format(p->arena, "%s-%u", p->uds_path, rank);
}

const char *plan_first_address(const struct config *cfg, struct arena *a)
{
    const char *prefix = socket_prefix(cfg, a);
    const uint32_t rank = cfg->num_shard / cfg->nnodes * cfg->node_rank;
    if (!prefix)
        return NULL;
    return format(a, "unix:%s%s-%u", prefix, cfg->replicas > 1 ? "-r0" : "", rank);
}

bool plan_restarts(const struct plan *p) { return p->cfg->max_shard_restarts > 0; }

/* In seconds, as long as loading may take; a day means no limit. */
static uint32_t return_timeout(const struct plan *p)
{
    enum { DAY = 86400 };
    uint32_t t = p->cfg->startup_timeout;
    return t && t < DAY ? t : DAY;
}

int plan_download(const struct plan *p, uint32_t i, struct command *c, struct err *e)
{
    const struct source *s = &p->sources[i];
    begin(p, c, "model-server");
    add(p->arena, &c->argv, "download-weights");
    add(p->arena, &c->argv, s->id);
    if (s->revision && *s->revision)
        option(p, c, "revision", s->revision);
    option(p, c, "extension", ".safetensors");
    option(p, c, "logger-level", p->log_level);
    option(p, c, "json-output", NULL);
    options(p, c, TO_DOWNLOAD);
    variables(p, c, TO_DOWNLOAD_ENV);
    if (i) /* for the model only */
        set_env(p->arena, c, "WEIGHTS_CACHE_OVERRIDE", "");
    hub_token(p, c);
    return done(c, e);
}

/* CUDA_GRAPHS contains real sizes only; `--cuda-graphs 0` leaves none, which must also hide an
 * inherited list. */
static void cuda_graphs(const struct plan *p, struct command *c)
{
    struct buf sizes = BUF_INIT;
    const struct flag_list *l = &p->cfg->cuda_graphs;
    for (uint32_t i = 0; i < l->n; i++)
        if (strcmp(l->v[i], "0") != 0)
            buf_fmt(&sizes, "%s%s", sizes.len ? "," : "", l->v[i]);
    set_env(p->arena, c, "CUDA_GRAPHS", sizes.len ? sizes.p : "0");
    buf_free(&sizes);
}

static void startup_board(const struct plan *p, struct command *c)
{
    if ((c->keep_fds[0] = p->startup_fd))
        option(p, c, "startup-fd", format(p->arena, "%d", p->startup_fd));
}

int plan_shard(const struct plan *p, uint32_t rank, struct command *c, struct err *e)
{
    const struct config *cfg = p->cfg;
    begin(p, c, "model-server");
    add(p->arena, &c->argv, "serve");
    add(p->arena, &c->argv, cfg->model_id);
    option(p, c, "uds-path", p->uds_path);
    option(p, c, "logger-level", p->log_level);
    option(p, c, "json-output", NULL);
    if (cfg->num_shard > 1)
        option(p, c, "sharded", NULL);
    option(p, c, "threads", format(p->arena, "%u", p->threads));
    c->cores = p->cores;
    startup_board(p, c);
    options(p, c, TO_SHARD);
    if (cfg->max_batch_prefill_tokens)
        option(p, c, "max-batch-prefill-tokens",
               format(p->arena, "%u", cfg->max_batch_prefill_tokens));
    variables(p, c, TO_SHARD_ENV);
    cuda_graphs(p, c);
    number_variable(p, c, "RANK", rank);
    number_variable(p, c, "WORLD_SIZE", cfg->num_shard);
    number_variable(p, c, "MASTER_PORT", cfg->master_port);
    set_env(p->arena, c, "MASTER_ADDR", cfg->master_addr);
    set_env(p->arena, c, "SHARD_GROUP", p->group);
    if (p->devices)
        set_env(p->arena, c, "CUDA_VISIBLE_DEVICES", p->devices);
    if (cfg->prefill_logprobs)
        set_env(p->arena, c, "REQUEST_LOGPROBS", "1");
    hub_token(p, c);
    return done(c, e);
}

int plan_shard_again(const struct plan *p, uint32_t rank, struct command *c, struct err *e)
{
    if (plan_shard(p, rank, c, e))
        return -1;
    option(p, c, "skip-missing-adapters", NULL);
    return done(c, e);
}

int plan_dry_run(const struct plan *p, uint32_t rank, struct command *c, struct err *e)
{
    if (plan_shard(p, rank, c, e))
        return -1;
    option(p, c, "dry-run", NULL);
    return done(c, e);
}

int plan_probe(const struct plan *p, uint32_t rank, struct command *c, struct err *e)
{
    begin(p, c, "/proc/self/exe");
    add(p->arena, &c->argv, "health");
    add(p->arena, &c->argv, format(p->arena, "unix:%s", plan_socket(p, rank)));
    add(p->arena, &c->argv, format(p->arena, "%u", p->cfg->startup_timeout));
    return done(c, e);
}

/* Replicas on this machine, and those named by the user. */
static void replica_addresses(const struct plan *p, struct command *c)
{
    const struct config *cfg = p->cfg;
    struct buf more = BUF_INIT;
    const char *first = plan_socket(p, 0);
    if (cfg->replicas != 1)
        first = cfg->replicas ? format(p->arena, "%s-r0-0", p->uds_path) : "";
    option(p, c, "master-shard-uds-path", first);
    for (uint32_t k = 1; k < cfg->replicas; k++)
        buf_fmt(&more, "%s%s-r%u-0", more.len ? "," : "", p->uds_path, k);
    for (uint32_t i = 0; i < cfg->replica_address.n; i++)
        buf_fmt(&more, "%s%s", more.len ? "," : "", cfg->replica_address.v[i]);
    if (more.len)
        option(p, c, "replica-address", more.p);
    buf_free(&more);
}

int plan_router(const struct plan *p, struct command *c, struct err *e)
{
    const struct config *cfg = p->cfg;
    begin(p, c, "router");
    option(p, c, "tokenizer-name", cfg->model_id);
    replica_addresses(p, c);
    option(p, c, "shard-connect-timeout", format(p->arena, "%u", return_timeout(p)));
    if (plan_restarts(p))
        option(p, c, "shard-return-timeout", format(p->arena, "%u", return_timeout(p)));
    if (cfg->draft_model_id)
        option(p, c, "draft-shard-uds-path", format(p->arena, "%s-0", p->draft_uds_path));
    option(p, c, "hostname", flags_bind_address(cfg->hostname));
    option(p, c, "json-output", NULL); /* for relog.c; --json-output selects what the user sees */
    options(p, c, TO_ROUTER);
    startup_board(p, c);
    if ((c->keep_fds[1] = p->router_fd))
        option(p, c, "launcher-fd", format(p->arena, "%d", p->router_fd));
    set_env(p->arena, c, "LOG_LEVEL", p->log_level);
    if (cfg->api_key)
        set_env(p->arena, c, "API_KEY", cfg->api_key);
    variables(p, c, TO_ROUTER_ENV);
    hub_token(p, c);
    return done(c, e);
}
