#include "common/image/decoder.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/image/canvas.h"
#include "common/image/decoder_wire.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum {
    LIFETIME_S = 60,
    START_MS = 30000,      /* a program may load slowly from disk */
    KEEP_BYTES = 16 << 20, /* shared memory kept between images */
    FIRST_FD = 10,         /* above the numbers of the process' own descriptors */
    POLL_MS = 100,
    /* If a poll takes longer, this process did not run, and the other one may not have either:
     * their container was paused. Such time does not count towards a timeout. */
    STOPPED_MS = 1000,
};

struct image_decoder {
    struct image_decoder_options options;
    pthread_mutex_t turn;
    /* The following belongs to the thread that holds the turn. */
    pid_t pid;       /* 0: no process */
    pid_t starter;   /* the thread that started it; the process is killed when it ends */
    int channel;     /* -1: no process */
    int memory;      /* a memfd; -1: not created yet */
    size_t capacity; /* of `memory` */
};

/* The outcome of an exchange. */
enum outcome {
    ANSWERED,
    ENDED, /* the process crashed while decoding */
    LOST,  /* it ended with its starting thread, or before the task */
    TIMED_OUT,
};

/* ---------------------------------------------------------------- the process */
static int fd_above(int fd)
{
    if (fd < 0)
        return -1;
    const int high = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD);
    const int why = errno;
    close(fd);
    errno = why;
    return high;
}

static int make_memory(struct image_decoder *d, struct err *e)
{
    if (d->memory >= 0)
        return 0;
    int fd = memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* a kernel before 6.3 */
        fd = memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    d->memory = fd_above(fd);
    /* The process must not shrink the memory while we read it. */
    if (d->memory < 0 || fcntl(d->memory, F_ADD_SEALS, F_SEAL_SHRINK))
        return err_sys(e, "memory for the image decoder");
    return 0;
}

/* The process gets no environment, because ours contains keys and tokens. Variables of the loader
 * and sanitizers stay. */
static void pick_environment(char *names[], size_t cap)
{
    static const char *const kept[] = {
        "LD_LIBRARY_PATH=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS=", "LSAN_OPTIONS="};
    size_t n = 0;
    for (char **v = environ; v && *v; v++)
        for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]) && n + 1 < cap; i++)
            if (!strncmp(*v, kept[i], strlen(kept[i])))
                names[n++] = *v;
    names[n] = NULL;
}

/* `program`: this program, opened. Executed by descriptor, because /proc/self/exe would be valgrind
 * under valgrind. */
static int spawn(struct image_decoder *d, int theirs, int program)
{
    char parent[24], pixels[24], lifetime[24], seconds[24], path[32], *environment[8];
    char name[] = "image-decoder", word[] = DECODER_WORD;
    char *words[] = {name, word, parent, pixels, lifetime, seconds, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    snprintf(parent, sizeof(parent), "%ld", (long)getpid());
    snprintf(pixels, sizeof(pixels), "%llu", (unsigned long long)d->options.limits.max_pixels);
    snprintf(lifetime, sizeof(lifetime), "%u", d->options.lifetime_s);
    snprintf(seconds, sizeof(seconds), "%u",
             d->options.lifetime_s + d->options.timeout_ms / 1000 + 2);
    pick_environment(environment, sizeof(environment) / sizeof(environment[0]));
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, theirs, DECODER_CHANNEL);
    posix_spawn_file_actions_adddup2(&files, d->memory, DECODER_MEMORY);
    posix_spawn_file_actions_adddup2(&files, program, DECODER_PROGRAM);
    posix_spawn_file_actions_addclosefrom_np(&files, DECODER_PROGRAM + 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", DECODER_PROGRAM);
    const int rc = posix_spawn(&d->pid, path, &files, &attributes, words, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

/* Kills it if it runs. Returns its wait status. After the channel was closed, the status is its
 * own. */
static int end_process(struct image_decoder *d)
{
    int status = 0;
    if (!d->pid)
        return 0;
    kill(d->pid, SIGKILL);
    while (waitpid(d->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(d->channel);
    d->channel = -1;
    d->pid = 0;
    return status;
}

/* 1: a reply; 0: the channel was closed; -1: timeout. */
static int receive(const struct image_decoder *d, int64_t timeout_ms, struct decoder_reply *r)
{
    struct pollfd p = {d->channel, POLLIN, 0};
    int64_t now = clock_ms(), deadline = now + timeout_ms;
    for (int n = 0; n <= 0;) {
        const int64_t left = deadline - now, before = now;
        n = poll(&p, 1, left > POLL_MS ? POLL_MS : left > 0 ? (int)left : 0);
        if (n < 0 && errno != EINTR)
            return 0;
        now = clock_ms();
        if (now - before > STOPPED_MS)
            deadline += now - before;
        if (n == 0 && now >= deadline)
            return -1;
    }
    return recv(d->channel, r, sizeof(*r), MSG_DONTWAIT) == sizeof(*r);
}

static int await_ready(struct image_decoder *d, struct err *e)
{
    struct decoder_reply r;
    if (receive(d, START_MS, &r) == 1) {
        if (r.word == DECODER_READY)
            return 0;
        if (r.word == DECODER_UNCONFINED)
            return err_set(e, ERR_SYSTEM,
                           "the image decoder cannot be confined, so it does not run: %s",
                           strerrordesc_np(r.sys) ? strerrordesc_np(r.sys) : "unknown error");
    }
    return err_set(e, ERR_SYSTEM, "the image decoder did not start");
}

/* Creates channel and memory, and starts the process. 0, or errno. */
static int spawn_with_channel(struct image_decoder *d)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return errno;
    CLEANUP(cleanup_fd) int theirs = fd_above(ends[1]);
    CLEANUP(cleanup_fd) int program = fd_above(open("/proc/self/exe", O_PATH | O_CLOEXEC));
    d->channel = fd_above(ends[0]);
    const int rc = theirs < 0 || program < 0 || d->channel < 0 ? errno : spawn(d, theirs, program);
    if (rc == 0) {
        d->starter = gettid();
        return 0;
    }
    cleanup_fd(&d->channel);
    d->channel = -1;
    d->pid = 0;
    return rc;
}

static int start(struct image_decoder *d, struct err *e)
{
    if (make_memory(d, e))
        return -1;
    if ((errno = spawn_with_channel(d)))
        return err_sys(e, "the image decoder could not be started");
    if (await_ready(d, e)) {
        end_process(d);
        return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- one image */
/* Allocates `n` bytes of the memory, so that a lack of pages is an error here, not a signal on
 * access. */
static int reserve(struct image_decoder *d, size_t n)
{
    int rc;
    do
        rc = fallocate(d->memory, 0, 0, (off_t)n);
    while (rc && errno == EINTR);
    if (rc && (errno == EOPNOTSUPP || errno == ENOSYS))
        rc = n > d->capacity ? ftruncate(d->memory, (off_t)n) : 0;
    if (rc == 0 && n > d->capacity)
        d->capacity = n;
    return rc;
}

/* Maps the shared memory, with the file in it. NULL: out of memory. */
static uint8_t *share_memory(struct image_decoder *d, const void *bytes,
                             const struct decoder_task *t, struct err *e)
{
    uint8_t *map = MAP_FAILED;
    if (reserve(d, t->map_bytes) == 0)
        map = mmap(NULL, t->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d->memory, 0);
    if (map == MAP_FAILED) {
        err_sys(e, "memory for an image");
        return NULL;
    }
    memcpy(map, bytes, t->bytes);
    return map;
}

static void release_memory(struct image_decoder *d, uint8_t *map, size_t n)
{
    munmap(map, n);
    if (n > KEEP_BYTES &&
        fallocate(d->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)d->capacity)) {
        close(d->memory); /* not supported here: replace the memory, with a new process */
        d->memory = -1;
        d->capacity = 0;
        end_process(d);
    }
}

static enum outcome exchange(struct image_decoder *d, const struct decoder_task *t,
                             struct decoder_reply *r)
{
    if (send(d->channel, t, sizeof(*t), MSG_NOSIGNAL) != sizeof(*t)) {
        end_process(d);
        return LOST;
    }
    const int got = receive(d, d->options.timeout_ms, r);
    if (got == 1) {
        if (r->retires)
            end_process(d);
        return ANSWERED;
    }
    const bool by_thread = d->starter != gettid();
    const int status = end_process(d);
    if (got < 0)
        return TIMED_OUT;
    return by_thread && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? LOST : ENDED;
}

/* Converts the outcome for an image to an error. */
static int judge(const struct image_decoder *d, enum outcome how, const struct decoder_reply *r,
                 enum image_format format, struct err *e)
{
    if (how == TIMED_OUT)
        return err_set(e, ERR_VALIDATION, "decoding the image took longer than %u ms",
                       d->options.timeout_ms);
    if (how != ANSWERED)
        return err_set(e, ERR_VALIDATION, "the image ended the process that decoded it");
    switch (r->word) {
    case DECODER_DONE:
        return 0;
    case DECODER_NO_MEMORY:
        return err_set(e, ERR_VALIDATION, "decoding the image exceeds the memory limit");
    default:
        return image_broken(format, e);
    }
}

static int decode_in_turn(struct image_decoder *d, const void *bytes, const struct decoder_task *t,
                          uint8_t *rgb, struct err *e)
{
    struct decoder_reply r = {0};
    enum outcome how = LOST;
    uint8_t *map = NULL;
    /* A process that ended for another reason is replaced once for the same image. */
    for (int tries = 0; how == LOST && tries < 2; tries++) {
        if (!d->pid && start(d, e))
            break;
        if (!map && !(map = share_memory(d, bytes, t, e)))
            break;
        how = exchange(d, t, &r);
    }
    int rc = -1;
    if (map && e->kind == ERR_NONE) {
        rc = judge(d, how, &r, t->info.format, e);
        if (rc == 0)
            memcpy(rgb, map + t->pixels_at, image_bytes(&t->info));
    }
    if (map)
        release_memory(d, map, t->map_bytes);
    return rc;
}

int image_decode(struct image_decoder *d, const void *bytes, size_t n,
                 const struct image_times *times, struct image *out, struct err *e)
{
    struct decoder_task t = {.bytes = n};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *out = (struct image){0};
    if (n > IMAGE_FILE_MAX_BYTES)
        return err_set(e, ERR_VALIDATION, "the image file has more than %d bytes",
                       IMAGE_FILE_MAX_BYTES);
    if (image_sniff(bytes, n, &d->options.limits, &t.info, e))
        return -1;
    if (times)
        t.info.times = *times;
    const size_t pixels = image_bytes(&t.info);
    if (pixels / 3 > d->options.limits.max_pixels)
        return err_set(e, ERR_VALIDATION, "the frames of the animation have more than %llu pixels",
                       (unsigned long long)d->options.limits.max_pixels);
    t.pixels_at = (n + page - 1) / page * page;
    t.map_bytes = t.pixels_at + pixels;
    uint8_t *rgb = malloc(pixels);
    struct err why = ERR_INIT;
    if (!rgb)
        return err_nomem(e);
    pthread_mutex_lock(&d->turn);
    const int rc = decode_in_turn(d, bytes, &t, rgb, &why);
    pthread_mutex_unlock(&d->turn);
    if (rc) {
        free(rgb);
        *e = why;
        return -1;
    }
    *out = (struct image){.width = t.info.width,
                          .height = t.info.height,
                          .rgb = rgb,
                          .frames = t.info.times.frames,
                          .fps = t.info.times.frames ? t.info.times.fps : 0};
    return 0;
}

/* ---------------------------------------------------------------- life */
struct image_decoder *image_decoder_new(const struct image_decoder_options *o, struct err *e)
{
    struct image_decoder *d = malloc(sizeof(*d));
    if (!d) {
        err_nomem(e);
        return NULL;
    }
    *d = (struct image_decoder){.options = *o, .channel = -1, .memory = -1};
    if (!d->options.lifetime_s)
        d->options.lifetime_s = LIFETIME_S;
    pthread_mutex_init(&d->turn, NULL);
    return d;
}

void image_decoder_free(struct image_decoder *d)
{
    if (!d)
        return;
    end_process(d);
    if (d->memory >= 0)
        close(d->memory);
    pthread_mutex_destroy(&d->turn);
    free(d);
}
