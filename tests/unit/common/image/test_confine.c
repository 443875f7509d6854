// A confined process: what it can still do, and what ends it.
#include "common/image/confine.h"
#include "tests/unit/test.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMORY = 64 << 20, FINE = 0, WRONG = 9, UNCONFINED = 10 };

/* Runs `body` in a confined process whose channel is a pair of sockets. Its wait status. */
static int confined(int (*body)(int channel))
{
    int ends[2], status = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    const pid_t parent = getpid(), pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct err e = ERR_INIT;
        const struct confinement c = {
            .memory_bytes = MEMORY, .cpu_s = 1, .parent = parent, .channel = ends[1]};
        _exit(confine_process(&c, &e) ? UNCONFINED : body(ends[1]));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(ends[0]);
    close(ends[1]);
    return status;
}

static int works(int channel)
{
    char *p = malloc(1 << 20), *big = malloc(8 << 20);
    if (!p || !big)
        return WRONG;
    memset(p, 1, 1 << 20);
    memset(big, 1, 8 << 20);
    p = realloc(p, 4 << 20);
    free(p);
    free(big);
    return write(channel, "x", 1) == 1 ? FINE : WRONG;
}

static int takes_much_memory(int channel)
{
    (void)channel;
    return mmap(NULL, 2 * (size_t)MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0) == MAP_FAILED
               ? FINE
               : WRONG;
}

static int takes_much_time(int channel)
{
    (void)channel;
    for (volatile unsigned i = 0;; i++)
        ;
    return WRONG;
}

TEST(what_it_can)
{
    assert_int_equal(confined(works), FINE);
    if (!confine_is_strict) {
        TEST_SKIPPED(1, "a sanitizer's address space is not limited");
        return;
    }
    assert_int_equal(confined(takes_much_memory), FINE);
}

/* Limited to one second. */
TEST(time_is_limited)
{
    const int status = confined(takes_much_time);
    assert_true(WIFSIGNALED(status));
    assert_true(WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL);
}

/* By number, so that no library comes between. */
static int opens(int c) { return syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY) < 0 || c; }
static int connects(int c) { return syscall(SYS_socket, AF_INET, SOCK_STREAM, 0) < 0 || c; }
static int forks(int c) { return syscall(SYS_fork) < 0 || c; }
static int clones(int c) { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) < 0 || c; }
static int executes(int c) { return syscall(SYS_execve, "/bin/true", NULL, NULL) < 0 || c; }
static int kills(int c) { return syscall(SYS_kill, getppid(), 0) < 0 || c; }
static int traces(int c) { return syscall(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0) < 0 || c; }
static int changes_limits(int c) { return syscall(SYS_prlimit64, 0, RLIMIT_AS, 0, 0) < 0 || c; }
static int receives_files(int c) { return syscall(SYS_recvmsg, c, NULL, 0) < 0 || c; }
static int truncates(int c) { return syscall(SYS_ftruncate, c, 0) < 0 || c; }
static int duplicates(int c) { return syscall(SYS_dup, c) < 0 || c; }
static int closes(int c) { return syscall(SYS_close, c) < 0 || c; }
static int reads_another(int c)
{
    char byte;
    return syscall(SYS_read, c + 1, &byte, 1) < 0 || c;
}
static int writes_another(int c) { return syscall(SYS_write, STDERR_FILENO, "x", 1) < 0 || c; }
static int maps_code(int c)
{
    return syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                   0) < 0 ||
           c;
}
static int makes_code(int c)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return syscall(SYS_mprotect, p, 4096, PROT_READ | PROT_EXEC) < 0 || c;
}

TEST(what_it_cannot)
{
    static const struct {
        const char *name;
        int (*body)(int channel);
    } rows[] = {{"open", opens},
                {"socket", connects},
                {"fork", forks},
                {"clone", clones},
                {"execve", executes},
                {"kill", kills},
                {"ptrace", traces},
                {"prlimit64", changes_limits},
                {"recvmsg", receives_files},
                {"ftruncate", truncates},
                {"dup", duplicates},
                {"close", closes},
                {"read of another descriptor", reads_another},
                {"write to another descriptor", writes_another},
                {"mmap of code", maps_code},
                {"mprotect to code", makes_code}};
    if (!confine_is_strict) {
        TEST_SKIPPED(sizeof(rows) / sizeof(rows[0]), "a sanitizer's filter only refuses some");
        return;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const int status = confined(rows[i].body);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
            fail_msg("%s: wait status %#x", rows[i].name, (unsigned)status);
    }
}

static int is_refused(int channel)
{
    (void)channel;
    return syscall(SYS_socket, AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM ? FINE : WRONG;
}

TEST(what_a_sanitizer_leaves)
{
    if (!confine_is_strict)
        assert_int_equal(confined(is_refused), FINE);
}

TEST(a_parent_that_ended)
{
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct err e = ERR_INIT;
        const struct confinement c = {.memory_bytes = MEMORY, .cpu_s = 1, .parent = 1 << 30};
        _exit(confine_process(&c, &e) == -1 && e.kind == ERR_SYSTEM ? FINE : WRONG);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, FINE);
}

int main(void) { return tests_run(NULL, NULL); }
