/* What a program inherits from one that closed or ignored too much. */
#include "common/process/process.h"
#include "tests/unit/test.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a process of its own, which has no way to say more than a number. */
static int begin_without(const int *closed, int n)
{
    int status;
    const pid_t pid = fork();
    if (pid == 0) {
        signal(SIGCHLD, SIG_IGN);
        for (int i = 0; i < n; i++)
            close(closed[i]);
        process_begin();
        for (int i = 0; i < 3; i++)
            if (fcntl(i, F_GETFD) != 0) /* closed, or closed on exec */
                _exit(10 + i);
        raise(SIGXFSZ);
        const int next = open("/dev/null", O_RDONLY);
        if (next < 3)
            _exit(20);
        for (int i = 0; i < n; i++)
            if (write(closed[i], "x", 1) != 1 && errno != EBADF)
                _exit(30);
        const pid_t child = fork();
        if (child == 0)
            _exit(7);
        _exit(waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 40);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(closed_descriptors_are_no_files_and_children_are_waited_for)
{
    assert_int_equal(begin_without(NULL, 0), 7);
    for (int fd = 0; fd < 3; fd++)
        assert_int_equal(begin_without(&fd, 1), 7);
    assert_int_equal(begin_without((const int[]){1, 2}, 2), 7);
    assert_int_equal(begin_without((const int[]){0, 1, 2}, 3), 7);
}

/* The default follows `ulimit -s`, except where that is unlimited. */
TEST(threads_have_the_usual_stack)
{
    for (size_t given = 1 << 20; given <= 16 << 20; given <<= 4) {
        int status;
        const pid_t pid = fork();
        if (pid == 0) {
            pthread_attr_t attr;
            size_t n = 0;
            pthread_attr_init(&attr);
            pthread_attr_setstacksize(&attr, given);
            pthread_setattr_default_np(&attr);
            process_begin();
            pthread_getattr_default_np(&attr);
            pthread_attr_getstacksize(&attr, &n);
            _exit((int)(n >> 20));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), given < 8 << 20 ? 8 : 16);
    }
}

int main(void) { return tests_run(NULL, NULL); }
