/* The disk tier on a disk that is full, and on one that cannot be read. */
#include "model-server/offload/folder.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 30000, MANY = 64, NO_MOUNT = 99 };

static int reads_left = -1; /* that many reads succeed; negative: all of them */

/* In place of the C library's: the disk of this program fails when it is told to. */
ssize_t read(int fd, void *out, size_t n)
{
    if (reads_left == 0) {
        errno = EIO;
        return -1;
    }
    reads_left -= reads_left > 0;
    return syscall(SYS_read, fd, out, n);
}

static void make_key(uint32_t i, uint8_t key[KV_KEY])
{
    memset(key, 0x5a, KV_KEY);
    key[0] = (uint8_t)i;
}

static bool write_one(struct kv_folder *f, const struct kv_layout *l, uint32_t i)
{
    uint8_t key[KV_KEY];
    const size_t n = kv_record_bytes(l, 1);
    char *record = calloc(1, n);
    make_key(i, key);
    kv_record_begin(l, record, key, 1);
    kv_record_seal(l, record);
    const bool ok = kv_folder_write(f, record, n, key);
    free(record);
    return ok;
}

static bool is_there(struct kv_folder *f, uint32_t i)
{
    uint8_t key[KV_KEY];
    size_t n;
    make_key(i, key);
    void *record = kv_folder_read(f, key, &n);
    free(record);
    return record != NULL;
}

/* Returns 0, or the number of the step that failed. Runs in a process with private mounts. */
static int on_a_small_disk(const char *dir)
{
    struct err e = ERR_INIT;
    struct kv_layout l = {.bytes = {BYTES}};
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", dir, "tmpfs", 0, "size=1m") != 0)
        return NO_MOUNT;
    struct kv_folder *f = kv_folder_open(dir, UINT64_C(1) << 30, &l, &e);
    uint32_t n = 0;
    while (n < MANY && write_one(f, &l, n)) {
        n++;
        nanosleep(&(struct timespec){0, 2000000}, NULL); /* the times of files differ */
    }
    if (n < 20 || n == MANY)
        return 1;
    const struct kv_folder_stats s = kv_folder_stats(f);
    if (s.failed_writes != 1 || s.evictions < n / 10 || s.evictions > n / 5)
        return 2;
    if (is_there(f, 0) || !is_there(f, n - 1) || !is_there(f, n / 2))
        return 3;
    kv_folder_close(f);
    f = kv_folder_open(dir, UINT64_C(1) << 30, &l, &e); /* one that does not pause */
    if (!write_one(f, &l, MANY) || !is_there(f, MANY))
        return 4;
    kv_folder_close(f);
    return 0;
}

TEST(what_was_used_last_stays)
{
    char dir[] = "/tmp/kv-folder-XXXXXX";
    int status;
    assert_non_null(mkdtemp(dir));
    const pid_t pid = fork();
    if (pid == 0)
        _exit(on_a_small_disk(dir));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rmdir(dir);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_MOUNT)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(an_unreadable_file_stays)
{
    char dir[] = "/tmp/kv-folder-XXXXXX";
    struct err e = ERR_INIT;
    struct kv_layout l = {.bytes = {BYTES}};
    assert_non_null(mkdtemp(dir));
    struct kv_folder *f = kv_folder_open(dir, UINT64_C(1) << 30, &l, &e);
    assert_true(write_one(f, &l, 0));
    for (int good = 0; good < 2; good++) { /* the head, or what follows it */
        reads_left = good;
        assert_false(is_there(f, 0));
        reads_left = -1;
        assert_true(is_there(f, 0));
    }
    assert_int_equal(kv_folder_stats(f).damaged, 0);
    kv_folder_close(f);
    assert_int_equal(temp_folder_remove(dir), 0);
}

int main(void) { return tests_run(NULL, NULL); }
