/* test_comm.c - collectives between forked processes: sums and gathers are exact and equal on all
 * ranks, a dead or absent rank is named and no rank hangs, nothing stays in /dev/shm. */
#include "tests/unit/model-server/comm/ranks.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

static int left_behind(void)
{
    int n = 0;
    DIR *d = opendir("/dev/shm");
    for (struct dirent *f; d && (f = readdir(d));)
        n += !strncmp(f->d_name, "model-server-test-comm-", 23);
    if (d)
        closedir(d);
    return n;
}

static struct comm *join(int rank, int world, int timeout_ms, struct err *e)
{
    struct comm *c = comm_shm_open(group, rank, world, timeout_ms, e);
    if (!c)
        fprintf(stderr, "%s\n", e->msg);
    return c;
}

TEST(all_ranks_hold_the_same_sum)
{
    for (int world = 1; world <= 4; world++)
        run_ranks(sums, world);
    run_ranks(hurry, 2);
    run_ranks(hurry, 3);
    assert_int_equal(left_behind(), 0);
}

TEST(gathering_keeps_the_order_of_ranks)
{
    run_ranks(gathers, 2);
    run_ranks(gathers, 5);
    assert_int_equal(left_behind(), 0);
}

/* ---------------------------------------------------------------- failures */

/* Rank 1 ends in the middle; the calls of the others fail, at once and again. */
static int one_dies(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 30000, &e);
    float x = 1;
    if (!c || comm_all_reduce(c, &x, 1, &e))
        return 1;
    if (rank == 1)
        raise(SIGKILL);
    int64_t t = clock_ms();
    if (!comm_all_reduce(c, &x, 1, &e) || e.kind != ERR_SYSTEM || clock_ms() - t > 3000)
        return 2;
    if (!strstr(e.msg, "rank 1 (pid ") || !strstr(e.msg, ") died"))
        return 3;
    if (!comm_all_reduce(c, &x, 1, &e) || !strstr(e.msg, "died"))
        return 4;
    comm_close(c);
    return 0;
}

TEST(a_rank_that_dies_is_named)
{
    pid_t pids[3];
    int status[3];
    ranks_start(one_dies, 3, pids);
    ranks_end(3, pids, status); /* in order: rank 0 ends while rank 1 is still a zombie */
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 128 + SIGKILL);
    assert_int_equal(status[2], 0);
    assert_int_equal(left_behind(), 0);
}

static int one_leaves(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 30000, &e);
    if (!c)
        return 1;
    int rc = 0;
    if (rank == 0) {
        float x = 1;
        rc = comm_all_reduce(c, &x, 1, &e) && strstr(e.msg, "has left") ? 0 : 2;
    }
    comm_close(c);
    if (rank)
        usleep(300000); /* alive, but gone */
    return rc;
}

TEST(a_rank_that_leaves_or_is_late_is_named)
{
    run_ranks(one_leaves, 2);
    run_ranks(one_is_late, 2);
}

/* Rank 1 arrives half a second of its own time later, within the timeout. */
static int paused(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = join(rank, world, 2000, &e);
    float x = 1;
    for (int i = 0; rank == 1 && i < 50; i++)
        usleep(10000);
    if (!c || comm_all_reduce(c, &x, 1, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    comm_close(c);
    return 0;
}

/* As when their container is paused for longer than the timeout. */
TEST(ranks_that_are_stopped_together_go_on)
{
    pid_t pids[2];
    int status[2];
    ranks_start(paused, 2, pids);
    usleep(200000);
    for (int i = 0; i < 2; i++)
        kill(pids[i], SIGSTOP);
    usleep(2500000);
    for (int i = 0; i < 2; i++)
        kill(pids[i], SIGCONT);
    ranks_end(2, pids, status);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

/* Only some of the ranks are started. */
static int alone(int rank, int world)
{
    struct err e = ERR_INIT;
    int64_t t = clock_ms();
    if (comm_shm_open(group, rank, world + 1, 150, &e) || clock_ms() - t > 5000)
        return 1;
    char want[64];
    snprintf(want, sizeof(want), "rank %d did not arrive within 0.15 s", rank ? 0 : 1);
    return strstr(e.msg, want) && e.kind == ERR_SYSTEM ? 0 : 2;
}

static int alone_as_rank_1(int rank, int world)
{
    (void)rank;
    return alone(1, world);
}

TEST(a_rank_that_never_comes_is_named)
{
    run_ranks(alone, 1);
    run_ranks(alone_as_rank_1, 1);
    assert_int_equal(left_behind(), 0);
}

static int wrong_world(int rank, int world)
{
    struct err e = ERR_INIT;
    struct comm *c = comm_shm_open(group, rank, rank ? world + 1 : world, rank ? 5000 : 1500, &e);
    if (c)
        return 1;
    return rank == 0 || (e.kind == ERR_VALIDATION && strstr(e.msg, "rank 0 says there are 2")) ? 0
                                                                                               : 2;
}

static int same_rank_twice(int rank, int world)
{
    (void)rank, (void)world;
    struct err e = ERR_INIT;
    struct comm *c = comm_shm_open(group, 0, 2, 600, &e);
    return !c && (strstr(e.msg, "another rank 0") || strstr(e.msg, "did not arrive")) ? 0 : 1;
}

TEST(ranks_that_disagree_are_refused)
{
    struct err e = ERR_INIT;
    run_ranks(wrong_world, 2);
    run_ranks(same_rank_twice, 2);
    assert_null(comm_shm_open("g", 2, 2, 100, &e));
    assert_null(comm_shm_open("g", -1, 2, 100, &e));
    assert_null(comm_shm_open("g", 0, 0, 100, &e));
    assert_null(comm_shm_open("g", 0, 100000, 100, &e));
    assert_int_equal(e.kind, ERR_VALIDATION);
    assert_int_equal(left_behind(), 0);
}

/* Rank 0 of an earlier group was killed while it waited: its segment still has the name. */
static int wait_forever(int rank, int world)
{
    struct err e = ERR_INIT;
    comm_shm_open(group, rank, world + 1, 50000, &e);
    return 0;
}

static int meet_late(int rank, int world)
{
    if (rank == 0)
        usleep(200000); /* the others find the old segment first */
    return sums(rank, world);
}

TEST(a_dead_group_is_replaced)
{
    pid_t pids[3];
    int status[3];
    ranks_start(wait_forever, 1, pids);
    for (int i = 0; i < 500 && !left_behind(); i++)
        usleep(10000);
    assert_int_equal(left_behind(), 1);
    kill(pids[0], SIGKILL);
    ranks_end(1, pids, status);
    for (int r = 0; r < 3; r++)
        if (!(pids[r] = fork()))
            _exit(meet_late(r, 3)); /* same group name */
    ranks_end(3, pids, status);
    for (int r = 0; r < 3; r++)
        assert_int_equal(status[r], 0);
    assert_int_equal(left_behind(), 0);
}

/* Killed with its launcher: another group removes what it left, but not what is still wanted. */
TEST(what_a_dead_group_left_is_removed)
{
    static const char *const path[] = {"/dev/shm/model-server-test-left",
                                       "/dev/shm/model-server-test-used"};
    const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    int fd[2];
    for (int i = 0; i < 2; i++) {
        fd[i] = open(path[i], O_CREAT | O_RDWR, 0600);
        assert_true(fd[i] >= 0);
        if (i == 1)
            assert_int_equal(flock(fd[i], LOCK_EX), 0);
        futimens(fd[i], old);
    }
    run_ranks(sums, 2);
    assert_int_not_equal(access(path[0], F_OK), 0);
    assert_int_equal(access(path[1], F_OK), 0);
    unlink(path[1]);
    close(fd[0]);
    close(fd[1]);
}

static int joins_and_looks(int rank, int world)
{
    struct err e = ERR_INIT;
    return !join(rank, world, 20000, &e) || left_behind();
}

/* A rank that fails right after the meeting takes the others with it: the name is gone by then. */
TEST(the_name_is_gone_before_anyone_leaves_the_meeting)
{
    for (int i = 0; i < 40; i++)
        run_ranks(joins_and_looks, 4);
}

TEST(a_world_of_one_is_the_identity)
{
    struct err e = ERR_INIT;
    struct comm *c = comm_solo();
    float x[3] = {1, 2, 3}, y[3];
    assert_int_equal(c->world, 1);
    assert_int_equal(comm_all_reduce(c, x, 3, &e), 0);
    assert_int_equal(c->ops->all_reduce(c, x, 3, &e), 0);
    assert_int_equal(c->ops->all_gather(c, x, y, 3, &e), 0);
    assert_int_equal(c->ops->barrier(c, &e), 0);
    assert_memory_equal(x, y, sizeof(x));
    comm_close(c);
    comm_close(NULL);
}

/* ---------------------------------------------------------------- messages and parts */

TEST(messages_arrive_whole_and_in_order)
{
    for (int world = 2; world <= 4; world++)
        run_ranks(messages, world);
    run_ranks(from_the_last, 3);
    assert_int_equal(left_behind(), 0);
}

TEST(parts_of_the_ranks_are_communicators)
{
    run_ranks(grid_of_two, 4);
    run_ranks(grid_of_two, 6);
    run_ranks(grid_of_one, 3);
    run_ranks(grid_of_all, 3);
    assert_int_equal(left_behind(), 0);
}

TEST(who_dies_in_another_part_is_named)
{
    pid_t pids[3];
    int status[3];
    ranks_start(one_dies_apart, 3, pids);
    ranks_end(3, pids, status);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 128 + SIGKILL);
    assert_int_equal(status[2], 0);
}

TEST(messages_have_a_deadline_and_a_size)
{
    run_ranks(nobody_answers, 2);
    run_ranks(sizes_differ, 2);
}

int main(void) { return tests_run(NULL, NULL); }
