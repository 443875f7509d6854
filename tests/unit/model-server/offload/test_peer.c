/* Blocks from one service's rank to another's, over a real connection: what arrives, and every way
 * in which it does not. */
#include "common/clock.h"
#include "model-server/offload/peer.h"
#include "model-server/offload/peer_server.h"
#include "tests/certs.h"
#include "tests/unit/test.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Several answers; but TSan looks at every slice of gRPC's. */
#if defined(__SANITIZE_THREAD__)
enum { BYTES = 3000 };
#else
enum { BYTES = 300000 };
#endif
enum { STATE = 1001, MANY = 40 };

static struct kv_layout layout(uint8_t id)
{
    struct kv_layout l = {.bytes = {BYTES, 0, STATE}};
    memset(l.identity, id, sizeof(l.identity));
    return l;
}

static struct kv_tier *tier(uint8_t id, uint64_t memory)
{
    struct err e = ERR_INIT;
    const struct kv_layout l = layout(id);
    struct kv_tier *t = kv_tier_new(&(struct kv_tier_options){.memory_bytes = memory}, &e);
    assert_non_null(t);
    assert_int_equal(kv_tier_layout(t, &l, &e), 0);
    return t;
}

static const uint8_t *key(uint32_t i)
{
    static uint8_t k[256][KV_KEY];
    memset(k[i], (int)(i + 1), KV_KEY);
    return k[i];
}

static void put(struct kv_tier *t, uint32_t i)
{
    const unsigned parts = i % 5 ? 1U << KV_PART_BLOCK : 1U << KV_PART_BLOCK | 1U << KV_PART_STATE;
    void *r;
    assert_true(kv_tier_begin(t, key(i), parts, &r));
    memset(kv_record_part(kv_tier_laid_out(t), r, KV_PART_BLOCK), (int)i, BYTES);
    if (i % 5 == 0)
        memset(kv_record_part(kv_tier_laid_out(t), r, KV_PART_STATE), (int)i + 100, STATE);
    kv_tier_put(t, r);
}

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

struct rig {
    struct kv_tier *from, *to;
    struct kv_peer_server *server;
    struct kv_peers *peers;
    struct kv_layout l; /* of what is asked for */
    char address[60];
    uint32_t next;       /* taken so far */
    uint32_t damages_at; /* this one is changed before it is taken; MANY: none */
    struct err why;
};

static struct rig *rig_new(const struct cluster *theirs, const struct cluster *ours)
{
    struct rig *g = calloc(1, sizeof(*g));
    struct err e = ERR_INIT;
    assert_non_null(g);
    g->from = tier(2, 64 << 20);
    g->to = tier(2, 64 << 20);
    g->l = layout(2);
    g->damages_at = MANY;
    snprintf(g->address, sizeof(g->address), "tcp://127.0.0.1:%d", free_port());
    assert_non_null(g->server = kv_peer_server_open(g->address, theirs, g->from, &e));
    assert_non_null(g->peers = kv_peers_new(ours, &e));
    return g;
}

static void rig_free(struct rig *g)
{
    kv_peers_free(g->peers);
    kv_peer_server_close(g->server);
    kv_tier_free(g->from);
    kv_tier_free(g->to);
    free(g);
}

static enum kv_peer_outcome take(void *arg, uint32_t i, const void *record, size_t n)
{
    struct rig *g = arg;
    bool room = true;
    assert_int_equal(i, g->next);
    char *copy = malloc(n);
    memcpy(copy, record, n);
    if (i == g->damages_at)
        copy[n - 1] ^= 1;
    const enum kv_verdict v = kv_tier_insert(g->to, key(i), copy, n, &room);
    free(copy);
    if (v != KV_FINE || !room)
        return v != KV_FINE ? KV_PEER_DAMAGED : KV_PEER_FULL;
    g->next++;
    return KV_PEER_FOUND;
}

static enum kv_peer_outcome ask(struct rig *g, uint32_t n, int64_t ms)
{
    const uint8_t *keys[MANY];
    for (uint32_t i = 0; i < n; i++)
        keys[i] = key(i);
    g->next = 0;
    g->why = (struct err)ERR_INIT;
    const struct kv_peer_read r = {.address = g->address,
                                   .layout = &g->l,
                                   .keys = keys,
                                   .n = n,
                                   .until_ns = clock_ns() + ms * 1000000,
                                   .take = take,
                                   .arg = g};
    const enum kv_peer_outcome out = kv_peers_read(g->peers, &r, &g->why);
    assert_int_equal(out == KV_PEER_FOUND || out == KV_PEER_FULL, g->why.kind == ERR_NONE);
    return out;
}

static void check(struct rig *g, uint32_t n)
{
    const uint8_t *keys[MANY];
    uint8_t parts[MANY];
    uint32_t disk;
    bool more;
    for (uint32_t i = 0; i < MANY; i++)
        keys[i] = key(i);
    assert_int_equal(kv_tier_fetch(g->to, 9, keys, MANY, parts, &disk, &more), n);
    assert_true(kv_tier_hold(g->to));
    for (uint32_t i = 0; i < n; i++) {
        const char *p = kv_tier_ready(g->to, 9, key(i), KV_PART_BLOCK);
        const char *state = kv_tier_ready(g->to, 9, key(i), KV_PART_STATE);
        assert_true(p && p[0] == (char)i && p[BYTES - 1] == (char)i);
        assert_true(i % 5 ? !state : state && state[STATE - 1] == (char)(i + 100));
    }
    kv_tier_release(g->to);
}

TEST(every_bit_arrives)
{
    struct rig *g = rig_new(NULL, NULL);
    for (uint32_t i = 0; i < MANY; i++)
        put(g->from, i);
    assert_int_equal(ask(g, MANY, 5000), KV_PEER_FOUND);
    assert_int_equal(g->next, MANY);
    check(g, MANY);
    rig_free(g);
}

TEST(what_is_missing_ends_it)
{
    struct rig *g = rig_new(NULL, NULL);
    for (uint32_t i = 0; i < MANY; i++)
        if (i != 7)
            put(g->from, i);
    const int64_t t0 = clock_ms();
    assert_int_equal(ask(g, MANY, 5000), KV_PEER_MISSING);
    assert_true(clock_ms() - t0 < 4000); /* a block that may still come is waited for, but not so */
    check(g, 7);
    rig_free(g);
}

static void *put_late(void *arg)
{
    for (uint32_t i = 0; i < 5; i++) {
        usleep(10000);
        put(arg, i);
    }
    return NULL;
}

/* The tail is on its way to the peer's memory while its beginning is read. */
TEST(what_comes_meanwhile_is_waited_for)
{
    pthread_t thread;
    struct rig *g = rig_new(NULL, NULL);
    assert_int_equal(pthread_create(&thread, NULL, put_late, g->from), 0);
    assert_int_equal(ask(g, 5, 5000), KV_PEER_FOUND);
    pthread_join(thread, NULL);
    check(g, 5);
    rig_free(g);
}

TEST(another_model_is_refused)
{
    struct rig *g = rig_new(NULL, NULL);
    put(g->from, 0);
    g->l = layout(3);
    assert_int_equal(ask(g, 1, 5000), KV_PEER_REFUSED);
    assert_non_null(strstr(g->why.msg, "another model"));
    check(g, 0);
    rig_free(g);
}

TEST(what_is_damaged_is_not_taken)
{
    struct rig *g = rig_new(NULL, NULL);
    for (uint32_t i = 0; i < MANY; i++)
        put(g->from, i);
    g->damages_at = 3;
    assert_int_equal(ask(g, MANY, 5000), KV_PEER_DAMAGED);
    check(g, 3);
    rig_free(g);
}

TEST(a_full_memory_ends_it)
{
    struct rig *g = rig_new(NULL, NULL);
    for (uint32_t i = 0; i < MANY; i++)
        put(g->from, i);
    kv_tier_free(g->to);
    g->to = tier(2, BYTES / 2); /* not even for one */
    assert_int_equal(ask(g, MANY, 5000), KV_PEER_FULL);
    assert_int_equal(g->next, 0);
    kv_tier_free(g->to);
    g->to = tier(2, BYTES * 3); /* the oldest make room for the next */
    assert_int_equal(ask(g, MANY, 5000), KV_PEER_FOUND);
    assert_int_equal(g->next, MANY);
    rig_free(g);
}

TEST(nobody_there)
{
    struct rig *g = rig_new(NULL, NULL);
    put(g->from, 0);
    kv_peer_server_close(g->server);
    g->server = NULL;
    assert_int_equal(ask(g, 1, 5000), KV_PEER_UNREACHABLE);
    const int64_t t0 = clock_ms();
    assert_int_equal(ask(g, 1, 5000), KV_PEER_UNREACHABLE); /* not tried */
    assert_true(clock_ms() - t0 < 1000);
    rig_free(g);
}

TEST(one_who_says_nothing)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    struct rig *g = rig_new(NULL, NULL);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0 && listen(fd, 5) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(g->address, sizeof(g->address), "tcp://127.0.0.1:%d", ntohs(a.sin_port));
    assert_int_equal(ask(g, 1, 100), KV_PEER_LATE);
    close(fd);
    rig_free(g);
}

TEST(a_secret_decides)
{
    struct cluster ours = {
        .kind = CLUSTER_SECRET, .secret = (uint8_t *)(uintptr_t) "correct horse", .n_secret = 13};
    struct cluster other = {
        .kind = CLUSTER_SECRET, .secret = (uint8_t *)(uintptr_t) "battery staple", .n_secret = 14};
    struct cluster open = {.kind = CLUSTER_OPEN};
    const struct {
        struct cluster *ask;
        enum kv_peer_outcome out;
    } rows[] = {{&ours, KV_PEER_FOUND}, {&other, KV_PEER_REFUSED}, {&open, KV_PEER_REFUSED}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rig *g = rig_new(&ours, rows[i].ask);
        put(g->from, 0);
        assert_int_equal(ask(g, 1, 5000), rows[i].out);
        rig_free(g);
    }
    struct rig *g = rig_new(NULL, &open); /* and without one nothing leaves this machine */
    snprintf(g->address, sizeof(g->address), "tcp://192.0.2.1:5600");
    assert_int_equal(ask(g, 1, 5000), KV_PEER_REFUSED);
    rig_free(g);
}

/* A channel keeps the certificates that it began with: another attempt has another channel. */
TEST(a_renewed_certificate_is_tried)
{
    struct certs at, next;
    struct cluster ours, theirs;
    struct err e = ERR_INIT;
    certs_make(&at, "members.test");
    certs_make(&next, "members.test");
    const struct cluster_options o = certs_options(&at, CLUSTER_TLS);
    const struct cluster_options in_next = certs_options(&next, CLUSTER_TLS);
    if (cluster_load(&ours, &o, &e) || cluster_load(&theirs, &in_next, &e))
        fail_msg("%s", e.msg);
    struct rig *g = rig_new(&theirs, &ours);
    put(g->from, 0);
    assert_int_equal(ask(g, 1, 5000), KV_PEER_UNREACHABLE);
    certs_copy(at.cert, next.cert);
    certs_copy(at.key, next.key);
    const int64_t until = clock_ms() + 20000;
    enum kv_peer_outcome out;
    while ((out = ask(g, 1, 5000)) == KV_PEER_UNREACHABLE && clock_ms() < until)
        usleep(100000);
    assert_int_equal(out, KV_PEER_FOUND);
    rig_free(g);
    cluster_free(&ours);
    cluster_free(&theirs);
    certs_remove(&at);
    certs_remove(&next);
}

/* Half of the memory at most is kept for peers, until it was read. */
TEST(what_is_kept_stays)
{
    bool foreign;
    size_t n;
    const size_t each = kv_record_bytes(&(struct kv_layout){.bytes = {BYTES}}, 1);
    struct kv_tier *t = tier(2, 8 * each + 1000);
    const struct kv_layout l = layout(2);
    const int64_t until = clock_ns() + INT64_C(60000000000);
    for (uint32_t i = 1; i < 5; i++) {
        put(t, i);
        kv_tier_keep(t, key(i), until);
    }
    for (uint32_t i = 6; i < 10; i++) {
        put(t, i);
        kv_tier_keep(t, key(i), until); /* no more than half */
    }
    for (uint32_t i = 11; i < 15; i++)
        put(t, i);
    assert_null(kv_tier_read(t, l.identity, key(6), 0, &n, &foreign));
    for (uint32_t i = 1; i < 5; i++) {
        void *r = kv_tier_read(t, l.identity, key(i), 0, &n, &foreign);
        assert_non_null(r);
        assert_int_equal(kv_record_check_head(&l, r, n, key(i)), KV_FINE);
        assert_int_equal(kv_record_check(&l, r), KV_FINE);
        free(r);
    }
    for (uint32_t i = 16; i < 24; i++)
        if (i % 5)
            put(t, i);
    for (uint32_t i = 31; i < 35; i++)
        put(t, i);
    assert_null(kv_tier_read(t, l.identity, key(1), 0, &n, &foreign)); /* it was read: it may go */
    kv_tier_free(t);
}

int main(void) { return tests_run(NULL, NULL); }
