/* test_target.c - a client waits for the file of a Unix socket, and for no other target. */
#include "common/clock.h"
#include "common/rpc/target.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *make_file(void *path)
{
    usleep(100000);
    const int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    return NULL;
}

TEST(a_socket_is_waited_for)
{
    char dir[] = "/tmp/target-XXXXXX", target[128];
    pthread_t t;
    assert_non_null(mkdtemp(dir));
    snprintf(target, sizeof(target), "unix://%s/s", dir);
    const int64_t start = clock_ms();
    rpc_target_await(target, 50); /* too early */
    assert_true(clock_ms() >= start + 50);
    assert_int_equal(pthread_create(&t, NULL, make_file, target + strlen("unix://")), 0);
    rpc_target_await(target, 60000);
    assert_int_equal(access(target + strlen("unix://"), F_OK), 0);
    assert_true(clock_ms() < start + 30000);
    pthread_join(t, NULL);
    unlink(target + strlen("unix://"));
    rmdir(dir);
}

TEST(a_port_is_not)
{
    const int64_t start = clock_ms();
    rpc_target_await("tcp://127.0.0.1:9", 60000);
    rpc_target_await("127.0.0.1:9", 60000);
    assert_true(clock_ms() < start + 30000);
}

int main(void) { return tests_run(NULL, NULL); }
