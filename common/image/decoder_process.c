/* The decoding process: sandboxed first, then a loop of tasks. Its CPU time is limited, so it
 * retires before. */
#include "common/image/canvas.h"
#include "common/image/confine.h"
#include "common/image/decoder.h"
#include "common/image/decoder_wire.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { BYTES_PER_PIXEL = 16, SPARE_BYTES = 64 << 20, N_WORDS = 6 };

static void reply(enum decoder_word word, bool retires, int sys)
{
    const struct decoder_reply r = {.word = word, .retires = retires, .sys = sys};
    if (write(DECODER_CHANNEL, &r, sizeof(r)) != sizeof(r))
        _exit(EXIT_FAILURE);
}

static bool is_old(long lifetime_s)
{
    struct timespec t;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) || t.tv_sec >= lifetime_s;
}

static enum decoder_word work(const struct decoder_task *t)
{
    struct err e = ERR_INIT;
    uint8_t *map = mmap(NULL, t->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, DECODER_MEMORY, 0);
    if (map == MAP_FAILED)
        return DECODER_NO_MEMORY;
    const int rc = image_decode_here(map, t->bytes, &t->info, map + t->pixels_at, &e);
    munmap(map, t->map_bytes);
    return rc == 0 ? DECODER_DONE : e.kind == ERR_VALIDATION ? DECODER_BROKEN : DECODER_NO_MEMORY;
}

/* Terminal signals are for the parent; this process ends when the channel is closed. */
static void ignore_signals(void)
{
    for (const int *s = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, 0}; *s; s++)
        signal(*s, SIG_IGN);
}

/* `words`: arguments from argv. */
static void confine(const char *const *words)
{
    const struct confinement c = {.memory_bytes = strtoull(words[3], NULL, 10) * BYTES_PER_PIXEL +
                                                  IMAGE_FILE_MAX_BYTES + SPARE_BYTES,
                                  .cpu_s = (uint32_t)strtoul(words[5], NULL, 10),
                                  .parent = (int)strtol(words[2], NULL, 10),
                                  .channel = DECODER_CHANNEL};
    struct err e = ERR_INIT;
    close(DECODER_PROGRAM);
    ignore_signals();
    prctl(PR_SET_NAME, "image-decoder");
    if (confine_process(&c, &e)) {
        reply(DECODER_UNCONFINED, true, e.sys);
        _exit(EXIT_FAILURE);
    }
    reply(DECODER_READY, false, 0);
}

void image_decoder_main(int argc, char **argv)
{
    struct decoder_task t;
    if (argc != N_WORDS || strcmp(argv[1], DECODER_WORD) != 0)
        return;
    confine((const char *const *)argv);
    const long lifetime_s = strtol(argv[4], NULL, 10);
    while (read(DECODER_CHANNEL, &t, sizeof(t)) == sizeof(t)) {
        const enum decoder_word word = work(&t);
        const bool retires = is_old(lifetime_s);
        reply(word, retires, 0);
        if (retires)
            break;
    }
    _exit(EXIT_SUCCESS);
}
