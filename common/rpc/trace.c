/* The exporter. The thread that adds a span to the empty box arms the timer that empties it, so an
 * idle tracer has no wake-ups. One Export call is in flight at a time; the next timer or its
 * completion sends the rest. Everything below "tracer thread" runs there. */
#include "common/rpc/trace.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/rpc/client.h"
#include "common/rpc/pack.h"
#include "common/thread/mailbox.h"
#include "common/utf8.h"
#include "proto/otlp.pb-c.h"
#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUEUE_DEFAULT = 8192,
    BATCH = 512,
    GATHER_MS = 250,
    CALL_MS = 3000,
    AGAIN_MS = 1000,
    TRIES = 5,
    NAME_MAX_LEN = 256,
};

struct trace_node { /* one encoded span */
    struct mail mail;
    size_t n;
    uint8_t bytes[];
};

struct tracer {
    struct tracer_options o;
    char *service, *target;
    struct mailbox box;
    _Atomic size_t waiting;
    struct rpc_loop *loop;
    struct rpc_client *client;
    void *method;
    pthread_t thread;
    struct rpc_op timer, again, bell;
    /* used by the tracer thread */
    struct mail *first, **last;
    struct rpc_unary call;
    grpc_byte_buffer *batch; /* kept until delivered */
    size_t n_batch;
    unsigned tries;
    bool busy, stopping, failing;
    struct rpc_mem mem;
};

/* ---------------------------------------------------------------- encoding, any thread */

struct encoder {
    Otlp__Span span;
    Otlp__Span__Event event, *events[1];
    Otlp__Status status;
    Otlp__KeyValue kv[TRACE_ATTRS_MAX], *kvs[TRACE_ATTRS_MAX];
    Otlp__AnyValue value[TRACE_ATTRS_MAX];
    Otlp__ArrayValue list;
    Otlp__StringValue item[TRACE_ATTRS_MAX], *items[TRACE_ATTRS_MAX];
};

/* Collectors reject a whole batch for one invalid string. */
static char *clean(const char *s)
{
    return (char *)(uintptr_t)(s && utf8_valid(s, strlen(s)) ? s : "(not UTF-8)");
}

static void encode_list(struct encoder *c, const struct trace_attr *a)
{
    otlp__array_value__init(&c->list);
    c->list.values = c->items;
    for (size_t i = 0; i < a->n && i < TRACE_ATTRS_MAX; i++) {
        otlp__string_value__init(&c->item[i]);
        c->item[i].string_value = clean(a->list[i]);
        c->items[c->list.n_values++] = &c->item[i];
    }
}

static void encode_attr(struct encoder *c, size_t i, const struct trace_attr *a)
{
    Otlp__AnyValue *v = &c->value[i];
    otlp__any_value__init(v);
    otlp__key_value__init(&c->kv[i]);
    switch (a->type) {
    case TRACE_STR:
        v->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
        v->string_value = clean(a->str);
        break;
    case TRACE_INT:
        v->value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
        v->int_value = a->i;
        break;
    case TRACE_NUM:
        v->value_case = OTLP__ANY_VALUE__VALUE_DOUBLE_VALUE;
        v->double_value = a->num;
        break;
    case TRACE_LIST: /* at most one list per span */
        v->value_case = OTLP__ANY_VALUE__VALUE_ARRAY_VALUE;
        encode_list(c, a);
        v->array_value = &c->list;
        break;
    }
    c->kv[i].key = (char *)(uintptr_t)a->key;
    c->kv[i].value = v;
    c->kvs[i] = &c->kv[i];
}

static int64_t monotonic_to_unix(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - clock_ns();
}

static bool nonzero(const uint8_t p[8])
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v != 0;
}

static void encode(struct encoder *c, const struct trace_span *s)
{
    int64_t offset = monotonic_to_unix();
    Otlp__Span *o = &c->span;
    otlp__span__init(o);
    o->trace_id = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)s->self.trace_id};
    o->span_id = (ProtobufCBinaryData){8, (uint8_t *)(uintptr_t)s->self.span_id};
    if (nonzero(s->parent))
        o->parent_span_id = (ProtobufCBinaryData){8, (uint8_t *)(uintptr_t)s->parent};
    if (s->state)
        o->trace_state = clean(s->state);
    o->name = clean(s->name);
    o->kind = (Otlp__Span__SpanKind)s->kind;
    o->start_time_unix_nano = (uint64_t)(s->start_ns + offset);
    o->end_time_unix_nano = (uint64_t)(s->end_ns + offset);
    o->flags = s->self.sampled;
    o->attributes = c->kvs;
    for (; o->n_attributes < s->n_attrs; o->n_attributes++)
        encode_attr(c, o->n_attributes, &s->attr[o->n_attributes]);
    if (s->event) {
        otlp__span__event__init(&c->event);
        c->event.name = (char *)(uintptr_t)s->event;
        c->event.time_unix_nano = (uint64_t)(s->event_ns + offset);
        c->events[0] = &c->event;
        o->events = c->events;
        o->n_events = 1;
    }
    if (s->error) {
        otlp__status__init(&c->status);
        c->status.code = OTLP__STATUS__STATUS_CODE__STATUS_CODE_ERROR;
        c->status.message = clean(s->error);
        o->status = &c->status;
    }
}

static void count(struct tracer *t, enum trace_fate fate, size_t n)
{
    if (t->o.count && n)
        t->o.count(t->o.arg, fate, n);
}

void tracer_add(struct tracer *t, const struct trace_span *s)
{
    struct encoder c;
    if (!t || !s->self.sampled)
        return;
    if (atomic_fetch_add(&t->waiting, 1) >= t->o.queue) {
        atomic_fetch_sub(&t->waiting, 1);
        count(t, TRACE_FULL, 1);
        return;
    }
    encode(&c, s);
    size_t n = otlp__span__get_packed_size(&c.span);
    struct trace_node *x = malloc(sizeof(*x) + n);
    if (!x) {
        atomic_fetch_sub(&t->waiting, 1);
        count(t, TRACE_FULL, 1);
        return;
    }
    x->n = otlp__span__pack(&c.span, x->bytes);
    if (mailbox_put(&t->box, &x->mail))
        rpc_after(t->loop, GATHER_MS, &t->timer);
}

/* ---------------------------------------------------------------- tracer thread */

/* The timer is armed exactly while the box is not empty. */
static bool armed(struct tracer *t) { return atomic_load(&t->box.top) != NULL; }

static void stop_when_idle(struct tracer *t)
{
    if (!t->stopping || t->busy || armed(t))
        return;
    rpc_client_free(t->client);
    t->client = NULL;
    rpc_loop_stop(t->loop);
}

static void take(struct tracer *t)
{
    for (struct mail *m = mailbox_take(&t->box), *next; m; m = next) {
        next = m->next;
        m->next = NULL;
        *t->last = m;
        t->last = &m->next;
    }
}

static grpc_byte_buffer *pack(struct tracer *t, size_t n)
{
    Otlp__AnyValue name = OTLP__ANY_VALUE__INIT, version = OTLP__ANY_VALUE__INIT;
    name.value_case = version.value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
    name.string_value = t->service;
    version.string_value = (char *)(uintptr_t)VERSION;
    Otlp__KeyValue kv[2] = {OTLP__KEY_VALUE__INIT, OTLP__KEY_VALUE__INIT};
    Otlp__KeyValue *kvs[2] = {&kv[0], &kv[1]};
    kv[0].key = (char *)(uintptr_t) "service.name";
    kv[0].value = &name;
    kv[1].key = (char *)(uintptr_t) "service.version";
    kv[1].value = &version;
    Otlp__Resource resource = OTLP__RESOURCE__INIT;
    resource.attributes = kvs;
    resource.n_attributes = 2;
    Otlp__InstrumentationScope scope_info = OTLP__INSTRUMENTATION_SCOPE__INIT;
    scope_info.name = (char *)(uintptr_t) "llm-server";
    scope_info.version = (char *)(uintptr_t)VERSION;
    Otlp__ScopeSpans scope = OTLP__SCOPE_SPANS__INIT, *scopes[1] = {&scope};
    scope.scope = &scope_info;
    scope.spans = RPC_NEW(&t->mem, ProtobufCBinaryData, n);
    Otlp__ResourceSpans spans = OTLP__RESOURCE_SPANS__INIT, *all[1] = {&spans};
    spans.resource = &resource;
    spans.scope_spans = scopes;
    spans.n_scope_spans = 1;
    Otlp__ExportTraceServiceRequest q = OTLP__EXPORT_TRACE_SERVICE_REQUEST__INIT;
    q.resource_spans = all;
    q.n_resource_spans = 1;
    struct mail *m = t->first;
    for (; scope.spans && scope.n_spans < n; m = m->next) {
        struct trace_node *x = (struct trace_node *)m;
        scope.spans[scope.n_spans++] = (ProtobufCBinaryData){x->n, x->bytes};
    }
    grpc_byte_buffer *b = rpc_pack(&q.base);
    rpc_mem_reset(&t->mem);
    return b;
}

static void start(struct tracer *t)
{
    t->busy = true;
    rpc_unary_start(t->client, t->method, &t->call, grpc_byte_buffer_copy(t->batch), CALL_MS,
                    false);
}

/* Sends the next batch, if there are spans and no call is in flight. */
static void send(struct tracer *t)
{
    size_t n = 0;
    if (t->busy)
        return;
    for (struct mail *m = t->first; m && n < BATCH; m = m->next)
        n++;
    if (n) {
        t->batch = pack(t, n);
        t->n_batch = n;
        t->tries = 0;
        for (size_t i = 0; i < n; i++) {
            struct mail *m = t->first;
            t->first = m->next;
            free(m);
        }
        if (!t->first)
            t->last = &t->first;
        start(t);
    }
    stop_when_idle(t);
}

/* Number of spans the collector reports as rejected. */
static size_t rejected(struct tracer *t)
{
    struct err e;
    const Otlp__ExportTraceServiceResponse *r = (const void *)rpc_unpack(
        &otlp__export_trace_service_response__descriptor, t->call.reply, &t->mem, &e);
    int64_t n = r && r->partial_success ? r->partial_success->rejected_spans : 0;
    rpc_mem_reset(&t->mem);
    return n < 0 ? 0 : (size_t)n > t->n_batch ? t->n_batch : (size_t)n;
}

static void batch_over(struct tracer *t, size_t lost)
{
    count(t, TRACE_LOST, lost);
    count(t, TRACE_SENT, t->n_batch - lost);
    atomic_fetch_sub(&t->waiting, t->n_batch);
    grpc_byte_buffer_destroy(t->batch);
    t->batch = NULL;
    t->busy = false;
    send(t);
}

/* OTLP's list of retryable statuses. */
static bool passing(grpc_status_code s)
{
    return s == GRPC_STATUS_UNAVAILABLE || s == GRPC_STATUS_DEADLINE_EXCEEDED ||
           s == GRPC_STATUS_CANCELLED || s == GRPC_STATUS_ABORTED ||
           s == GRPC_STATUS_OUT_OF_RANGE || s == GRPC_STATUS_DATA_LOSS ||
           s == GRPC_STATUS_RESOURCE_EXHAUSTED;
}

static void on_exported(struct rpc_unary *u)
{
    struct tracer *t = CONTAINER_OF(u, struct tracer, call);
    bool ok = u->status == GRPC_STATUS_OK;
    if (ok != !t->failing) { /* logs changes only */
        t->failing = !ok;
        if (ok)
            log_msg(LOG_INFO, "traces are sent to %s again", t->target);
        else
            LOG(LOG_WARN, "traces cannot be sent", LOGS("endpoint", t->target),
                LOGI("status", u->status), LOGS("error", u->message));
    }
    if (ok)
        batch_over(t, rejected(t));
    else if (passing(u->status) && ++t->tries < TRIES && !t->stopping)
        rpc_after(t->loop, AGAIN_MS, &t->again);
    else
        batch_over(t, t->n_batch);
}

static void on_again(struct rpc_op *op, bool ok)
{
    (void)ok;
    start(CONTAINER_OF(op, struct tracer, again));
}

static void on_timer(struct rpc_op *op, bool ok)
{
    struct tracer *t = CONTAINER_OF(op, struct tracer, timer);
    (void)ok;
    take(t);
    send(t);
}

static void on_bell(struct rpc_op *op, bool ok)
{
    struct tracer *t = CONTAINER_OF(op, struct tracer, bell);
    (void)ok;
    t->stopping = true;
    stop_when_idle(t);
}

static void *run(void *arg)
{
    rpc_loop_run(((struct tracer *)arg)->loop);
    return NULL;
}

/* ---------------------------------------------------------------- life */

/* Converts an OTLP endpoint to gRPC's "host:port". */
static char *target_of(const char *endpoint, struct err *e)
{
    char *s = NULL;
    if (!strncmp(endpoint, "https://", 8)) {
        err_set(e, ERR_VALIDATION,
                "--otlp-endpoint %s: traces are sent without TLS only; let a collector beside this "
                "server pass them on",
                endpoint);
        return NULL;
    }
    if (!strncmp(endpoint, "http://", 7))
        endpoint += 7;
    int n = (int)strcspn(endpoint, "/");
    if (!strncmp(endpoint, "unix:", 5))
        n = (int)strlen(endpoint);
    const char *port = memrchr(endpoint, ':', (size_t)n);
    bool has_port = port && !memchr(port, ']', (size_t)(endpoint + n - port)); /* [::1] has none */
    if (n == 0)
        err_set(e, ERR_VALIDATION, "--otlp-endpoint: no host in it");
    else if (asprintf(&s, "%.*s%s", n, endpoint, has_port ? "" : ":4317") < 0)
        err_nomem(e), s = NULL;
    return s;
}

static void destroy(struct tracer *t)
{
    rpc_client_free(t->client);
    if (t->loop)
        rpc_loop_free(t->loop);
    rpc_mem_free(&t->mem);
    free(t->service);
    free(t->target);
    free(t);
    grpc_shutdown();
}

struct tracer *tracer_new(const struct tracer_options *o, struct err *e)
{
    static const char path[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    struct tracer *t = calloc(1, sizeof(*t));
    if (!t)
        return err_nomem(e), NULL;
    grpc_init();
    t->o = *o;
    t->o.queue = o->queue ? o->queue : QUEUE_DEFAULT;
    t->last = &t->first;
    t->timer = (struct rpc_op){on_timer, "traces"};
    t->again = (struct rpc_op){on_again, "traces again"};
    t->bell = (struct rpc_op){on_bell, "traces end"};
    t->call.done = on_exported;
    t->call.name = path;
    rpc_mem_init(&t->mem, 16 << 20);
    struct rpc_client_options c = {.target = NULL};
    if (!(c.target = t->target = target_of(o->endpoint, e)))
        goto fail;
    t->service = strdup(o->service_name);
    t->loop = rpc_loop_new();
    if (!t->service || !t->loop) {
        err_nomem(e);
        goto fail;
    }
    if (!(t->client = rpc_client_new(t->loop, &c, e)))
        goto fail;
    t->method = rpc_client_method(t->client, path);
    if (pthread_create(&t->thread, NULL, run, t) == 0)
        return t;
    err_set(e, ERR_SYSTEM, "the tracer's thread did not start");
fail:
    destroy(t);
    return NULL;
}

void tracer_free(struct tracer *t)
{
    if (!t)
        return;
    rpc_post(t->loop, &t->bell);
    pthread_join(t->thread, NULL);
    destroy(t);
}
