// The decoding process: reused, killed, hung, ended with its starter, shared by threads.
#include "common/clock.h"
#include "common/image/confine.h"
#include "common/image/decoder.h"
#include "tests/image_made.h"
#include "tests/unit/test.h"
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct image_decoder_options usual = {.limits = {16384, 50000000},
                                                   .timeout_ms = 60000};

static struct image_decoder *decoder_new(const struct image_decoder_options *o)
{
    struct err e = ERR_INIT;
    struct image_decoder *d = image_decoder_new(o, &e);
    assert_non_null(d);
    return d;
}

/* A grey PNG whose pixels are all `value`. */
static struct buf grey(uint32_t side, uint8_t value)
{
    struct buf file = BUF_INIT;
    const struct made_png m = {.width = side, .height = side, .colour = 0, .depth = 8};
    uint8_t *rows = malloc((size_t)side * side);
    memset(rows, value, (size_t)side * side);
    made_png(&file, &m, rows);
    free(rows);
    return file;
}

static void expect_works(struct image_decoder *d, uint32_t side, uint8_t value)
{
    struct buf file = grey(side, value);
    struct image p;
    struct err e = ERR_INIT;
    if (image_decode(d, file.p, file.len, NULL, &p, &e))
        fail_msg("%s", e.msg);
    assert_true(p.width == side && p.height == side);
    for (size_t i = 0; i < (size_t)side * side * 3; i++)
        if (p.rgb[i] != value)
            fail_msg("byte %zu is %d", i, p.rgb[i]);
    image_free(&p);
    assert_null(p.rgb);
    buf_free(&file);
}

static void expect_fails(struct image_decoder *d, const struct buf *file, const char *words)
{
    struct image p;
    struct err e = ERR_INIT;
    assert_int_equal(image_decode(d, file->p, file->len, NULL, &p, &e), -1);
    assert_string_equal(e.msg, words);
    assert_int_equal(e.kind, ERR_VALIDATION);
    assert_null(p.rgb);
}

/* ---------------------------------------------------------------- finding the process */
static bool is_decoder_of(const char *pid, pid_t parent)
{
    char path[300], line[512] = "";
    int ppid = 0;
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    if (!fgets(line, sizeof(line), f))
        line[0] = '\0';
    fclose(f);
    const char *name = strchr(line, '('), *after = strrchr(line, ')');
    return name && after && !strncmp(name, "(image-decoder)", 15) &&
           sscanf(after + 1, " %*c %d", &ppid) == 1 && ppid == parent;
}

/* The decoding process of `parent`; 0: it has none. */
static pid_t decoder_of(pid_t parent)
{
    pid_t found = 0;
    DIR *dir = opendir("/proc");
    assert_non_null(dir);
    for (const struct dirent *one; (one = readdir(dir));)
        if (one->d_name[0] >= '1' && one->d_name[0] <= '9' && is_decoder_of(one->d_name, parent)) {
            assert_int_equal(found, 0);
            found = (pid_t)atoi(one->d_name);
        }
    closedir(dir);
    return found;
}

/* Gone, or a zombie without a parent. */
static bool is_gone(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return true;
    const char *after = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
    fclose(f);
    return !after || after[2] == 'Z' || after[2] == 'X';
}

static void expect_gone(pid_t pid)
{
    const int64_t until = clock_ms() + 20000;
    while (!is_gone(pid)) {
        if (clock_ms() > until)
            fail_msg("process %d lives", pid);
        poll(NULL, 0, 2);
    }
}

/* ---------------------------------------------------------------- one process for many */
TEST(reused)
{
    struct image_decoder *d = decoder_new(&usual);
    assert_int_equal(decoder_of(getpid()), 0); /* not before it is needed */
    const struct buf empty = BUF_INIT;
    expect_fails(d, &empty, "the image is not a PNG, JPEG, WebP or GIF file");
    assert_int_equal(decoder_of(getpid()), 0);
    expect_works(d, 3, 7);
    const pid_t pid = decoder_of(getpid());
    assert_true(pid > 0);
    struct buf cut = grey(50, 9);
    cut.len -= 30;
    expect_fails(d, &cut, "the PNG file is broken or incomplete");
    buf_free(&cut);
    expect_works(d, 3000, 250); /* above what is kept of the shared memory */
    expect_works(d, 10, 1);
    assert_int_equal(decoder_of(getpid()), pid);
    image_decoder_free(d);
    assert_true(is_gone(pid));
    image_decoder_free(NULL);
}

/* No variable of ours, and three descriptors at most. */
TEST(has_nothing_of_ours)
{
    char path[64], names[4096] = "";
    setenv("HF_TOKEN", "a secret", 1);
    struct image_decoder *d = decoder_new(&usual);
    expect_works(d, 2, 2);
    const pid_t pid = decoder_of(getpid());
    snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    FILE *f = fopen(path, "r");
    if (f) { /* root may look */
        const size_t n = fread(names, 1, sizeof(names) - 1, f);
        fclose(f);
        for (size_t at = 0; at < n; at += strlen(names + at) + 1)
            assert_null(strstr(names + at, "secret"));
    }
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    size_t open_files = 0;
    while (dir && readdir(dir))
        open_files++;
    if (dir)
        closedir(dir);
    if (confine_is_strict)
        assert_true(open_files <= 2 + 2); /* the channel and the memory; "." and ".." */
    image_decoder_free(d);
}

TEST(retires)
{
    struct image_decoder_options o = usual;
    struct buf file = grey(2500, 3);
    o.lifetime_s = 1;
    struct image_decoder *d = decoder_new(&o);
    expect_works(d, 2, 2);
    const pid_t first = decoder_of(getpid());
    for (int i = 0; !is_gone(first) && i < 5000; i++) {
        struct image p;
        struct err e = ERR_INIT;
        assert_int_equal(image_decode(d, file.p, file.len, NULL, &p, &e), 0);
        image_free(&p);
    }
    assert_true(is_gone(first));
    expect_works(d, 2, 4);
    buf_free(&file);
    image_decoder_free(d);
}

/* ---------------------------------------------------------------- deaths */
struct killer {
    pid_t pid;
    int after_ms;
};

static void *kill_later(void *arg)
{
    const struct killer *k = arg;
    poll(NULL, 0, k->after_ms);
    kill(k->pid, SIGKILL);
    return NULL;
}

/* Stopped, so that it has the image when it is killed. */
TEST(killed_over_an_image)
{
    struct image_decoder *d = decoder_new(&usual);
    expect_works(d, 2, 2);
    struct killer k = {decoder_of(getpid()), 200};
    pthread_t thread;
    struct buf file = grey(20, 5);
    kill(k.pid, SIGSTOP);
    assert_int_equal(pthread_create(&thread, NULL, kill_later, &k), 0);
    expect_fails(d, &file, "the image ended the process that decoded it");
    pthread_join(thread, NULL);
    expect_works(d, 20, 5);
    assert_true(decoder_of(getpid()) != k.pid);
    buf_free(&file);
    image_decoder_free(d);
}

TEST(killed_while_idle)
{
    struct image_decoder *d = decoder_new(&usual);
    expect_works(d, 2, 2);
    const pid_t pid = decoder_of(getpid());
    kill(pid, SIGKILL);
    expect_gone(pid);
    expect_works(d, 2, 3); /* the next one works */
    image_decoder_free(d);
}

TEST(hangs)
{
    struct image_decoder_options o = usual;
    o.timeout_ms = 300;
    struct image_decoder *d = decoder_new(&o);
    struct buf file = grey(20, 5);
    expect_works(d, 2, 2);
    const pid_t pid = decoder_of(getpid());
    kill(pid, SIGSTOP);
    const int64_t began = clock_ms();
    expect_fails(d, &file, "decoding the image took longer than 300 ms");
    assert_true(clock_ms() - began >= 300);
    assert_true(is_gone(pid));
    expect_works(d, 20, 5);
    buf_free(&file);
    image_decoder_free(d);
}

/* In a process of its own, whose decoder is stopped before an image arrives. */
static void decode_while_paused(int channel)
{
    struct image_decoder_options o = usual;
    o.timeout_ms = 1500;
    struct image_decoder *d = decoder_new(&o);
    expect_works(d, 2, 2);
    const pid_t decoder = decoder_of(getpid());
    kill(decoder, SIGSTOP);
    if (write(channel, &decoder, sizeof(decoder)) != sizeof(decoder))
        _exit(1);
    expect_works(d, 20, 5);
    _exit(0);
}

/* The time in which both processes stood still costs no image. */
TEST(paused_with_its_parent)
{
    int pipes[2], status;
    pid_t decoder;
    assert_int_equal(pipe(pipes), 0);
    const pid_t parent = fork();
    assert_true(parent >= 0);
    if (parent == 0)
        decode_while_paused(pipes[1]);
    assert_int_equal(read(pipes[0], &decoder, sizeof(decoder)), sizeof(decoder));
    poll(NULL, 0, 200); /* it waits for the reply */
    kill(parent, SIGSTOP);
    poll(NULL, 0, 3000);
    kill(parent, SIGCONT);
    poll(NULL, 0, 100); /* a timeout is noticed before the reply comes */
    kill(decoder, SIGCONT);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(pipes[0]);
    close(pipes[1]);
}

static void *start_and_end(void *arg)
{
    expect_works(arg, 2, 2);
    return NULL;
}

/* The process ends with the thread that started it. The next call starts another. */
TEST(its_starter_ended)
{
    pthread_t thread;
    for (int i = 0; i < 20; i++) {
        struct image_decoder *d = decoder_new(&usual);
        assert_int_equal(pthread_create(&thread, NULL, start_and_end, d), 0);
        pthread_join(thread, NULL);
        expect_works(d, 5, 6);
        image_decoder_free(d);
    }
}

/* Killed over an image of another thread than the starter: that may be the starter's end, so the
 * image gets a second try. */
TEST(killed_for_another_thread)
{
    struct image_decoder *d = decoder_new(&usual);
    expect_works(d, 2, 2);
    struct killer k = {decoder_of(getpid()), 200};
    pthread_t killer, user;
    kill(k.pid, SIGSTOP);
    assert_int_equal(pthread_create(&killer, NULL, kill_later, &k), 0);
    assert_int_equal(pthread_create(&user, NULL, start_and_end, d), 0);
    pthread_join(killer, NULL);
    pthread_join(user, NULL);
    assert_true(is_gone(k.pid));
    image_decoder_free(d);
}

TEST(the_parent_ended)
{
    int pipes[2], status;
    pid_t decoder = 0;
    assert_int_equal(pipe(pipes), 0);
    const pid_t parent = fork();
    assert_true(parent >= 0);
    if (parent == 0) {
        struct image_decoder *d = decoder_new(&usual);
        expect_works(d, 2, 2);
        decoder = decoder_of(getpid());
        if (write(pipes[1], &decoder, sizeof(decoder)) != sizeof(decoder))
            _exit(1);
        kill(decoder, SIGSTOP); /* it cannot end by itself */
        pause();
    }
    assert_int_equal(read(pipes[0], &decoder, sizeof(decoder)), sizeof(decoder));
    assert_true(decoder > 0 && !is_gone(decoder));
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    expect_gone(decoder);
    close(pipes[0]);
    close(pipes[1]);
}

/* ---------------------------------------------------------------- load */
struct user {
    struct image_decoder *d;
    uint8_t value;
};

static void *use(void *arg)
{
    const struct user *u = arg;
    for (uint32_t i = 1; i <= 25; i++)
        expect_works(u->d, i * 3, (uint8_t)(u->value + i));
    return NULL;
}

TEST(many_threads)
{
    enum { N = 6 };
    pthread_t threads[N];
    struct user users[N];
    struct image_decoder *d = decoder_new(&usual);
    for (int i = 0; i < N; i++) {
        users[i] = (struct user){d, (uint8_t)(i * 40)};
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    }
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    image_decoder_free(d);
}

static size_t resident_bytes(void)
{
    unsigned long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &all, &resident), 2);
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Sizes beyond the limits take no memory and no process; sizes within them take none for long. */
TEST(bombs)
{
    struct image_decoder_options o = usual;
    o.limits.max_pixels = 1000000;
    struct image_decoder *d = decoder_new(&o);
    struct buf file = grey(3000, 0);
    const size_t before = resident_bytes();
    expect_fails(d, &file,
                 "the image has 3000 x 3000 pixels, more than the 1000000 that are allowed");
    assert_int_equal(decoder_of(getpid()), 0);
    buf_free(&file);
    file = grey(1000, 0);
    file.len = 60; /* a million pixels said, none there */
    for (int i = 0; i < 20; i++)
        expect_fails(d, &file, "the PNG file is broken or incomplete");
    buf_free(&file);
    if (confine_is_strict) /* a sanitizer keeps what was freed */
        assert_true(resident_bytes() < before + (8 << 20));
    image_decoder_free(d);
}

TEST(a_large_file)
{
    struct image_decoder *d = decoder_new(&usual);
    struct image p;
    struct err e = ERR_INIT;
    assert_int_equal(image_decode(d, "", (size_t)IMAGE_FILE_MAX_BYTES + 1, NULL, &p, &e), -1);
    assert_string_equal(e.msg, "the image file has more than 268435456 bytes");
    image_decoder_free(d);
}

int main(int argc, char **argv)
{
    image_decoder_main(argc, argv);
    return tests_run(NULL, NULL);
}
