/* Unary calls: answers, errors, deadlines, cancellation, servers that are not there yet, or no
 * more. */
#include "common/clock.h"
#include "common/rpc/client.h"
#include "common/rpc/pack.h"
#include "common/rpc/server.h"
#include "proto/generate.pb-c.h"
#include "tests/unit/test.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char dir[] = "/tmp/client-test-XXXXXX";

/* ------------------------------------------------ a server that can be slow or angry */
struct server {
    char path[100];
    struct rpc_server *s;
    pthread_t thread;
};

static const ProtobufCMessage *on_filter(void *ctx, const ProtobufCMessage *in,
                                         struct rpc_call *call, struct err *e)
{
    const Generate__V3__FilterBatchRequest *q = (const void *)in;
    (void)ctx;
    if (q->batch_id == 13) {
        call->code = GRPC_STATUS_FAILED_PRECONDITION;
        return err_set(e, ERR_SYSTEM, "thirteen, \xe2\x80\x9cof all\xe2\x80\x9d"), NULL;
    }
    if (q->batch_id >= 1000)
        usleep((useconds_t)q->batch_id * 1000);
    Generate__V3__FilterBatchResponse *r = RPC_NEW(call->mem, Generate__V3__FilterBatchResponse, 1);
    generate__v3__filter_batch_response__init(r);
    r->batch = RPC_NEW(call->mem, Generate__V3__CachedBatch, 1);
    generate__v3__cached_batch__init(r->batch);
    r->batch->id = q->batch_id + 1;
    return &r->base;
}

static const struct rpc_method methods[] = {
    {"/t.S/Filter", &generate__v3__filter_batch_request__descriptor, RPC_SERIAL, on_filter},
};

static void *serve(void *s)
{
    rpc_server_run(s);
    return NULL;
}

static void server_open(struct server *s)
{
    struct err e = ERR_INIT;
    struct rpc_server_options o = {.address = s->path, .methods = methods, .n_methods = 1};
    s->s = rpc_server_open(&o, &e);
    assert_non_null(s->s);
    pthread_create(&s->thread, NULL, serve, s->s);
}

static void server_close(struct server *s)
{
    rpc_server_stop(s->s);
    pthread_join(s->thread, NULL);
    rpc_server_close(s->s);
}

/* ------------------------------------------------ a loop that runs until the last of its calls */
struct rig {
    struct server server;
    struct rpc_loop *loop;
    struct rpc_client *client;
    void *filter;
    atomic_int left;
};

struct call {
    struct rpc_unary u;
    struct rig *g;
    uint64_t answer;
    int n_done;
    int64_t ms;
};

static void setup(struct rig *g, bool with_server)
{
    static int n;
    struct err e = ERR_INIT;
    *g = (struct rig){0};
    snprintf(g->server.path, sizeof(g->server.path), "%s/%d", dir, n++);
    grpc_init();
    if (with_server)
        server_open(&g->server);
    g->loop = rpc_loop_new();
    g->client = rpc_client_new(g->loop, &(struct rpc_client_options){.target = g->server.path}, &e);
    assert_non_null(g->client);
    g->filter = rpc_client_method(g->client, "/t.S/Filter");
}

static void teardown(struct rig *g)
{
    rpc_client_free(g->client);
    if (g->server.s)
        server_close(&g->server);
    rpc_loop_free(g->loop);
    grpc_shutdown();
}

static void on_done(struct rpc_unary *u)
{
    struct call *c = CONTAINER_OF(u, struct call, u);
    struct rpc_mem m;
    struct err e = ERR_INIT;
    c->n_done++;
    c->ms = clock_ms() - c->ms;
    rpc_mem_init(&m, 1 << 16);
    if (u->status == GRPC_STATUS_OK) {
        const Generate__V3__FilterBatchResponse *r = (const void *)rpc_unpack(
            &generate__v3__filter_batch_response__descriptor, u->reply, &m, &e);
        c->answer = r->batch->id;
    } else {
        assert_null(u->reply);
    }
    rpc_mem_free(&m);
    rpc_unary_clear(u);
    if (--c->g->left == 0)
        rpc_loop_stop(c->g->loop);
}

static void start(struct rig *g, struct call *c, uint64_t id, int64_t timeout_ms, bool wait)
{
    Generate__V3__FilterBatchRequest q = GENERATE__V3__FILTER_BATCH_REQUEST__INIT;
    q.batch_id = id;
    *c = (struct call){.u = {.done = on_done, .name = "filter"}, .g = g, .ms = clock_ms()};
    g->left++;
    rpc_unary_start(g->client, g->filter, &c->u, rpc_pack(&q.base), timeout_ms, wait);
}

TEST(many_calls_are_answered_each_once)
{
    enum { N = 200 };
    static struct call c[N];
    struct rig g;
    setup(&g, true);
    for (uint64_t i = 0; i < N; i++)
        start(&g, &c[i], 100 + i, 10000, false);
    rpc_loop_run(g.loop);
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(c[i].n_done, 1);
        assert_int_equal(c[i].answer, 101 + i);
        assert_string_equal(c[i].u.message, "");
    }
    teardown(&g);
}

TEST(the_servers_words_arrive)
{
    struct rig g;
    struct call c;
    setup(&g, true);
    start(&g, &c, 13, 10000, false);
    rpc_loop_run(g.loop);
    assert_int_equal(c.u.status, GRPC_STATUS_FAILED_PRECONDITION);
    assert_string_equal(c.u.message, "thirteen, \xe2\x80\x9cof all\xe2\x80\x9d");
    teardown(&g);
}

TEST(a_deadline_ends_the_wait)
{
    struct rig g;
    struct call c;
    setup(&g, true);
    start(&g, &c, 2000, 100, false);
    rpc_loop_run(g.loop);
    assert_int_equal(c.u.status, GRPC_STATUS_DEADLINE_EXCEEDED); /* and not its answer */
    assert_true(c.ms >= 90);
    teardown(&g);
}

struct timer {
    struct rpc_op op;
    struct call *c;
};

static void on_timer(struct rpc_op *op, bool ok)
{
    (void)ok;
    rpc_unary_cancel(&CONTAINER_OF(op, struct timer, op)->c->u);
}

TEST(a_call_can_be_cancelled)
{
    struct rig g;
    struct call c;
    struct timer t = {{on_timer, "cancel"}, &c};
    setup(&g, true);
    start(&g, &c, 2000, 10000, false);
    rpc_after(g.loop, 50, &t.op);
    rpc_loop_run(g.loop);
    assert_int_equal(c.u.status, GRPC_STATUS_CANCELLED); /* and not its answer */
    assert_true(c.ms >= 45);
    teardown(&g);
}

TEST(nobody_there_is_known_at_once)
{
    struct rig g;
    struct call c;
    setup(&g, false);
    start(&g, &c, 1, 10000, false);
    rpc_loop_run(g.loop);
    assert_int_equal(c.u.status, GRPC_STATUS_UNAVAILABLE);
    assert_true(c.ms < 8000); /* not by its time */
    teardown(&g);
}

/* The server, when the call that comes too early for it has ended. */
struct later {
    struct server *server;
    const atomic_int *left; /* calls that have not ended */
};

static void *open_later(void *arg)
{
    const struct later *l = arg;
    while (atomic_load(l->left) > 1)
        usleep(1000);
    server_open(l->server);
    return NULL;
}

TEST(a_call_that_waits_gets_the_server_that_comes)
{
    struct rig g;
    struct call c, never;
    pthread_t t;
    setup(&g, false);
    start(&g, &c, 7, 10000, true);
    start(&g, &never, 7, 150, true); /* its time is over before */
    struct later later = {&g.server, &g.left};
    pthread_create(&t, NULL, open_later, &later);
    rpc_loop_run(g.loop);
    pthread_join(t, NULL);
    assert_int_equal(c.u.status, GRPC_STATUS_OK);
    assert_int_equal(c.answer, 8);
    assert_in_range(c.ms, 150, 8000); /* looked for every 100 ms at first */
    assert_int_equal(never.u.status, GRPC_STATUS_DEADLINE_EXCEEDED);
    teardown(&g);
}

TEST(a_socket_of_another_user_is_not_asked)
{
    char path[100], target[120];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct err e = ERR_INIT;
    if (geteuid() != 0)
        skip(); /* only root can give a file away */
    snprintf(path, sizeof(path), "%s/theirs", dir);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
    struct rpc_loop *loop = rpc_loop_new();
    static const char *const schemes[] = {"", "unix:", "unix://"};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        snprintf(target, sizeof(target), "%s%s", schemes[i], path);
        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_null(rpc_client_new(loop, &(struct rpc_client_options){.target = target}, &e));
        assert_non_null(strstr(e.msg, "another user (uid 65534)"));
        assert_int_equal(chown(path, 0, 0), 0);
        struct rpc_client *c =
            rpc_client_new(loop, &(struct rpc_client_options){.target = target}, &e);
        assert_non_null(c);
        rpc_client_free(c);
    }
    rpc_loop_free(loop);
    close(fd);
    unlink(path);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    int rc = tests_run(NULL, NULL);
    rmdir(dir);
    return rc;
}
