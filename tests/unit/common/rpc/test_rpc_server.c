// The two lanes, the answers to what is not a method or not a message, addresses, and shutdown.
#include "common/rpc/server.h"
#include "proto/generate.pb-c.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char dir[] = "/tmp/rpc-test-XXXXXX";

/* ------------------------------------------------ a blocking client */
struct reply {
    grpc_status_code code;
    char text[200];
    uint64_t id;
};

static struct reply call(const char *target, const char *method, const ProtobufCMessage *msg)
{
    grpc_completion_queue *q = grpc_completion_queue_create_for_pluck(NULL);
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    grpc_channel *ch = grpc_channel_create(target, plain, NULL);
    grpc_slice name = grpc_slice_from_copied_string(method), why = grpc_empty_slice();
    grpc_call *c = grpc_channel_create_call(ch, NULL, 0, q, name, NULL,
                                            gpr_time_from_seconds(20, GPR_TIMESPAN), NULL);
    grpc_metadata_array first, last;
    grpc_metadata_array_init(&first), grpc_metadata_array_init(&last);
    grpc_byte_buffer *out = rpc_pack(msg), *in = NULL;
    struct reply r = {0};
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    ops[1].data.send_message.send_message = out;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &first;
    ops[4].data.recv_message.recv_message = &in;
    ops[5].data.recv_status_on_client.status = &r.code;
    ops[5].data.recv_status_on_client.status_details = &why;
    ops[5].data.recv_status_on_client.trailing_metadata = &last;
    assert_int_equal(grpc_call_start_batch(c, ops, 6, c, NULL), GRPC_CALL_OK);
    grpc_completion_queue_pluck(q, c, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    snprintf(r.text, sizeof(r.text), "%.*s", (int)GRPC_SLICE_LENGTH(why),
             (char *)GRPC_SLICE_START_PTR(why));
    if (in) {
        struct rpc_mem m;
        struct err e = ERR_INIT;
        rpc_mem_init(&m, 1 << 20);
        Generate__V3__CachedBatch *b =
            (void *)rpc_unpack(&generate__v3__cached_batch__descriptor, in, &m, &e);
        r.id = b ? b->id : 0;
        rpc_mem_free(&m);
        grpc_byte_buffer_destroy(in);
    }
    grpc_byte_buffer_destroy(out);
    grpc_slice_unref(why), grpc_slice_unref(name);
    grpc_metadata_array_destroy(&first), grpc_metadata_array_destroy(&last);
    grpc_call_unref(c);
    grpc_channel_destroy(ch);
    grpc_channel_credentials_release(plain);
    grpc_completion_queue_shutdown(q);
    grpc_completion_queue_destroy(q);
    return r;
}

static struct reply call_id(const char *target, const char *method, uint64_t id)
{
    Generate__V3__CachedBatch b = GENERATE__V3__CACHED_BATCH__INIT;
    b.id = id;
    return call(target, method, &b.base);
}

/* The linker sends every call of calloc in this program through here. */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
static atomic_bool no_memory;

void *__wrap_calloc(size_t n, size_t size) { return no_memory ? NULL : __real_calloc(n, size); }

/* ------------------------------------------------ a server that echoes */
struct fixture {
    struct rpc_server *s;
    pthread_t thread;
    int afters;
    _Atomic bool runs; /* a slow call */
    char failed[64];   /* methods of failed serial calls: their last letters */
};

static const ProtobufCMessage *echo(void *ctx, const ProtobufCMessage *in, struct rpc_call *c,
                                    struct err *e)
{
    struct fixture *f = ctx;
    const Generate__V3__CachedBatch *b = (const void *)in;
    Generate__V3__CachedBatch *out = RPC_NEW(c->mem, Generate__V3__CachedBatch, 1);
    generate__v3__cached_batch__init(out);
    if (b->id == 13)
        return err_set(e, ERR_GENERATION, "Batch ID 13 not found in cache."), NULL;
    if (b->id == 15)
        return err_set(e, ERR_SYSTEM, "the device is lost"), NULL;
    if (b->id == 14)
        return c->code = GRPC_STATUS_NOT_FOUND, err_set(e, ERR_VALIDATION, "nothing"), NULL;
    if (b->id == 500) {
        f->runs = true;
        usleep(1500000);
        f->runs = false;
    }
    out->id = b->id + 1;
    return &out->base;
}
static void after(void *ctx) { ((struct fixture *)ctx)->afters++; }

static grpc_status_code failed(void *ctx, const struct rpc_method *m, grpc_status_code code,
                               const struct err *e)
{
    struct fixture *f = ctx;
    size_t n = strlen(f->failed);
    snprintf(f->failed + n, sizeof(f->failed) - n, "%c%d%c", m->name[strlen(m->name) - 1], code,
             e->kind == ERR_GENERATION ? '!' : '?');
    return strstr(e->msg, "lost") ? GRPC_STATUS_UNAVAILABLE : code;
}

static const struct rpc_method methods[] = {
    {"/t.T/Slow", &generate__v3__cached_batch__descriptor, RPC_SERIAL, echo},
    {"/t.T/Fast", &generate__v3__cached_batch__descriptor, RPC_AT_ONCE, echo},
};

static void *run(void *s) { return rpc_server_run(s), NULL; }

static struct rpc_server *open_at(struct fixture *f, const char *address, struct err *e)
{
    return rpc_server_open(
        &(struct rpc_server_options){address, methods, 2, f, after, .failed = failed}, e);
}
static void start(struct fixture *f, const char *address)
{
    struct err e = ERR_INIT;
    memset(f, 0, sizeof(*f));
    f->s = open_at(f, address, &e);
    if (!f->s)
        fail_msg("%s", e.msg);
    pthread_create(&f->thread, NULL, run, f->s);
}
static void stop(struct fixture *f)
{
    rpc_server_stop(f->s);
    pthread_join(f->thread, NULL);
    rpc_server_close(f->s);
}

static void paths(char addr[120], char target[120], const char *name)
{
    snprintf(addr, 120, "unix://%s/%s", dir, name);
    snprintf(target, 120, "unix:%s/%s", dir, name);
}

TEST(answers)
{
    struct fixture f;
    char addr[120], t[120];
    paths(addr, t, "a");
    start(&f, addr);
    assert_int_equal(call_id(t, "/t.T/Slow", 1).id, 2);
    assert_int_equal(call_id(t, "/t.T/Fast", 2).id, 3);
    struct reply r = call_id(t, "/t.T/Slow", 13);
    assert_int_equal(r.code, GRPC_STATUS_INTERNAL);
    assert_string_equal(r.text, "Batch ID 13 not found in cache.");
    r = call_id(t, "/t.T/Slow", 15);
    assert_int_equal(r.code, GRPC_STATUS_UNAVAILABLE);
    assert_string_equal(r.text, "the device is lost");
    assert_int_equal(call_id(t, "/t.T/Fast", 15).code, GRPC_STATUS_INTERNAL);
    assert_int_equal(call_id(t, "/t.T/Fast", 14).code, GRPC_STATUS_NOT_FOUND);
    assert_int_equal(call_id(t, "/t.T/None", 1).code, GRPC_STATUS_UNIMPLEMENTED);
    /* A message of another type, whose field 1 is no number. */
    Generate__V3__InputChunk chunk = GENERATE__V3__INPUT_CHUNK__INIT, *list[] = {&chunk};
    Generate__V3__Input wrong = GENERATE__V3__INPUT__INIT;
    wrong.chunks = list, wrong.n_chunks = 1;
    assert_int_equal(call(t, "/t.T/Slow", &wrong.base).code, GRPC_STATUS_INVALID_ARGUMENT);
    stop(&f);
    assert_true(f.afters == 4);
    assert_string_equal(f.failed, "w13!w13?w3?"); /* the last one was seen by no handler */
    struct stat st;
    char gone[140];
    snprintf(gone, sizeof(gone), "%s/a.lock", dir);
    assert_int_equal(stat(gone, &st), -1);
    assert_int_equal(stat(t + 5, &st), -1);
}

static void *slow_call(void *t) { return (void *)(uintptr_t)call_id(t, "/t.T/Slow", 500).id; }

static void wait_until_it_runs(struct fixture *f)
{
    for (int i = 0; i < 2000 && !f->runs; i++)
        usleep(5000);
    assert_true(f->runs);
}

TEST(at_once_overtakes)
{
    struct fixture f;
    char addr[120], t[120];
    paths(addr, t, "b");
    start(&f, addr);
    pthread_t th;
    pthread_create(&th, NULL, slow_call, t);
    wait_until_it_runs(&f);
    assert_int_equal(call_id(t, "/t.T/Fast", 7).id, 8);
    assert_true(f.runs);
    void *id;
    pthread_join(th, &id);
    assert_int_equal((uintptr_t)id, 501);
    stop(&f);
}

TEST(stop_answers_the_running_call)
{
    struct fixture f;
    char addr[120], t[120];
    paths(addr, t, "c");
    start(&f, addr);
    pthread_t th, waiting;
    pthread_create(&th, NULL, slow_call, t);
    wait_until_it_runs(&f);
    pthread_create(&waiting, NULL, slow_call, t);
    usleep(100000);
    stop(&f);
    void *id;
    pthread_join(th, &id);
    assert_int_equal((uintptr_t)id, 501);
    pthread_join(waiting, &id);
    assert_int_equal((uintptr_t)id, 0); /* refused */
}

TEST(addresses)
{
    struct fixture f, g = {0};
    struct err e = ERR_INIT;
    char addr[120], t[120], longer[200];
    paths(addr, t, "d");
    /* A socket left behind by a killed server. */
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    strcpy(un.sun_path, t + 5);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    close(fd);
    start(&f, addr);
    assert_int_equal(call_id(t, "/t.T/Slow", 1).id, 2);
    struct stat st;
    assert_int_equal(stat(t + 5, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* It is not taken over. */
    assert_null(open_at(&g, addr, &e));
    assert_non_null(strstr(e.msg, "another server is listening"));
    assert_int_equal(call_id(t, "/t.T/Slow", 1).id, 2);
    stop(&f);
    /* Free again. */
    start(&f, addr);
    assert_int_equal(call_id(t, "/t.T/Slow", 1).id, 2);
    stop(&f);
    memset(longer, 'x', 150), memcpy(longer, "/tmp/", 5), longer[150] = 0;
    assert_null(open_at(&g, longer, &e));
    assert_int_equal(e.kind, ERR_VALIDATION);
    fd = open(t + 5, O_CREAT | O_RDWR, 0600); /* a file that another program made stays */
    close(fd);
    assert_null(open_at(&g, addr, &e));
    assert_int_equal(unlink(t + 5), 0);
    assert_null(open_at(&g, "tcp://nowhere", &e));
}

TEST(tcp)
{
    struct fixture f, g = {0};
    struct err e = ERR_INIT;
    char t[40];
    start(&f, "tcp://127.0.0.1:0");
    snprintf(t, sizeof(t), "tcp://127.0.0.1:%d", rpc_server_port(f.s));
    assert_int_equal(call_id(t + 6, "/t.T/Slow", 4).id, 5);
    assert_null(open_at(&g, t, &e));
    stop(&f);
}

/* Each call lacks the memory for the object of a next one. */
TEST(calls_are_received_after_memory_ran_out)
{
    struct fixture f;
    char addr[120], t[120];
    paths(addr, t, "e");
    start(&f, addr);
    no_memory = true;
    for (uint64_t i = 0; i < 30; i++)
        assert_int_equal(call_id(t, i & 1 ? "/t.T/Slow" : "/t.T/Fast", i + 100).id, i + 101);
    no_memory = false;
    assert_int_equal(call_id(t, "/t.T/Slow", 1).id, 2);
    stop(&f);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    grpc_init();
    int rc = tests_run(NULL, NULL);
    grpc_shutdown_blocking();
    rmdir(dir);
    return rc;
}
