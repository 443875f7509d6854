/* Creates the components of a router, in order. See serve.h. */
#include "common/clock.h"
#include "common/hub/cache.h"
#include "common/log/log.h"
#include "common/log/stacks.h"
#include "common/process/heartbeat.h"
#include "common/rpc/loop.h"
#include "common/rpc/trace.h"
#include "common/thread/watchdog.h"
#include "common/vision/vision.h"
#include "router/api/lmtp/lmtp.h"
#include "router/call/call.h"
#include "router/chat/chat.h"
#include "router/events/publisher.h"
#include "router/fleet/discover.h"
#include "router/http/keys.h"
#include "router/http/tls.h"
#include "router/http/traffic.h"
#include "router/metrics.h"
#include "router/models/edge.h"
#include "router/models/models.h"
#include "router/serve_impl.h"
#include "router/store/store.h"
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

static bool given(const char *s) { return s && *s; }

static void notify(struct router_service *s, enum service_event n)
{
    atomic_store(&s->event, n);
    (void)eventfd_write(s->event_fd, 1);
}

/* ---------------------------------------------------------------- other threads */

static void *run_loop(void *arg)
{
    struct router_service *s = arg;
    http_run(s->edge.http);
    return NULL;
}

static void on_lost(void *arg, const char *why)
{
    struct router_service *s = arg;
    snprintf(s->why_lost, sizeof(s->why_lost), "%s", why);
    notify(s, LOST);
}

static void *connect_shards(void *arg)
{
    struct router_service *s = arg;
    const struct router_config *c = s->c;
    const char *targets[TARGETS_MOST];
    for (uint32_t i = 0; i < s->targets.n; i++)
        targets[i] = s->targets.v[i];
    struct fleet_config f = {.infer = edge_infer_config(&s->edge),
                             .targets = targets,
                             .n_targets = s->targets.n,
                             .discovery = given(c->replica_discovery) ? c->replica_discovery : NULL,
                             .policy = (enum fleet_policy)c->replica_policy};
    f.infer.metrics = s->edge.metrics;
    f.infer.watchdog = s->edge.watchdog;
    f.infer.draft_target = s->draft_target;
    f.infer.cluster = &s->cluster;
    f.infer.session = s->session;
    f.infer.events = s->kv_events;
    s->fleet = fleet_start(&f, &s->start_error);
    if (s->fleet)
        fleet_on_lost(s->fleet, on_lost, s);
    notify(s, s->fleet ? STARTED : START_FAILED);
    return NULL;
}

/* ---------------------------------------------------------------- start */

static int check(const struct router_config *c, struct err *e)
{
    const char *what = NULL;
    if (c->validation_workers == 0)
        what = "`validation_workers` must be > 0";
    else if (c->max_input_tokens && c->max_total_tokens &&
             c->max_input_tokens >= c->max_total_tokens)
        what = "`max_input_tokens` must be < `max_total_tokens`";
    else if (c->ngrok)
        what = "`ngrok` is not supported";
    else if (given(c->kv_transfer_address) && (c->replica_address.n || given(c->replica_discovery)))
        what = "`kv_transfer_address` is one group's: replicas are services of their own there";
    else if (given(c->root_path) &&
             (*c->root_path != '/' ||
              strspn(c->root_path, HTTP_PREFIX_CHARS) != strlen(c->root_path)))
        what = "`root_path` must be a path such as `/llm`, of letters, digits and `-._~/`";
    else if (given(c->tls_cert) != given(c->tls_key))
        what = "`tls_cert` and `tls_key`: one is missing, HTTPS needs both";
    return what ? err_set(e, ERR_VALIDATION, "Argument validation error: %s", what) : 0;
}

static int load_cluster(struct cluster *out, const struct router_config *c, struct err *e)
{
    const enum cluster_kind kind = cluster_kind_of(&c->cluster);
    const char *draft = c->draft_shard_uds_path;
    if (cluster_flags_check(&c->cluster, e) ||
        (given(c->shard_uds_path) && cluster_allows(kind, c->shard_uds_path, e)) ||
        (given(draft) && cluster_allows(kind, draft, e)) ||
        (given(c->replica_discovery) && discover_check(c->replica_discovery, e)))
        return err_wrap(e, "Argument validation error");
    return cluster_load(out, &c->cluster, e);
}

static void start_log(const struct router_config *c)
{
    enum log_level level = LOG_INFO;
    bool known = log_level_parse(c->log_level, &level);
    log_init("router", level, c->json_output, STDOUT_FILENO);
    if (!known)
        log_msg(LOG_WARN, "unknown log level `%s`: using info", c->log_level);
}

/* Every stream needs a descriptor: raise the limit to the maximum. */
static void raise_file_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
}

static int catch_signals(struct router_service *s, struct err *e)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    /* otherwise SIGHUP, as of a closed terminal, ends the process as usual */
    if (given(s->c->tls_cert))
        sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any thread is created: all inherit the mask */
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return s->signal_fd < 0 || s->event_fd < 0 ? err_sys(e, "signalfd, eventfd") : 0;
}

/* Opens the launcher's board, or a private one. */
static int open_startup(struct router_service *s, struct err *e)
{
    struct edge *g = &s->edge;
    int fd = -1;
    g->startup =
        s->c->startup_fd ? startup_board_map((int)s->c->startup_fd, e) : startup_board_new(&fd, e);
    if (fd >= 0)
        close(fd);
    startup_begin(g->startup, STARTUP_ROUTER, STARTUP_CONFIG);
    return g->startup ? 0 : -1;
}

static int load_model(struct router_service *s, struct err *e)
{
    const struct router_config *c = s->c;
    int64_t t = clock_ms();
    startup_begin(s->edge.startup, STARTUP_ROUTER, STARTUP_TOKENIZER);
    if (!(s->dir = hub_resolve_model(c->tokenizer_name, c->revision, c->mmproj, e)) ||
        !(s->tokenizer = tokenizer_load(s->dir, e)) ||
        sentence_load(&s->edge.sentence, s->dir, e) || edge_load_defaults(&s->edge, c, s->dir, e) ||
        !(s->chat = edge_load_chat(c, s->dir, c->tokenizer_config_path, s->tokenizer, e)) ||
        edge_load_vision(s->dir, s->tokenizer, s->chat, &s->vision, e) != 0)
        return -1;
    malloc_trim(0); /* the texts of the files */
    LOG(LOG_INFO, "Tokenizer loaded", LOGS("folder", s->dir),
        LOGI("vocabulary", tokenizer_vocab_size(s->tokenizer)), LOGI("ms", clock_ms() - t));
    return 0;
}

/* Splits --allowed-media-domains into a list terminated by NULL. */
static int split_domains(struct router_service *s, struct err *e)
{
    size_t n = 2;
    for (const char *p = s->c->allowed_media_domains; *p; p++)
        n += *p == ',';
    s->domains = calloc(n, sizeof(*s->domains));
    s->domain_text = strdup(s->c->allowed_media_domains);
    if (!s->domains || !s->domain_text)
        return err_nomem(e);
    char *save = NULL, *host = strtok_r(s->domain_text, ", ", &save);
    for (size_t i = 0; host; host = strtok_r(NULL, ", ", &save))
        s->domains[i++] = host;
    return 0;
}

/* Opens the image decoder, shared by all models. */
static int open_media(struct router_service *s, struct err *e)
{
    enum { DECODE_MS = 10000, FETCH_MS = 10000 };
    const struct router_config *c = s->c;
    struct edge *g = &s->edge;
    const struct image_decoder_options o = {.limits = image_default_limits,
                                            .timeout_ms = DECODE_MS};
    g->media_rules = (struct media_rules){
        .max_images = c->max_images,
        .max_pixels = c->max_image_pixels,
        .fetches = c->allow_image_urls || given(c->allowed_media_domains),
        .fetch = {.max_bytes = c->max_image_fetch_size, .timeout_ms = FETCH_MS},
        .fetching = &g->fetching,
        .most_fetching = c->validation_workers > 2 ? c->validation_workers - 1 : 1,
    };
    if (given(c->allowed_media_domains) && split_domains(s, e) != 0)
        return -1;
    g->media_rules.fetch.domains = s->domains;
    return (g->decoder = image_decoder_new(&o, e)) ? 0 : -1;
}

static void on_spans(void *arg, enum trace_fate fate, uint64_t n)
{
    static const char *const words[] = {"sent", "dropped", "lost"};
    metrics_add(((struct edge *)arg)->metrics, M_TRACE_SPANS, words[fate], (double)n);
}

static int build_edge(struct router_service *s, struct err *e)
{
    const struct router_config *c = s->c;
    struct edge *g = &s->edge;
    g->config = c;
    edge_set_text(g, s->tokenizer, s->chat);
    g->vision = s->vision;
    g->model_id = c->served_model_name ? c->served_model_name : c->tokenizer_name;
    g->compute_type = c->compute_type;
    g->started_unix = (int64_t)time(NULL);
    snprintf(g->fingerprint, sizeof(g->fingerprint), "%s-native", VERSION);
    snprintf(g->engine_id, sizeof(g->engine_id), "%016llx%016llx", (unsigned long long)seed_draw(),
             (unsigned long long)seed_draw());
    admission_init(&g->admission, c->max_concurrent_requests);
    if (!(g->metrics = router_metrics_new()) || !(g->traffic = traffic_new()))
        return err_nomem(e);
    struct tracer_options t = {.endpoint = c->otlp_endpoint,
                               .service_name = c->otlp_service_name,
                               .count = on_spans,
                               .arg = g};
    if (given(c->otlp_endpoint) && !(g->tracer = tracer_new(&t, e)))
        return -1;
    const struct store_options store = {.folder = c->response_store,
                                        .max_bytes = c->response_store_bytes,
                                        .max_count = c->response_store_count,
                                        .ttl_s = c->response_store_ttl};
    if (given(c->response_store) && !(g->store = store_open(&store, e)))
        return -1;
    if (open_media(s, e) != 0)
        return -1;
    if (!(g->workers = workers_new(c->validation_workers, e)))
        return -1;
    if (keys_load(&s->keys, c->api_key, c->api_key_file, e) != 0)
        return -1;
    g->has_keys = s->keys.n > 0;
    if (given(c->tls_cert) && !(s->tls = tls_new(c->tls_cert, c->tls_key, e)))
        return -1;
    if (!(g->lmtp = lmtp_new(g, e)))
        return -1;
    struct http_config h = {
        .hostname = c->hostname,
        .root_path = c->root_path,
        .port = (uint16_t)c->port,
        .max_body = c->payload_limit,
        .keys = &s->keys,
        .keys_for_all = c->api_key_all_routes,
        .tls = s->tls,
        .origins = c->cors_allow_origin.v,
        .n_origins = c->cors_allow_origin.n,
        .events = call_events,
        .arg = g,
    };
    h.events.socket = lmtp_adopt;
    if (!(g->http = http_new(&h, e)))
        return -1;
    return !c->models_folder || (g->models = models_new(g, e)) ? 0 : -1;
}

static char *shard_target(const char *path)
{
    char *s = NULL;
    bool address = !strncmp(path, "tcp://", 6) || !strncmp(path, "unix:", 5);
    return asprintf(&s, "%s%s", address ? "" : "unix:", path) < 0 ? NULL : s;
}

static int name_replicas(struct router_service *s, struct err *e)
{
    const struct router_config *c = s->c;
    char *first = given(c->shard_uds_path) ? shard_target(c->shard_uds_path) : NULL;
    int rc = 0;
    if (given(c->shard_uds_path))
        rc = first ? targets_add(&s->targets, first, s->cluster.kind, e) : err_nomem(e);
    free(first);
    for (uint32_t i = 0; rc == 0 && i < c->replica_address.n; i++)
        rc = targets_add(&s->targets, c->replica_address.v[i], s->cluster.kind, e);
    if (rc == 0 && s->targets.n == 0 && !given(c->replica_discovery))
        rc = err_set(e, ERR_VALIDATION, "no shards are named: see --master-shard-uds-path");
    return rc ? err_wrap(e, "Argument validation error") : 0;
}

/* Logs the state for a watchdog that detected a stall. */
static void log_state(void *arg)
{
    struct edge *g = arg;
    struct fleet *f = atomic_load(&g->fleet);
    struct infer_stats t = f ? fleet_stats(f) : (struct infer_stats){0};
    LOG(LOG_ERROR, "State of the router", LOGI("requests", atomic_load(&g->live)),
        LOGI("permits_held", admission_held(&g->admission)),
        LOGI("draining", atomic_load(&g->draining)));
    LOG(LOG_ERROR, "State of the scheduler", LOGI("queued", t.queued), LOGI("running", t.running),
        LOGI("blocks_total", t.blocks_total), LOGI("blocks_used", t.blocks_used),
        LOGI("blocks_cached", t.blocks_cached), LOGI("swap_used", t.swap_used),
        LOGD("model_call_seconds", (double)t.call_ns / 1e9));
}

/* The scheduler thread is added in fleet_start(). */
static int watch(struct edge *g, struct err *e)
{
    if (!g->config->watchdog_seconds)
        return 0;
    if (!(g->watchdog = watchdog_new(g->config->watchdog_seconds * 1000, log_state, g, e)))
        return -1;
    watchdog_add(g->watchdog, "HTTP thread", http_busy(g->http));
    return watchdog_start(g->watchdog, e);
}

int service_start(struct router_service *s, struct err *e)
{
    start_log(s->c);
    stacks_init();
    rpc_loop_log();
    raise_file_limit();
    if (check(s->c, e) != 0 || heartbeat_start(s->c->heartbeat_fd, e) != 0 ||
        load_cluster(&s->cluster, s->c, e) != 0 || name_replicas(s, e) != 0 ||
        rpc_session_draw(s->session, e) != 0 || catch_signals(s, e) != 0 ||
        open_startup(s, e) != 0 || load_model(s, e) != 0 || build_edge(s, e) != 0)
        return -1;
    if (given(s->c->draft_shard_uds_path) &&
        !(s->draft_target = shard_target(s->c->draft_shard_uds_path)))
        return err_nomem(e);
    if (given(s->c->kv_events_config) &&
        kv_publisher_open(s->c->kv_events_config, &s->kv_events, e) != 0)
        return -1;
    if (watch(&s->edge, e) != 0 || lmtp_start(s->edge.lmtp, e) != 0)
        return -1;
    startup_begin(s->edge.startup, STARTUP_ROUTER, STARTUP_SHARDS);
    s->looping = pthread_create(&s->loop, NULL, run_loop, s) == 0;
    s->starting = s->looping && pthread_create(&s->starter, NULL, connect_shards, s) == 0;
    if (!s->starting)
        return err_set(e, ERR_SYSTEM, "cannot start threads");
    LOG(LOG_INFO, "Listening", LOGS("hostname", s->c->hostname),
        LOGI("port", http_port(s->edge.http)), LOGS("tls", s->tls ? "yes" : "no"),
        LOGS("shards", s->targets.n ? s->targets.v[0] : s->c->replica_discovery));
    return 0;
}

void service_free(struct router_service *s)
{
    struct edge *g = &s->edge;
    kv_publisher_close(s->kv_events);
    store_close(g->store);
    workers_free(g->workers);
    lmtp_free(g->lmtp);
    http_free(g->http);
    tls_free(s->tls);
    cluster_free(&s->cluster);
    tracer_free(g->tracer);
    models_free(g->models);
    watchdog_free(g->watchdog);
    admission_free(&g->admission);
    keys_free(&s->keys);
    metrics_free(g->metrics);
    traffic_free(g->traffic);
    startup_board_free(g->startup);
    sentence_free(&g->sentence);
    defaults_free(&g->defaults);
    image_decoder_free(g->decoder);
    free(s->domains);
    free(s->domain_text);
    chat_free(s->chat);
    vision_free(s->vision);
    tokenizer_free(s->tokenizer);
    free(s->draft_target);
    free(s->dir);
    if (s->signal_fd >= 0)
        close(s->signal_fd);
    if (s->event_fd >= 0)
        close(s->event_fd);
}
