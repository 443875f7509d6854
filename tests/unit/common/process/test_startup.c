/* test_startup.c - what one process writes on the board another one reads. */
#include "common/process/startup.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Rank 1 of two: half of its weights are there. */
static int child(int fd)
{
    struct err e = ERR_INIT;
    struct startup_board *b = startup_board_map(fd, &e);
    if (!b)
        return 1;
    startup_begin(b, 1, STARTUP_CONFIG);
    startup_begin(b, 1, STARTUP_WEIGHTS);
    usleep(20000);
    startup_progress(b, 1, 5, 10);
    return 0;
}

TEST(readers_see_who_is_furthest_behind)
{
    struct err e = ERR_INIT;
    int fd, status;
    char words[64];
    struct startup_board *b = startup_board_new(&fd, &e);
    assert_non_null(b);
    assert_int_equal(startup_look(b, 0, 2).phase, STARTUP_NONE);
    pid_t pid = fork();
    if (pid == 0)
        _exit(child(fd));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(startup_look(b, 0, 2).phase, STARTUP_NONE); /* rank 0 */
    startup_begin(b, 0, STARTUP_CONFIG);
    startup_begin(b, 0, STARTUP_WEIGHTS);
    startup_progress(b, 0, 9, 10);
    struct startup_view v = startup_look(b, 0, 2);
    assert_int_equal(v.phase, STARTUP_WEIGHTS);
    assert_true(v.percent == 50 && v.seconds > 0 && v.left > 0);
    v.left = 12.4;
    startup_words(&v, words, sizeof(words));
    assert_string_equal(words, "weights 50 %, about 12 s left");
    close(fd);
    startup_board_free(b);
}

TEST(phases_add_up)
{
    struct err e = ERR_INIT;
    int fd;
    struct startup_board *b = startup_board_new(&fd, &e);
    double sum = 0;
    assert_non_null(b);
    startup_begin(b, 3, STARTUP_CONFIG);
    usleep(3000);
    startup_begin(b, 3, STARTUP_WEIGHTS);
    usleep(3000);
    assert_true(startup_seconds(b, 3, STARTUP_WEIGHTS) > 0.002); /* while it goes on */
    startup_begin(b, 3, STARTUP_READY);
    for (int p = STARTUP_CONFIG; p < STARTUP_READY; p++)
        sum += startup_seconds(b, 3, (enum startup_phase)p);
    assert_true(sum > 0.005);
    const double all = startup_seconds(b, 3, STARTUP_READY);
    assert_true(all > 0.999 * sum && all < 1.001 * sum);
    assert_true(startup_seconds(b, 3, STARTUP_READY) == all); /* it does not grow */
    startup_begin(b, 3, STARTUP_CONFIG);                      /* another life */
    assert_true(startup_seconds(b, 3, STARTUP_READY) == 0);
    assert_true(startup_seconds(b, 3, STARTUP_WEIGHTS) == 0);
    close(fd);
    startup_board_free(b);
}

TEST(without_a_board_nothing_happens)
{
    struct err e = ERR_INIT;
    startup_begin(NULL, 0, STARTUP_CONFIG);
    startup_progress(NULL, 0, 1, 2);
    startup_add(NULL, 0, STARTUP_KV, 1);
    assert_int_equal(startup_look(NULL, 0, 1).phase, STARTUP_NONE);
    int fd = open("/dev/null", O_RDWR);
    assert_null(startup_board_map(fd, &e));
    assert_non_null(strstr(e.msg, "is not a start-up board"));
    close(fd);
}

int main(void) { return tests_run(NULL, NULL); }
