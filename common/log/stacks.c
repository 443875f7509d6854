#include "common/log/stacks.h"
#include "common/clock.h"
#include "common/file/file_map.h"
#include "common/hex.h"
#include "common/log/log.h"
#include "common/log/sink.h"
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    FRAMES = 48,
    LINE = 512,
    OURS = 2, /* the top frames: the handler and its return */
    ANSWER_MS = 1000,
    CRASH_S = 10, /* limit for describing a crash */
    SETTLE_MS = 500
};

/* The symbol table of our executable, and its load address. */
static struct {
    const ElfW(Sym) * sym;
    size_t n;
    const char *names;
    size_t n_names;
    uintptr_t bias, from, to;
} own;

/* Shared by the handler and the requesting thread. `tid`: the thread asked; -tid: it is
 * answering. */
static struct {
    atomic_int tid, n;
    atomic_bool done;
    void *frame[FRAMES];
} asked;

/* ---------------------------------------------------------------- names */

static int note_own(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size, (void)arg;
    own.bias = info->dlpi_addr;
    own.from = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD)
            continue;
        own.from = at < own.from ? at : own.from;
        own.to = at + p->p_memsz > own.to ? at + p->p_memsz : own.to;
    }
    return 1; /* the executable is the first entry */
}

static bool inside(uint64_t at, uint64_t n, uint64_t size) { return at <= size && n <= size - at; }

/* A stripped file has no symbol table: frames are then offsets for `addr2line`. */
static void find_symbols(const char *file, size_t size)
{
    const ElfW(Ehdr) *h = (const void *)file;
    if (size < sizeof(*h) || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 ||
        !inside(h->e_shoff, (uint64_t)h->e_shnum * sizeof(ElfW(Shdr)), size))
        return;
    const ElfW(Shdr) *s = (const void *)(file + h->e_shoff);
    for (unsigned i = 0; i < h->e_shnum; i++) {
        if (s[i].sh_type != SHT_SYMTAB || s[i].sh_link >= h->e_shnum)
            continue;
        const ElfW(Shdr) *names = &s[s[i].sh_link];
        if (!inside(s[i].sh_offset, s[i].sh_size, size) ||
            !inside(names->sh_offset, names->sh_size, size) || !names->sh_size ||
            file[names->sh_offset + names->sh_size - 1])
            return;
        own.sym = (const void *)(file + s[i].sh_offset);
        own.n = s[i].sh_size / sizeof(*own.sym);
        own.names = file + names->sh_offset;
        own.n_names = names->sh_size;
        return;
    }
}

static const char *own_name(uintptr_t value, uintptr_t *offset)
{
    for (size_t i = 0; i < own.n; i++) {
        const ElfW(Sym) *s = &own.sym[i];
        if (ELF64_ST_TYPE(s->st_info) == STT_FUNC && value >= s->st_value &&
            value - s->st_value < s->st_size && s->st_name < own.n_names) {
            *offset = value - s->st_value;
            return own.names + s->st_name;
        }
    }
    return NULL;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "#3 http_run+0x1f4 (+0x4a3f4)": the offset in parentheses is for addr2line. All but the first are
 * return addresses: the byte before belongs to the call. */
static void describe(char *out, size_t max, int i, const void *frame)
{
    uintptr_t at = (uintptr_t)frame - (i > 0), offset = 0;
    Dl_info lib = {0};
    if (at >= own.from && at < own.to) {
        const char *name = own_name(at - own.bias, &offset);
        snprintf(out, max, "#%d %s+0x%lx (+0x%lx)", i, name ? name : "?", (unsigned long)offset,
                 (unsigned long)(at - own.bias));
    } else if (dladdr((const void *)at, &lib) && lib.dli_fname) {
        offset = at - (uintptr_t)(lib.dli_sname ? lib.dli_saddr : lib.dli_fbase);
        snprintf(out, max, "#%d %s+0x%lx (%s+0x%lx)", i, lib.dli_sname ? lib.dli_sname : "?",
                 (unsigned long)offset, base_name(lib.dli_fname),
                 (unsigned long)(at - (uintptr_t)lib.dli_fbase));
    } else {
        snprintf(out, max, "#%d 0x%lx", i, (unsigned long)at);
    }
}

/* ---------------------------------------------------------------- all threads */

static int my_tid(void) { return (int)syscall(SYS_gettid); }

static void on_asked(int sig)
{
    int me = my_tid(), keep = errno;
    (void)sig;
    if (atomic_compare_exchange_strong(&asked.tid, &me, -me)) {
        atomic_store(&asked.n, backtrace(asked.frame, FRAMES));
        atomic_store(&asked.done, true);
    }
    errno = keep;
}

/* Requests a thread's stack and waits for the answer, or gives up. */
static bool ask(int tid)
{
    int64_t until = clock_ms() + ANSWER_MS;
    int expected = tid;
    atomic_store(&asked.done, false);
    atomic_store(&asked.tid, tid);
    if (syscall(SYS_tgkill, getpid(), tid, STACKS_SIGNAL) != 0)
        return false;
    while (!atomic_load(&asked.done)) {
        if (clock_ms() >= until && atomic_compare_exchange_strong(&asked.tid, &expected, 0))
            return false;
        if (clock_ms() >= until + ANSWER_MS) /* stuck in the unwinder */
            return false;
        expected = tid;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

static void put(enum log_level level, const char *text)
{
    char line[LINE + 256];
    if (log_on(level))
        log_sink_put(line, log_line(line, sizeof(line), level, text));
}

/* One line of a /proc file, or "?". */
static void proc_line(int tid, const char *file, char *out, size_t max)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/%s", tid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, max - 1) : -1;
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = 0;
    out[strcspn(out, "\n")] = 0;
    if (!*out)
        snprintf(out, max, "?");
}

static void log_thread(int tid)
{
    char comm[32], where[64], text[LINE];
    proc_line(tid, "comm", comm, sizeof(comm));
    bool me = tid == my_tid();
    if (me)
        atomic_store(&asked.n, 0);
    if (!me && !ask(tid)) {
        proc_line(tid, "wchan", where, sizeof(where));
        snprintf(text, sizeof(text), "thread %d (%s) does not answer; in the kernel: %s", tid, comm,
                 where);
        put(LOG_ERROR, text);
        return;
    }
    snprintf(text, sizeof(text), "thread %d (%s)%s", tid, comm, me ? ": it writes this" : "");
    put(LOG_ERROR, text);
    for (int i = OURS; i < atomic_load(&asked.n); i++) {
        describe(text, sizeof(text), i - OURS, asked.frame[i]);
        put(LOG_ERROR, text);
    }
}

void stacks_log(void)
{
    struct stack_entry {
        uint64_t ino;
        int64_t off;
        unsigned short len;
        unsigned char type;
        char name[];
    };
    _Alignas(8) char list[4096];
    int dir = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (long n; dir >= 0 && (n = syscall(SYS_getdents64, dir, list, sizeof(list))) > 0;)
        for (long at = 0; at < n;) {
            const struct stack_entry *d = (const void *)(list + at);
            int tid = 0;
            at += d->len;
            for (const char *p = d->name; *p >= '0' && *p <= '9'; p++)
                tid = tid * 10 + (*p - '0');
            if (tid)
                log_thread(tid);
        }
    if (dir >= 0)
        close(dir);
}

/* ---------------------------------------------------------------- a crash */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void put_now(enum log_level level, const char *text)
{
    char line[LINE + 256];
    size_t n = log_line(line, sizeof(line), level, text);
    if (poll(&(struct pollfd){STDERR_FILENO, POLLOUT, 0}, 1, SETTLE_MS) != 1 ||
        write(STDERR_FILENO, line, n) < 0)
        return;
}

/* A hexadecimal number, and what follows it. */
static uintptr_t hex(const char **p)
{
    uintptr_t v = 0;
    for (int digit; (digit = hex_digit(**p)) >= 0; ++*p)
        v = v * 16 + (uintptr_t)digit;
    return v;
}

/* The file of the mapping that `line` of /proc/self/maps describes, if `at` lies in it. */
static const char *file_at(const char *line, uintptr_t at)
{
    const uintptr_t from = hex(&line), to = *line == '-' ? (line++, hex(&line)) : 0;
    return at >= from && at < to ? strchr(line, '/') : NULL;
}

/* A page of a mapped file cannot be read: the file was shortened, or its disk fails. */
static void name_file(uintptr_t at)
{
    char line[LINE], text[LINE + 64], part[512];
    size_t len = 0;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, part, sizeof(part))) > 0;)
        for (ssize_t i = 0; i < n; i++) {
            if (part[i] != '\n') {
                line[len] = part[i];
                len += len < sizeof(line) - 1;
                continue;
            }
            line[len] = 0;
            len = 0;
            const char *file = file_at(line, at);
            if (file) {
                snprintf(text, sizeof(text), "a mapped file was shortened or cannot be read: %s",
                         file);
                put_now(LOG_ERROR, text);
            }
        }
    if (fd >= 0)
        close(fd);
}

static void on_crash(int sig, siginfo_t *info, void *context)
{
    void *frame[FRAMES];
    char text[LINE];
    sigset_t alarms;
    (void)context;
    signal(SIGALRM, SIG_DFL);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    alarm(CRASH_S);
    log_sink_settle(SETTLE_MS, LOG_FLUSH_MS);
    snprintf(text, sizeof(text), "thread %d ends the process by signal %d; its stack:", my_tid(),
             sig);
    put_now(LOG_WARN, text); /* not ERROR: the cause was logged before */
    if (sig == SIGBUS && info->si_code == BUS_ADRERR)
        name_file((uintptr_t)info->si_addr);
    int n = backtrace(frame, FRAMES);
    for (int i = OURS; i < n; i++) {
        describe(text, sizeof(text), i - OURS, frame[i]);
        put_now(LOG_WARN, text);
    }
    alarm(0);
    raise(sig); /* SA_RESETHAND has removed the handler */
}

static void catch_crashes(void)
{
    /* for the main thread only: a stack overflow in another thread ends the process without a
     * report */
    static char stack[64 << 10];
    const stack_t alternative = {.ss_sp = stack, .ss_size = sizeof(stack)};
    struct sigaction a = {.sa_sigaction = on_crash,
                          .sa_flags = (int)(SA_RESETHAND | SA_ONSTACK | SA_SIGINFO)};
    sigaltstack(&alternative, NULL);
    for (const int *s = (const int[]){SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, 0}; *s; s++)
        sigaction(*s, &a, NULL);
}
#else
static void catch_crashes(void) {}
#endif

void stacks_init(void)
{
    void *first[1];
    size_t size;
    struct err e = ERR_INIT;
    struct sigaction a = {.sa_handler = on_asked, .sa_flags = SA_RESTART};
    /* mapped for the lifetime of the process */
    const char *file = file_map("/proc/self/exe", &size, &e);
    dl_iterate_phdr(note_own, NULL);
    if (file)
        find_symbols(file, size);
    backtrace(first, 1); /* loads the unwinder, which a signal handler must not do */
    sigaction(STACKS_SIGNAL, &a, NULL);
    catch_crashes();
}
