/* Blocks below the KV cache: what goes in comes out with every bit, and nothing else does. */
#include "common/clock.h"
#include "common/hash.h"
#include "model-server/offload/folder.h"
#include "model-server/offload/tier.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 4096, WINDOW = 1000, STATE = 3001, MANY = 40 };
TEMP_FOLDER(root, "tier-test")

static struct kv_layout layout(uint8_t id)
{
    struct kv_layout l = {.bytes = {BYTES, WINDOW, STATE}};
    memset(l.identity, id, sizeof(l.identity));
    memset(l.folder, id, sizeof(l.folder));
    return l;
}

static struct kv_tier *tier(const char *dir, uint64_t dir_bytes, uint64_t memory, uint8_t id)
{
    struct err e = ERR_INIT;
    struct kv_layout l = layout(id);
    struct kv_tier *t = kv_tier_new(&(struct kv_tier_options){dir, dir_bytes, memory}, &e);
    assert_non_null(t);
    assert_int_equal(kv_tier_layout(t, &l, &e), 0);
    return t;
}

static const uint8_t *key(uint32_t i)
{
    static uint8_t k[256][KV_KEY];
    uint64_t h = hash_mix(i + 1);
    for (int b = 0; b < KV_KEY; b++)
        k[i][b] = (uint8_t)(h >> b % 8 * 8) ^ (uint8_t)b;
    return k[i];
}

static void fill(uint8_t *p, size_t n, uint32_t i, int part)
{
    for (size_t b = 0; b < n; b++)
        p[b] = (uint8_t)hash_mix(i * 7919 + (uint64_t)part * 104729 + b);
}

static bool put(struct kv_tier *t, uint32_t i, unsigned parts)
{
    const struct kv_layout *l = kv_tier_laid_out(t);
    void *r;
    if (!kv_tier_begin(t, key(i), parts, &r))
        return false;
    for (int p = 0; r && p < KV_N_PARTS; p++)
        if (parts >> p & 1)
            fill(kv_record_part(l, r, p), l->bytes[p], i, p);
    if (r)
        kv_tier_put(t, r);
    return true;
}

static uint32_t fetch(struct kv_tier *t, uint64_t id, uint32_t from, uint32_t n, uint8_t *parts,
                      uint32_t *disk, bool *more)
{
    const uint8_t *keys[256];
    for (uint32_t i = 0; i < n; i++)
        keys[i] = key(from + i);
    return kv_tier_fetch(t, id, keys, n, parts, disk, more);
}

static void same(struct kv_tier *t, uint64_t id, uint32_t i, unsigned parts)
{
    uint8_t want[BYTES];
    assert_true(kv_tier_hold(t));
    for (int p = 0; p < KV_N_PARTS; p++) {
        const void *got = kv_tier_ready(t, id, key(i), p);
        assert_true(!got == !(parts >> p & 1));
        fill(want, kv_tier_laid_out(t)->bytes[p], i, p);
        if (got)
            assert_memory_equal(got, want, kv_tier_laid_out(t)->bytes[p]);
    }
    kv_tier_release(t);
}

static uint32_t found(struct kv_tier *t, uint32_t from, uint32_t n, uint32_t *disk)
{
    uint8_t parts[256];
    bool more;
    return fetch(t, 77, from, n, parts, disk, &more);
}

static void written(struct kv_tier *t, uint64_t n)
{
    for (int i = 0; i < 5000 && kv_tier_stats(t).written < n; i++)
        usleep(1000);
    assert_int_equal(kv_tier_stats(t).written, n);
}

/* ------------------------------------------------------------------ in memory */

TEST(memory_alone_keeps_what_was_used_last)
{
    const size_t each = KV_RECORD_HEAD + BYTES;
    struct kv_tier *t = tier(NULL, 0, 10 * each + 100, 1);
    uint32_t disk;
    for (uint32_t i = 0; i < 10; i++)
        assert_true(put(t, i, 1));
    assert_int_equal(found(t, 0, 3, &disk), 3); /* a fetch is a use, and holds what it found */
    for (uint32_t i = 10; i < 17; i++)
        assert_true(put(t, i, 1));
    assert_int_equal(found(t, 3, 1, &disk), 0);
    assert_int_equal(found(t, 0, 3, &disk), 3);
    same(t, 77, 1, 1);
    assert_int_equal(kv_tier_stats(t).memory_evictions, 7);
    assert_true(kv_tier_stats(t).memory_bytes <= 10 * each + 100);
    kv_tier_free(t);
}

TEST(parts_come_one_after_the_other)
{
    struct kv_tier *t = tier(NULL, 0, 1 << 20, 1);
    uint8_t parts[2];
    uint32_t disk;
    bool more;
    put(t, 0, 1);
    put(t, 1, 3);
    put(t, 0, 4);
    put(t, 0, 1); /* nothing new */
    assert_int_equal(fetch(t, 5, 0, 2, parts, &disk, &more), 2);
    assert_int_equal(parts[0], 5);
    assert_int_equal(parts[1], 3);
    assert_false(more);
    same(t, 5, 0, 5);
    same(t, 5, 1, 3);
    same(t, 6, 1, 0); /* another fetch */
    kv_tier_free(t);
}

TEST(a_prompt_larger_than_memory_comes_in_pieces)
{
    struct kv_tier *t = tier(root, 1 << 30, 40000, 9);
    uint8_t parts[MANY];
    uint32_t disk, at = 0;
    bool more = true;
    for (uint32_t i = 0; i < MANY; i++)
        while (!put(t, i, 1)) /* the disk is behind */
            usleep(1000);
    written(t, MANY); /* until then no block in memory makes room for another */
    for (int round = 0; more && round < MANY; round++) {
        const uint32_t n = fetch(t, 100 + round, at, MANY - at, parts, &disk, &more);
        assert_true(n > 0);
        for (uint32_t i = 0; i < n; i++)
            same(t, 100 + round, at + i, 1);
        at += n;
    }
    assert_int_equal(at, MANY);
    kv_tier_free(t);
}

/* ------------------------------------------------------------------ in a folder */

TEST(a_folder_survives_its_service)
{
    char dir[100];
    uint32_t disk;
    uint8_t parts[MANY];
    bool more;
    snprintf(dir, sizeof(dir), "%s/survives", root);
    struct kv_tier *t = tier(dir, 1 << 30, 1 << 24, 2);
    for (uint32_t i = 0; i < MANY; i++)
        assert_true(put(t, i, i % 3 ? 1 : 7));
    kv_tier_free(t); /* writes what is left */
    t = tier(dir, 1 << 30, 1 << 24, 2);
    assert_int_equal(fetch(t, 3, 0, MANY + 1, parts, &disk, &more), MANY);
    assert_int_equal(disk, MANY);
    assert_false(more);
    for (uint32_t i = 0; i < MANY; i++)
        same(t, 3, i, i % 3 ? 1 : 7);
    assert_int_equal(found(t, 0, MANY, &disk), MANY);
    assert_int_equal(disk, 0); /* now in memory */
    put(t, 5, 1);              /* is there: not written again */
    kv_tier_free(t);
    t = tier(dir, 1 << 30, 1 << 24, 3); /* another model's */
    assert_int_equal(found(t, 0, 1, &disk), 0);
    kv_tier_free(t);
}

/* The first file below `dir` that ends in .kv, in `out`. */
static bool a_file(const char *dir, char *out, size_t n)
{
    DIR *d = opendir(dir);
    bool any = false;
    for (struct dirent *x; d && !any && (x = readdir(d));) {
        char path[600];
        snprintf(path, sizeof(path), "%s/%s", dir, x->d_name);
        if (x->d_name[0] == '.')
            continue;
        if (strstr(x->d_name, ".kv")) {
            snprintf(out, n, "%s", path);
            any = true;
        } else {
            any = a_file(path, out, n);
        }
    }
    if (d)
        closedir(d);
    return any;
}

static void damage(const char *path, int how)
{
    struct stat st;
    const int fd = open(path, O_RDWR);
    char c;
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    const off_t at = how == 0 ? st.st_size - 1 : how == 1 ? 20 : how == 2 ? 130 : 0;
    if (how == 3) {
        assert_int_equal(ftruncate(fd, st.st_size / 2), 0);
    } else if (how == 4) {
        assert_int_equal(ftruncate(fd, 0), 0);
    } else if (how == 5) {
        assert_int_equal(ftruncate(fd, st.st_size + 1), 0);
    } else {
        assert_int_equal(pread(fd, &c, 1, at), 1);
        c ^= 16;
        assert_int_equal(pwrite(fd, &c, 1, at), 1);
    }
    close(fd);
}

TEST(what_is_damaged_is_no_hit)
{
    char dir[100], path[600];
    uint32_t disk;
    snprintf(dir, sizeof(dir), "%s/damaged", root);
    for (int how = 0; how < 6; how++) {
        struct kv_tier *t = tier(dir, 1 << 30, 1 << 24, 2);
        put(t, 0, 7);
        written(t, 1);
        kv_tier_free(t);
        assert_true(a_file(dir, path, sizeof(path)));
        damage(path, how);
        t = tier(dir, 1 << 30, 1 << 24, 2);
        assert_int_equal(found(t, 0, 1, &disk), 0);
        assert_int_equal(kv_tier_stats(t).damaged, 1);
        assert_false(a_file(dir, path, sizeof(path))); /* it makes room for a good one */
        kv_tier_free(t);
    }
}

/* A whole file of another key, and of another model, in the place of ours. */
TEST(what_is_foreign_is_no_hit)
{
    char dir[100], path[600], other[700];
    uint32_t disk;
    snprintf(dir, sizeof(dir), "%s/foreign", root);
    for (uint8_t id = 2; id < 4; id++) {
        struct kv_tier *t = tier(dir, 1 << 30, 1 << 24, id);
        put(t, id == 2, 1);
        written(t, 1);
        kv_tier_free(t);
        assert_true(a_file(dir, path, sizeof(path)));
        snprintf(other, sizeof(other), "%s/moved", root);
        assert_int_equal(rename(path, other), 0);
        t = tier(dir, 1 << 30, 1 << 24, 2);
        put(t, 0, 1);
        written(t, 1);
        kv_tier_free(t);
        assert_true(a_file(dir, path, sizeof(path)));
        assert_int_equal(rename(other, path), 0);
        t = tier(dir, 1 << 30, 1 << 24, 2);
        assert_int_equal(found(t, 0, 1, &disk), 0);
        assert_int_equal(kv_tier_stats(t).foreign, 1);
        kv_tier_free(t);
        assert_int_equal(temp_folder_remove(dir), 0);
    }
}

static uint64_t bytes_below(const char *dir)
{
    DIR *d = opendir(dir);
    uint64_t sum = 0;
    for (struct dirent *x; d && (x = readdir(d));) {
        char path[600];
        struct stat st;
        snprintf(path, sizeof(path), "%s/%s", dir, x->d_name);
        if (x->d_name[0] == '.' || stat(path, &st) != 0)
            continue;
        sum += S_ISDIR(st.st_mode) ? bytes_below(path) : (uint64_t)st.st_size;
    }
    if (d)
        closedir(d);
    return sum;
}

TEST(a_folder_stays_below_its_limit)
{
    const uint64_t each = KV_RECORD_HEAD + BYTES, limit = 20 * each;
    char dir[100], path[300];
    uint32_t disk;
    snprintf(dir, sizeof(dir), "%s/limit", root);
    struct kv_tier *t = tier(dir, limit, 1 << 24, 2), *u;
    snprintf(path, sizeof(path), "%s/foreign.txt", dir);
    assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
    for (uint32_t i = 0; i < 200; i++) {
        put(t, i, 1);
        written(t, i + 1);
        assert_true(bytes_below(dir) <= limit + 2 * each);
    }
    kv_tier_free(t);
    u = tier(dir, limit, 1 << 24, 2);
    assert_int_equal(found(u, 199, 1, &disk), 1); /* the newest */
    assert_int_equal(found(u, 0, 1, &disk), 0);
    kv_tier_free(u);
    assert_int_equal(access(path, F_OK), 0); /* no file of ours */
}

TEST(a_folder_that_cannot_be_written_is_only_counted)
{
    char dir[100];
    uint32_t disk;
    snprintf(dir, sizeof(dir), "%s/file", root);
    assert_int_equal(close(open(dir, O_CREAT | O_WRONLY, 0600)), 0); /* no folder at all */
    struct kv_tier *t = tier(dir, 1 << 30, 1 << 24, 2);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(put(t, i, 1));
    for (int i = 0; i < 5000 && kv_tier_stats(t).failed_writes == 0; i++)
        usleep(1000);
    assert_int_equal(kv_tier_stats(t).failed_writes, 1); /* then it is left alone for a while */
    assert_int_equal(found(t, 0, 3, &disk), 3);          /* memory does not mind */
    kv_tier_free(t);
}

int main(void) { return tests_run(temp_begin, temp_end); }
