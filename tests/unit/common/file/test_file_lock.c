/* Locks of files of other users, and of what else may be at the path. */
#include "common/file/file_lock.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], path[96];

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/file-lock-XXXXXX");
    if (!mkdtemp(folder) || chmod(folder, 01777) != 0)
        return -1;
    snprintf(path, sizeof(path), "%s/lock", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static unsigned mode_of(const char *file)
{
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    return st.st_mode & 0777;
}

/* What a process of another user gets, where we may be one: 0 is the lock. */
static int elsewhere(void)
{
    int status;
    const pid_t pid = fork();
    if (pid == 0) {
        struct err e = ERR_INIT;
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(9);
        const int fd = file_lock_take(path, &e);
        _exit(fd >= 0 ? 0 : -fd);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST_WITH(one_process_holds_it, begin, end)
{
    struct err e = ERR_INIT;
    const int fd = file_lock_take(path, &e);
    assert_true(fd >= 0);
    assert_int_equal(elsewhere(), -FILE_LOCK_TAKEN);
    file_lock_release(fd, path);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* After its process was killed: the file exists without a lock, and only its owner may write. */
TEST_WITH(a_file_that_another_user_left_is_used_again, begin, end)
{
    struct err e = ERR_INIT;
    const mode_t before = umask(077);
    const int fd = file_lock_take(path, &e);
    umask(before);
    assert_true(fd >= 0);
    assert_int_equal(mode_of(path), 0644);
    close(fd);
    assert_int_equal(elsewhere(), 0);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(elsewhere(), 0);
}

TEST_WITH(nothing_is_locked_through_a_link_and_nothing_waits_at_a_pipe, begin, end)
{
    char other[96];
    struct err e = ERR_INIT;
    snprintf(other, sizeof(other), "%s/other", folder);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(file_lock_take(path, &e), -1);
    assert_int_not_equal(access(other, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0444), 0);
    assert_int_equal(elsewhere(), 0);
}

TEST_WITH(a_folder_that_is_missing_is_named, begin, end)
{
    struct err e = ERR_INIT;
    assert_int_equal(file_lock_take("/nowhere/at-all/lock", &e), -1);
    assert_non_null(strstr(e.msg, "/nowhere/at-all/lock"));
}

int main(void) { return tests_run(NULL, NULL); }
