/* Files of packed weights: what was written is read, and nothing else is. */
#include "model-server/packed/file.h"
#include "tests/check/random.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ITEMS = 5 };

static char root[] = "/tmp/packed-test-XXXXXX";
static char path[64];
static const uint8_t key[PACKED_KEY] = {1, 2, 3};
static struct pacer pacer;

/* Pieces of many sizes, one of which crosses the end of a chunk. */
static const uint64_t sizes[ITEMS][2] = {
    {64, 1}, {PACKED_CHUNK - 100, 0}, {4000, 77}, {PACKED_CHUNK, 64}, {5, 5}};
static struct packed_item items[ITEMS];

static void make_items(void)
{
    struct rng rng = rng_new();
    for (int i = 0; i < ITEMS; i++) {
        items[i] = (struct packed_item){.entry.what = 100 + (uint64_t)i};
        for (int k = 0; k < 2; k++) {
            char *p = malloc(sizes[i][k] + 1);
            assert_non_null(p);
            for (uint64_t j = 0; j < sizes[i][k]; j++)
                p[j] = (char)rng_below(&rng, 256);
            items[i].piece[k] = (struct weight_piece){p, sizes[i][k]};
        }
        memset(items[i].entry.head, i, sizeof(items[i].entry.head));
        snprintf(items[i].entry.notes[0].format, PACKED_WORD, "q%d", i);
    }
}

static void write_it(void)
{
    struct err e = ERR_INIT;
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    if (packed_file_write(fd, items, ITEMS, key, &pacer, &e))
        fail_msg("%s", e.msg);
    close(fd);
}

static bool payload_is_fine(const struct packed_file *f)
{
    for (uint32_t i = 0; i < f->n_sums; i++)
        if (!packed_file_check(f, i))
            return false;
    return true;
}

/* As a load decides: damaged in the trailer, the table or the payload is all the same. */
static enum packed_verdict verdict(const uint8_t *of)
{
    struct packed_file f;
    enum packed_verdict v = packed_file_open(&f, path, of);
    if (v == PACKED_FINE) {
        v = payload_is_fine(&f) ? PACKED_FINE : PACKED_DAMAGED;
        packed_file_close(&f);
    }
    return v;
}

TEST(what_was_written_is_read)
{
    struct packed_file f;
    struct stat st;
    write_it();
    assert_int_equal(packed_file_open(&f, path, key), PACKED_FINE);
    assert_true(stat(path, &st) == 0);
    assert_int_equal(st.st_size, packed_file_bytes(items, ITEMS));
    assert_int_equal(f.size, st.st_size);
    assert_int_equal(f.n, ITEMS);
    assert_true(f.n_sums == 3 && payload_is_fine(&f));
    for (uint32_t i = 0; i < ITEMS; i++) {
        const struct weight_image im = packed_file_image(&f, i);
        assert_int_equal(f.entries[i].what, 100 + i);
        assert_string_equal(f.entries[i].notes[0].format, items[i].entry.notes[0].format);
        assert_memory_equal(im.head, items[i].entry.head, sizeof(im.head));
        for (int k = 0; k < 2; k++) {
            assert_int_equal(im.piece[k].bytes, sizes[i][k]);
            if (sizes[i][k])
                assert_memory_equal(im.piece[k].data, items[i].piece[k].data, sizes[i][k]);
            assert_true((uintptr_t)im.piece[k].data % WEIGHT_ALIGN == 0);
        }
    }
    packed_file_close(&f);
}

TEST(any_bit_that_differs_is_noticed)
{
    struct rng rng = rng_new();
    struct stat st;
    write_it();
    assert_true(stat(path, &st) == 0);
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    for (int i = 0; i < 120; i++) {
        /* half of them in the table and the trailer, the last bytes of which mean nothing */
        const off_t tail = i % 2 ? 4000 : st.st_size;
        const off_t at = st.st_size - 1 - (off_t)(rng_u32(&rng) % (uint64_t)tail);
        uint8_t was, is;
        assert_int_equal(pread(fd, &was, 1, at), 1);
        is = was ^ (uint8_t)(1U << rng_below(&rng, 8));
        assert_int_equal(pwrite(fd, &is, 1, at), 1);
        const enum packed_verdict v = verdict(key);
        if (v == PACKED_FINE)
            assert_true(at > st.st_size - WEIGHT_ALIGN); /* behind the trailer's members */
        else
            assert_int_equal(v, PACKED_DAMAGED);
        assert_int_equal(pwrite(fd, &was, 1, at), 1);
    }
    assert_int_equal(verdict(key), PACKED_FINE);
    close(fd);
}

TEST(another_length_is_damage)
{
    struct stat st;
    write_it();
    assert_true(stat(path, &st) == 0);
    const off_t lengths[] = {0,
                             1,
                             WEIGHT_ALIGN,
                             st.st_size / 2 / WEIGHT_ALIGN * WEIGHT_ALIGN,
                             st.st_size - WEIGHT_ALIGN,
                             st.st_size - 1};
    for (int i = 5; i >= 0; i--) {
        assert_int_equal(truncate(path, lengths[i]), 0);
        assert_int_equal(verdict(key), PACKED_DAMAGED);
    }
    write_it();
    assert_int_equal(truncate(path, st.st_size + WEIGHT_ALIGN), 0);
    assert_int_equal(verdict(key), PACKED_DAMAGED);
}

TEST(another_key_is_foreign)
{
    uint8_t other[PACKED_KEY];
    write_it();
    memcpy(other, key, sizeof(other));
    other[PACKED_KEY - 1] ^= 1;
    assert_int_equal(verdict(other), PACKED_FOREIGN);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(verdict(key), PACKED_MISSING);
    assert_int_equal(mkdir(path, 0700), 0); /* and what is no file is none */
    assert_int_equal(verdict(key), PACKED_DAMAGED);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(verdict(key), PACKED_DAMAGED);
    assert_int_equal(unlink(path), 0);
}

/* A shared mapping sees every write to the file. */
TEST(a_write_while_it_is_mapped_is_noticed)
{
    struct packed_file f, other;
    const struct timespec tick = {.tv_nsec = 20000000}; /* of the file system's clock */
    write_it();
    nanosleep(&tick, NULL);
    assert_int_equal(packed_file_open(&f, path, key), PACKED_FINE);
    assert_int_equal(packed_file_open(&other, path, key), PACKED_FINE); /* another rank's use */
    packed_file_close(&other);
    assert_true(packed_file_intact(&f));
    const int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "x", 1, 70), 1);
    close(fd);
    assert_false(packed_file_intact(&f));
    packed_file_close(&f);
    write_it();
    assert_int_equal(packed_file_open(&f, path, key), PACKED_FINE);
    assert_true(truncate(path, 4096) == 0);
    assert_false(packed_file_intact(&f));
    packed_file_close(&f);
}

TEST(a_stop_ends_the_writing)
{
    struct err e = ERR_INIT;
    struct pacer stopped;
    pacer_init(&stopped);
    pacer_stop(&stopped);
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(packed_file_write(fd, items, ITEMS, key, &stopped, &e), 1);
    pacer_destroy(&stopped);
    close(fd);
    assert_int_equal(verdict(key), PACKED_DAMAGED);
}

TEST(a_full_disk_is_an_error)
{
    struct err e = ERR_INIT;
    const int fd = open("/dev/full", O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(packed_file_write(fd, items, ITEMS, key, &pacer, &e), -1);
    assert_true(e.msg[0]);
    close(fd);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(root))
        return -1;
    pacer_init(&pacer);
    snprintf(path, sizeof(path), "%s/a.packed", root);
    make_items();
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    pacer_destroy(&pacer);
    for (int i = 0; i < ITEMS; i++)
        for (int k = 0; k < 2; k++)
            free((void *)(uintptr_t)items[i].piece[k].data);
    return temp_folder_remove(root);
}

int main(void) { return tests_run(set_up, clean_up); }
