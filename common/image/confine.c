#include "common/image/confine.h"
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STRICT false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STRICT false
#endif
#endif
#ifndef STRICT
#define STRICT true
#endif
const bool confine_is_strict = STRICT;

/* ---------------------------------------------------------------- limits */
/* Bytes currently mapped: program and libraries. 0: unknown. */
static uint64_t mapped_bytes(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f)
        return 0;
    if (fscanf(f, "%llu", &pages) != 1)
        pages = 0;
    fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int limit(int what, uint64_t value, struct err *e)
{
    const struct rlimit l = {value, value};
    struct rlimit now;
    if (getrlimit(what, &now) == 0 && now.rlim_max <= value) /* the existing limit is lower */
        return 0;
    return setrlimit(what, &l) ? err_sys(e, "a resource limit could not be set") : 0;
}

static int set_limits(const struct confinement *c, struct err *e)
{
    const uint64_t mapped = mapped_bytes();
    if (!mapped)
        return err_set(e, ERR_SYSTEM, "/proc/self/statm cannot be read");
    if (STRICT && limit(RLIMIT_AS, mapped + c->memory_bytes, e))
        return -1;
    return limit(RLIMIT_CPU, c->cpu_s, e) || limit(RLIMIT_CORE, 0, e) ||
                   limit(RLIMIT_FSIZE, 0, e) || limit(RLIMIT_NPROC, 0, e) ||
                   (STRICT && limit(RLIMIT_NOFILE, 0, e))
               ? -1
               : 0;
}

/* Raises the OOM score: the kernel kills this process before its parent. */
static void raise_oom_score(void)
{
    FILE *f = fopen("/proc/self/oom_score_adj", "we");
    if (f) {
        fputs("1000", f);
        fclose(f);
    }
}

/* ---------------------------------------------------------------- the filter */
static int allow(scmp_filter_ctx f, int call)
{
    return seccomp_rule_add(f, SCMP_ACT_ALLOW, call, 0);
}

/* Allows mappings, except executable ones. */
static int allow_memory(scmp_filter_ctx f)
{
    static const int calls[] = {SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
                                SCMP_SYS(brk)};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(calls) / sizeof(calls[0]); i++)
        rc = allow(f, calls[i]);
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                              SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
                              SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    return rc;
}

static int add_strict_rules(scmp_filter_ctx f, int channel)
{
    static const int calls[] = {SCMP_SYS(exit),         SCMP_SYS(exit_group),
                                SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall),
                                SCMP_SYS(futex),        SCMP_SYS(clock_gettime)};
    const struct scmp_arg_cmp the_channel = SCMP_A0_64(SCMP_CMP_EQ, (scmp_datum_t)channel);
    int rc = allow_memory(f);
    for (size_t i = 0; rc == 0 && i < sizeof(calls) / sizeof(calls[0]); i++)
        rc = allow(f, calls[i]);
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(read), 1, the_channel);
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(write), 1, the_channel);
    return rc;
}

static int add_loose_rules(scmp_filter_ctx f)
{
    static const int calls[] = {SCMP_SYS(socket),   SCMP_SYS(connect), SCMP_SYS(execve),
                                SCMP_SYS(execveat), SCMP_SYS(fork),    SCMP_SYS(vfork)};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(calls) / sizeof(calls[0]); i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), calls[i], 0);
    return rc;
}

static int install_filter(int channel, struct err *e)
{
    scmp_filter_ctx f = seccomp_init(STRICT ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ALLOW);
    if (!f)
        return err_nomem(e);
    int rc = STRICT ? add_strict_rules(f, channel) : add_loose_rules(f);
    if (rc == 0)
        rc = seccomp_load(f); /* also sets no_new_privs */
    seccomp_release(f);
    errno = -rc;
    return rc ? err_sys(e, "no filter of system calls could be set") : 0;
}

int confine_process(const struct confinement *c, struct err *e)
{
    raise_oom_score();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_DUMPABLE, 0))
        return err_sys(e, "prctl");
    if (getppid() != c->parent)
        return err_set(e, ERR_SYSTEM, "the parent has ended");
    if (set_limits(c, e))
        return -1;
    if (STRICT) {
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
    }
    return install_filter(c->channel, e);
}
