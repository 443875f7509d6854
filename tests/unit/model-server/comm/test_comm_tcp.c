/* test_comm_tcp.c - the same collectives over TCP, between processes of this machine: exact and
 * equal sums. A rank that ends, leaves, is late, is absent or does not belong is named to all. */
#include "common/clock.h"
#include "common/net/cluster.h"
#include "model-server/comm/comm_tcp_handshake.h"
#include "tests/certs.h"
#include "tests/unit/model-server/comm/ranks.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <sys/socket.h>

static int port;
static int per_machine = 1;
static struct cluster cluster; /* zeroed: open */

/* ---------------------------------------------------------------- a name that comes late */

static const char late_name[] = "rank-0.late.test";
static int unknown_for; /* look-ups of late_name that fail, in this process */

/* In place of libc's: a resolver that has the name after some queries. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (host && !strcmp(host, late_name)) {
        if (unknown_for-- > 0)
            return EAI_NONAME;
        host = "127.0.0.1";
    }
    return real(host, service, hints, out);
}

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (void *)&a, n), 0);
    assert_int_equal(getsockname(fd, (void *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static struct comm *meet_at(const char *host, int rank, int world, int nodes, int timeout_ms,
                            struct err *e)
{
    return comm_tcp_open(&(struct comm_tcp_options){.host = host,
                                                    .port = port,
                                                    .rank = rank,
                                                    .world = world,
                                                    .nodes = nodes,
                                                    .cluster = &cluster,
                                                    .timeout_ms = timeout_ms},
                         e);
}

static struct comm *meet(int rank, int world, int nodes, int timeout_ms, struct err *e)
{
    return meet_at("127.0.0.1", rank, world, nodes, timeout_ms, e);
}

static struct comm *join(int rank, int world, int timeout_ms, struct err *e)
{
    struct comm *c = meet(rank, world, world / per_machine, timeout_ms, e);
    if (!c)
        fprintf(stderr, "%s\n", e->msg);
    return c;
}

static void run(rank_fn *fn, int world)
{
    port = free_port();
    run_ranks(fn, world);
}

TEST(all_ranks_hold_the_sums_of_shared_memory)
{
    for (int world = 1; world <= 4; world++)
        run(sums, world);
    run(hurry, 2);
    run(hurry, 3);
    run(gathers, 2);
    run(gathers, 5);
}

/* Small sums that come one behind the other: what a TLS session has read ahead is not forgotten. */
TEST(sums_are_the_same_by_a_secret_and_by_tls)
{
    struct err e = ERR_INIT;
    struct certs c;
    certs_make(&c, "ranks.test");
    for (int kind = CLUSTER_SECRET; kind <= CLUSTER_TLS; kind++) {
        struct cluster_options o = certs_options(&c, (enum cluster_kind)kind);
        assert_int_equal(cluster_load(&cluster, &o, &e), 0);
        for (int world = 2; world <= 4; world++)
            run(sums, world);
        run(hurry, 3);
        run(gathers, 3);
        cluster_free(&cluster);
    }
    certs_remove(&c);
}

/* ---------------------------------------------------------------- losses */

static int wait_check(struct comm *c, int want, const char *words)
{
    struct err e = ERR_INIT;
    int rc = 0;
    for (int i = 0; i < 500 && !(rc = c->ops->check(c, &e)); i++)
        usleep(10000);
    return rc == want && strstr(e.msg, words);
}

static int one_dies(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 30000, &e);
    float x = 1;
    if (!c || comm_all_reduce(c, &x, 1, &e) || (rank != 1 && c->ops->check(c, &e)))
        return 1;
    if (rank == 1) {
        usleep(1000000); /* the others have looked */
        raise(SIGKILL);
    }
    if (!wait_check(c, -1, "rank 1 (127.0.0.1) died"))
        return 2;
    if (!comm_all_reduce(c, &x, 1, &e) || !strstr(e.msg, "rank 1 (127.0.0.1) died"))
        return 3;
    if (!comm_all_reduce(c, &x, 1, &e) || !strstr(e.msg, "died"))
        return 4;
    usleep(1000000); /* so that the first to close is not taken for a second loss */
    comm_close(c);
    return 0;
}

TEST(a_rank_that_dies_is_named)
{
    pid_t pids[3];
    int status[3];
    port = free_port();
    ranks_start(one_dies, 3, pids);
    ranks_end(3, pids, status);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 128 + SIGKILL);
    assert_int_equal(status[2], 0);
}

/* Rank 1 of three: authenticates to rank 0, gives a port without a listener, and ends when all
 * ranks have connected. */
static int arrive_and_die(int world)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct hello h = {.magic = GREETING_MAGIC,
                      .world = (uint32_t)world,
                      .nodes = (uint32_t)world,
                      .rank = 1,
                      .port = 1,
                      .version = VERSION};
    struct err e = ERR_INIT;
    char c;
    for (int i = 0; i < 500; i++, usleep(10000)) {
        struct tcp_peer p = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
        if (!connect(p.fd, (void *)&a, sizeof(a)) &&
            !link_introduce(&p, &cluster, &h, clock_ms() + 5000, &e))
            return link_transfer(&p, &c, 1, false, clock_ms() + 5000) ? 1 : 0;
        link_close(&p);
    }
    return 2;
}

/* The others do not wait for it as long as for one that has not arrived yet. */
static int one_dies_on_arrival(int rank, int world)
{
    const int64_t begun = clock_ms();
    struct err e = ERR_INIT;
    if (rank == 1)
        return arrive_and_die(world);
    const char *why =
        rank ? "rank 0 (127.0.0.1) died while others were waited for" : "rank 1 (127.0.0.1) died";
    if (meet(rank, world, world, 30000, &e) || !strstr(e.msg, why))
        return 3;
    return clock_ms() - begun < 20000 ? 0 : 4;
}

TEST(a_rank_that_dies_on_arrival_is_not_waited_for) { run(one_dies_on_arrival, 3); }

static int one_leaves(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 30000, &e);
    int rc = 0;
    if (!c)
        return 1;
    if (rank == 0) {
        float x = 1;
        if (!wait_check(c, COMM_LEFT + 1, "rank 1 (127.0.0.1) has left"))
            rc = 2;
        else if (!comm_all_reduce(c, &x, 1, &e) || !strstr(e.msg, "rank 1 (127.0.0.1) has left"))
            rc = 3;
    }
    comm_close(c);
    usleep(rank ? 300000 : 0); /* alive, but gone */
    return rc;
}

/* An exchange that reads the closing message records it for later checks. */
static int one_leaves_another_that_waits(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 30000, &e);
    float x = 1;
    int rc = 0;
    if (!c)
        return 1;
    if (rank)
        usleep(300000);
    else if (!comm_recv(c, 1, &x, 1, &e) || !strstr(e.msg, "rank 1 (127.0.0.1) has left"))
        rc = 2;
    else if (!wait_check(c, COMM_LEFT + 1, "rank 1 (127.0.0.1) has left"))
        rc = 3;
    comm_close(c);
    usleep(rank ? 300000 : 0);
    return rc;
}

/* Ranks that are not at the same place find out instead of adding up what does not belong. */
static int one_differs(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 5000, &e);
    float x[4] = {1};
    if (!c)
        return 1;
    int rc = comm_all_reduce(c, x, rank ? 4 : 3, &e) && strstr(e.msg, "bytes, this one at") ? 0 : 2;
    usleep(1000000);
    comm_close(c);
    return rc;
}

TEST(a_rank_that_leaves_is_late_or_differs_is_named)
{
    run(one_leaves, 2);
    run(one_leaves_another_that_waits, 2);
    run(one_is_late, 2);
    run(one_differs, 2);
}

TEST(the_same_of_ranks_that_speak_tls)
{
    struct err e = ERR_INIT;
    struct certs c;
    certs_make(&c, "ranks.test");
    struct cluster_options o = certs_options(&c, CLUSTER_TLS);
    assert_int_equal(cluster_load(&cluster, &o, &e), 0);
    a_rank_that_dies_is_named(state);
    a_rank_that_leaves_is_late_or_differs_is_named(state);
    cluster_free(&cluster);
    certs_remove(&c);
}

/* ---------------------------------------------------------------- meetings that fail */

static int refused(int rank, int world, int nodes, int timeout_ms, const char *words)
{
    struct err e = ERR_INIT;
    int64_t t = clock_ms();
    if (meet(rank, world, nodes, timeout_ms, &e))
        return 1;
    if (strstr(e.msg, words) && clock_ms() - t < 15000)
        return 0;
    fprintf(stderr, "rank %d: %s\n", rank, e.msg);
    return 2;
}

static int one_misses(int rank, int world)
{
    return refused(rank, world + 1, world + 1, rank ? 10000 : 1500,
                   "rank 2 of machine 2 did not come within 1.5 s");
}

static int rank_0_misses(int rank, int world)
{
    return refused(rank + 1, world + 1, 2, 300, "rank 0 did not answer at 127.0.0.1:");
}

static int another_world(int rank, int world)
{
    return refused(rank, rank ? 4 : world, rank ? 4 : world, 4000,
                   "rank 1 (127.0.0.1) says 4 ranks on 4 machines, rank 0 says 2 on 2");
}

static int the_same_rank(int rank, int world)
{
    (void)world;
    return refused(rank ? 1 : 0, 3, 3, 4000, "rank 1, which is here already");
}

static int one_dies_waiting(int rank, int world)
{
    struct err e = ERR_INIT;
    if (rank == 0)
        return refused(0, world + 1, 3, 4500, "rank 1 (127.0.0.1) died while others were waited");
    alarm(1);
    meet(1, world + 1, 3, 4500, &e);
    return 1;
}

TEST(a_meeting_that_fails_says_why_to_all)
{
    struct err e = ERR_INIT;
    pid_t pids[2];
    int status[2];
    run(one_misses, 2);
    run(rank_0_misses, 1);
    run(another_world, 2);
    run(the_same_rank, 3);
    port = free_port();
    ranks_start(one_dies_waiting, 2, pids);
    ranks_end(2, pids, status);
    assert_int_equal(status[0], 0);
    assert_null(meet(2, 2, 2, 100, &e));
    assert_null(meet(0, 3, 2, 100, &e));
    assert_int_equal(e.kind, ERR_VALIDATION);
}

/* ---------------------------------------------------------------- names that come late */

static int name_comes_late(int rank, int world)
{
    struct err e = ERR_INIT;
    unknown_for = 1 + rank;
    struct comm *c = meet_at(late_name, rank, world, world, 60000, &e);
    float x = 1;
    if (!c)
        return fprintf(stderr, "%s\n", e.msg), 1;
    int rc = comm_all_reduce(c, &x, 1, &e) || unknown_for > 0 || x < (float)world ? 2 : 0;
    comm_close(c);
    return rc;
}

static int name_never_comes(int rank, int world)
{
    struct err e = ERR_INIT;
    unknown_for = 1000;
    if (meet_at(late_name, rank, world + 1, world + 1, 1500, &e) || unknown_for > 998)
        return 1;
    return strstr(e.msg, late_name) && strstr(e.msg, "within 1.5 s (--master-addr") ? 0 : 2;
}

TEST(a_name_may_come_late)
{
    run(name_comes_late, 2);
    run(name_never_comes, 2);
}

/* Guests who are no ranks do not disturb: one says nothing, one something else, one hangs up. */
static int with_strangers(int rank, int world)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const char words[400] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    if (rank == 1) {
        for (int i = 0; i < 3; i++) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            while (connect(fd, (void *)&a, sizeof(a)))
                usleep(10000);
            if (i == 1 && send(fd, words, sizeof(words), 0) < 0)
                return 9;
            if (i == 2)
                close(fd);
        }
    }
    return sums(rank, world);
}

TEST(strangers_are_sent_away) { run(with_strangers, 2); }

enum { CROWD = 200 };

/* More silent connections than are listened to: rank 1 gets in, and not after they have left. */
static int with_a_crowd(int rank, int world)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; rank == 1 && i < CROWD; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        while (connect(fd, (void *)&a, sizeof(a)))
            usleep(10000);
    }
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 20000, &e);
    float x = 1;
    int rc = !c || comm_all_reduce(c, &x, 1, &e) || x != (float)world;
    if (c)
        comm_close(c);
    return rc;
}

TEST(a_crowd_keeps_nobody_out)
{
    struct err e = ERR_INIT;
    struct certs c;
    certs_make(&c, "ranks.test");
    for (int kind = CLUSTER_OPEN; kind <= CLUSTER_TLS; kind++) {
        struct cluster_options o = certs_options(&c, (enum cluster_kind)kind);
        assert_int_equal(cluster_load(&cluster, &o, &e), 0);
        run(with_a_crowd, 2);
        cluster_free(&cluster);
    }
    certs_remove(&c);
}

/* ---------------------------------------------------------------- messages and parts */

TEST(messages_arrive_whole_and_in_order)
{
    for (int world = 2; world <= 4; world++)
        run(messages, world);
    run(from_the_last, 3);
}

TEST(parts_of_the_ranks_are_communicators)
{
    run(grid_of_two, 4);
    run(grid_of_two, 6);
    run(grid_of_one, 3);
    run(grid_of_all, 3);
}

static int grid_on_two_machines(int rank, int world)
{
    per_machine = 2;
    return grid(rank, world, 2);
}

TEST(parts_within_a_machine_share_memory) { run(grid_on_two_machines, 4); }

TEST(who_dies_in_another_part_is_named)
{
    pid_t pids[3];
    int status[3];
    port = free_port();
    ranks_start(one_dies_apart, 3, pids);
    ranks_end(3, pids, status);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 128 + SIGKILL);
    assert_int_equal(status[2], 0);
}

TEST(messages_have_a_deadline_and_a_size)
{
    run(nobody_answers, 2);
    run(sizes_differ, 2);
}

TEST(messages_and_parts_by_tls)
{
    struct err e = ERR_INIT;
    struct certs c;
    certs_make(&c, "ranks.test");
    struct cluster_options o = certs_options(&c, CLUSTER_TLS);
    assert_int_equal(cluster_load(&cluster, &o, &e), 0);
    run(messages, 3);
    run(grid_of_two, 4);
    who_dies_in_another_part_is_named(state);
    messages_have_a_deadline_and_a_size(state);
    cluster_free(&cluster);
    certs_remove(&c);
}

int main(void) { return tests_run(NULL, NULL); }
