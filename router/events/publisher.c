#include "router/events/publisher.h"
#include "common/json/json.h"
#include "common/log/log.h"
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

enum { NUMBER = 8, MOST_BYTES = 256 << 20 /* most bytes of batches kept for replay */ };

struct batch {
    struct batch *next;
    uint64_t number;
    char *p;
    size_t n;
};

struct kv_publisher {
    void *context, *pub, *replay; /* replay NULL: none */
    char *topic;
    size_t most_kept, most_waiting;
    int bell;
    pthread_t thread;
    bool has_thread;
    /* owned by the thread: recent batches, oldest first */
    struct batch *kept, **kept_end;
    size_t n_kept, kept_bytes;
    pthread_mutex_t lock; /* guards the following */
    struct batch *waiting, **waiting_end;
    size_t n_waiting;
    uint64_t next;
    bool stopping;
};

static void batch_free(struct batch *b)
{
    if (b)
        free(b->p);
    free(b);
}

static void put_number(uint8_t out[NUMBER], uint64_t v)
{
    for (int i = 0; i < NUMBER; i++)
        out[i] = (uint8_t)(v >> 8 * (NUMBER - 1 - i));
}

static uint64_t read_number(const uint8_t in[NUMBER])
{
    uint64_t v = 0;
    for (int i = 0; i < NUMBER; i++)
        v = v << 8 | in[i];
    return v;
}

/* ------------------------------------------------------------------ the thread */

static void send_batch(struct kv_publisher *p, const struct batch *b)
{
    uint8_t number[NUMBER];
    put_number(number, b->number);
    if (zmq_send(p->pub, p->topic, strlen(p->topic), ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
        zmq_send(p->pub, number, NUMBER, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0)
        (void)zmq_send(p->pub, b->p, b->n, ZMQ_DONTWAIT);
}

static void keep(struct kv_publisher *p, struct batch *b)
{
    b->next = NULL;
    *p->kept_end = b;
    p->kept_end = &b->next;
    p->n_kept++;
    p->kept_bytes += b->n;
    while (p->n_kept > p->most_kept || p->kept_bytes > MOST_BYTES) {
        struct batch *old = p->kept;
        assert(old); /* n_kept > 0 */
        if (!(p->kept = old->next))
            p->kept_end = &p->kept;
        p->n_kept--;
        p->kept_bytes -= old->n;
        batch_free(old);
    }
}

static void send_waiting(struct kv_publisher *p)
{
    pthread_mutex_lock(&p->lock);
    struct batch *b = p->waiting;
    p->waiting = NULL;
    p->waiting_end = &p->waiting;
    p->n_waiting = 0;
    pthread_mutex_unlock(&p->lock);
    while (b) {
        struct batch *next = b->next;
        send_batch(p, b);
        keep(p, b);
        b = next;
    }
}

static bool send_replay(struct kv_publisher *p, zmq_msg_t *client, uint64_t number,
                        const void *bytes, size_t n)
{
    uint8_t text[NUMBER];
    put_number(text, number);
    return zmq_send(p->replay, zmq_msg_data(client), zmq_msg_size(client),
                    ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
           zmq_send(p->replay, "", 0, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
           zmq_send(p->replay, text, NUMBER, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
           zmq_send(p->replay, bytes, n, ZMQ_DONTWAIT) >= 0;
}

/* Frames of a request: client identity, an empty one, the first number. Other messages are
 * ignored. */
static void answer_replay(struct kv_publisher *p)
{
    zmq_msg_t client, frame;
    uint64_t from = 0;
    bool asked = false, more = true;
    zmq_msg_init(&client);
    if (zmq_msg_recv(&client, p->replay, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&client);
        return;
    }
    more = zmq_msg_more(&client);
    while (more) {
        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, p->replay, ZMQ_DONTWAIT) < 0)
            more = false;
        else
            more = zmq_msg_more(&frame);
        if (zmq_msg_size(&frame) == NUMBER) {
            from = read_number(zmq_msg_data(&frame));
            asked = true;
        }
        zmq_msg_close(&frame);
    }
    for (const struct batch *b = p->kept; asked && b; b = b->next)
        if (b->number >= from && !send_replay(p, &client, b->number, b->p, b->n))
            break;
    if (asked)
        send_replay(p, &client, UINT64_MAX, "", 0);
    zmq_msg_close(&client);
}

static void *publish(void *arg)
{
    struct kv_publisher *p = arg;
    zmq_pollitem_t items[2] = {{.fd = p->bell, .events = ZMQ_POLLIN},
                               {.socket = p->replay, .events = ZMQ_POLLIN}};
    for (bool over = false; !over;) {
        uint64_t rings;
        if (zmq_poll(items, p->replay ? 2 : 1, -1) < 0)
            continue;
        if (items[0].revents && read(p->bell, &rings, sizeof(rings)) < 0)
            continue;
        send_waiting(p);
        if (p->replay && items[1].revents)
            answer_replay(p);
        pthread_mutex_lock(&p->lock);
        over = p->stopping;
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

/* ------------------------------------------------------------------ the other threads */

static void ring(struct kv_publisher *p)
{
    (void)eventfd_write(p->bell, 1); /* full: the thread is already awake */
}

void kv_publish(struct kv_publisher *p, struct buf *payload)
{
    const size_t n = payload->len;
    struct batch *b = calloc(1, sizeof(*b));
    char *bytes = buf_take(payload);
    pthread_mutex_lock(&p->lock);
    const uint64_t number = p->next++;
    if (b && bytes && p->n_waiting < p->most_waiting) {
        *b = (struct batch){.number = number, .p = bytes, .n = n};
        *p->waiting_end = b;
        p->waiting_end = &b->next;
        p->n_waiting++;
        b = NULL;
        bytes = NULL;
    }
    pthread_mutex_unlock(&p->lock);
    free(b);
    free(bytes);
    ring(p);
}

/* ------------------------------------------------------------------ life */

static int bind_to(struct kv_publisher *p, int type, const char *endpoint, int hwm, void **out,
                   struct err *e)
{
    const int none = 0;
    *out = zmq_socket(p->context, type);
    if (!*out)
        return err_set(e, ERR_SYSTEM, "--kv-events-config: %s", zmq_strerror(zmq_errno()));
    zmq_setsockopt(*out, ZMQ_LINGER, &none, sizeof(none));
    zmq_setsockopt(*out, ZMQ_SNDHWM, &hwm, sizeof(hwm));
    if (zmq_bind(*out, endpoint) != 0)
        return err_set(e, ERR_VALIDATION, "--kv-events-config: cannot listen at %s: %s", endpoint,
                       zmq_strerror(zmq_errno()));
    LOG(LOG_INFO, type == ZMQ_PUB ? "KV events" : "KV events, replay", LOGS("endpoint", endpoint));
    return 0;
}

static int open_at(struct kv_publisher *p, const cJSON *c, struct err *e)
{
    const char *replay = json_str(c, "replay_endpoint", NULL);
    const int64_t hwm = json_int(c, "hwm", 100000);
    p->most_kept = (size_t)json_int(c, "buffer_steps", 10000);
    p->most_waiting = (size_t)json_int(c, "max_queue_size", 100000);
    if (!(p->topic = strdup(json_str(c, "topic", ""))) || !(p->context = zmq_ctx_new()) ||
        (p->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return err_nomem(e);
    if (bind_to(p, ZMQ_PUB, json_str(c, "endpoint", "tcp://*:5557"), (int)hwm, &p->pub, e) ||
        (replay && *replay && bind_to(p, ZMQ_ROUTER, replay, 0, &p->replay, e)))
        return -1;
    p->has_thread = pthread_create(&p->thread, NULL, publish, p) == 0;
    return p->has_thread ? 0 : err_set(e, ERR_SYSTEM, "cannot start a thread");
}

static int check(const cJSON *c, struct err *e)
{
    static const char *const known[] = {"enable_kv_cache_events", "publisher", "endpoint",
                                        "replay_endpoint",        "hwm",       "buffer_steps",
                                        "max_queue_size",         "topic"};
    static const char *const counts[] = {"hwm", "buffer_steps", "max_queue_size"};
    if (!cJSON_IsObject(c))
        return err_set(e, ERR_VALIDATION, "--kv-events-config is not a JSON object");
    for (const cJSON *x = c->child; x; x = x->next) {
        bool ok = false;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && !ok; i++)
            ok = strcmp(x->string, known[i]) == 0;
        if (!ok)
            return err_set(e, ERR_VALIDATION, "--kv-events-config: unknown field `%.100s`",
                           x->string);
    }
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        const int64_t v = json_int(c, counts[i], 1);
        if (v < 1 || v > INT32_MAX)
            return err_set(e, ERR_VALIDATION, "--kv-events-config: `%s` is %lld", counts[i],
                           (long long)v);
    }
    const char *kind = json_str(c, "publisher", "zmq");
    return strcmp(kind, "zmq") == 0 || strcmp(kind, "null") == 0
               ? 0
               : err_set(e, ERR_VALIDATION, "--kv-events-config: publisher `%.100s` is not `zmq`",
                         kind);
}

int kv_publisher_open(const char *config, struct kv_publisher **out, struct err *e)
{
    *out = NULL;
    cJSON *c = json_parse(config, strlen(config), e);
    if (!c)
        return err_wrap(e, "--kv-events-config");
    int rc = check(c, e);
    if (rc == 0 && json_bool(c, "enable_kv_cache_events", true) &&
        strcmp(json_str(c, "publisher", "zmq"), "zmq") == 0) {
        struct kv_publisher *p = calloc(1, sizeof(*p));
        rc = p ? 0 : err_nomem(e);
        if (p) {
            p->bell = -1;
            p->kept_end = &p->kept;
            p->waiting_end = &p->waiting;
            pthread_mutex_init(&p->lock, NULL);
            rc = open_at(p, c, e);
        }
        if (rc)
            kv_publisher_close(p);
        else
            *out = p;
    }
    cJSON_Delete(c);
    return rc;
}

void kv_publisher_close(struct kv_publisher *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_mutex_unlock(&p->lock);
    if (p->has_thread) {
        ring(p);
        pthread_join(p->thread, NULL);
    }
    struct batch *lists[] = {p->kept, p->waiting};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (struct batch *b = lists[i]; b;) {
            struct batch *next = b->next;
            batch_free(b);
            b = next;
        }
    if (p->pub)
        zmq_close(p->pub);
    if (p->replay)
        zmq_close(p->replay);
    if (p->context)
        zmq_ctx_term(p->context);
    if (p->bell >= 0)
        close(p->bell);
    pthread_mutex_destroy(&p->lock);
    free(p->topic);
    free(p);
}
