#include "model-server/packed/file.h"
#include "common/hash.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION_NOW = 1, HUGE_PAGE = 2 << 20, MOST_ENTRIES = 1 << 20, SYNC_CHUNKS = 8 };
enum { REST = 3 }; /* writing takes a quarter of a core */
static const char magic[8] = "PACKED\r\n";

struct trailer {
    char magic[8];
    uint32_t version, n;
    uint8_t key[PACKED_KEY];
    uint64_t payload; /* bytes; the entries follow */
    uint64_t bytes;   /* of the file */
    uint64_t table_sum, sum;
};

static uint64_t align(uint64_t n) { return (n + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN; }
static uint32_t chunks_of(uint64_t payload)
{
    return (uint32_t)((payload + PACKED_CHUNK - 1) / PACKED_CHUNK);
}
static uint64_t table_bytes(uint32_t n, uint64_t payload)
{
    return align(n * sizeof(struct packed_entry) + chunks_of(payload) * sizeof(uint64_t));
}

/* Sums of words, and sums of these sums, so that order matters; n is a multiple of WEIGHT_ALIGN.
 * It runs at memory speed: a load reads every page with it. */
static uint64_t sum_of(const char *p, size_t n)
{
    enum { LANES = 4 };
    typedef uint64_t pair __attribute__((vector_size(16)));
    pair a[LANES] = {0}, b[LANES] = {0}, w;
    for (size_t i = 0; i < n; i += LANES * sizeof(w))
        for (int l = 0; l < LANES; l++) {
            memcpy(&w, p + i + (size_t)l * sizeof(w), sizeof(w));
            a[l] += w;
            b[l] += a[l];
        }
    uint64_t sum = n;
    for (int l = 0; l < LANES; l++)
        sum = hash_mix(hash_mix(hash_mix(hash_mix(sum ^ a[l][0]) ^ a[l][1]) ^ b[l][0]) ^ b[l][1]);
    return sum;
}

/* ---------------------------------------------------------------- reading */

/* The trailer contains all offsets, and the size of the file must match. */
static enum packed_verdict read_trailer(int fd, struct trailer *t, const uint8_t *key,
                                        uint64_t *size, struct file_stamp *stamp)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 3L * WEIGHT_ALIGN ||
        st.st_size % WEIGHT_ALIGN ||
        pread(fd, t, sizeof(*t), st.st_size - WEIGHT_ALIGN) != (ssize_t)sizeof(*t))
        return PACKED_DAMAGED;
    *size = (uint64_t)st.st_size;
    *stamp = file_stamp_of(&st);
    if (memcmp(t->magic, magic, sizeof(magic)) != 0 ||
        t->sum != hash_bytes(0, t, offsetof(struct trailer, sum)))
        return PACKED_DAMAGED;
    if (t->version != VERSION_NOW || memcmp(t->key, key, PACKED_KEY) != 0)
        return PACKED_FOREIGN;
    const bool fits = t->n > 0 && t->n <= MOST_ENTRIES && t->payload > 0 &&
                      t->payload % WEIGHT_ALIGN == 0 && t->bytes == *size && t->payload < *size &&
                      t->payload + table_bytes(t->n, t->payload) + WEIGHT_ALIGN == *size;
    return fits ? PACKED_FINE : PACKED_DAMAGED;
}

/* At an address where the page cache's huge pages can be mapped. */
static char *map_aligned(int fd, size_t size)
{
    char *room = mmap(NULL, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    const size_t skip = -(uintptr_t)room & (HUGE_PAGE - 1);
    char *p = mmap(room + skip, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    if (skip)
        munmap(room, skip);
    munmap(room + skip + size, HUGE_PAGE - skip);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, size, MADV_HUGEPAGE);
    return p;
}

static bool entries_fit(const struct packed_file *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const struct packed_entry *x = &f->entries[i];
        for (int k = 0; k < WEIGHT_PIECES; k++)
            if (x->offset[k] % WEIGHT_ALIGN || x->offset[k] > f->payload ||
                x->bytes[k] > f->payload - x->offset[k])
                return false;
        for (int k = 0; k < PACKED_NOTES; k++)
            if (!memchr(x->notes[k].format, 0, PACKED_WORD))
                return false;
    }
    return true;
}

enum packed_verdict packed_file_open(struct packed_file *f, const char *path,
                                     const uint8_t key[PACKED_KEY])
{
    struct trailer t;
    uint64_t size;
    *f = (struct packed_file){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? PACKED_MISSING : PACKED_DAMAGED;
    struct file_stamp stamp;
    enum packed_verdict v = read_trailer(fd, &t, key, &size, &stamp);
    if (v == PACKED_FINE && !(f->map = map_aligned(fd, size)))
        v = PACKED_DAMAGED;
    if (v == PACKED_FINE) {
        /* files are deleted in order of last use; the other time says whether one was written */
        const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
        (void)futimens(fd, now);
        f->size = size;
        f->fd = fd;
        f->stamp = stamp;
        f->payload = t.payload;
        f->n = t.n;
        f->n_sums = chunks_of(t.payload);
        f->entries = (const void *)(f->map + t.payload);
        f->sums = (const void *)(f->entries + t.n);
        if (t.table_sum != sum_of(f->map + t.payload, table_bytes(t.n, t.payload)) ||
            !entries_fit(f)) {
            packed_file_close(f);
            return PACKED_DAMAGED;
        }
        return PACKED_FINE;
    }
    close(fd);
    return v;
}

bool packed_file_intact(const struct packed_file *f)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return false;
    const struct file_stamp now = file_stamp_of(&st);
    return !file_stamp_spoilt(&f->stamp, &now);
}

bool packed_file_check(const struct packed_file *f, uint32_t i)
{
    const uint64_t from = (uint64_t)i * PACKED_CHUNK, left = f->payload - from;
    return f->sums[i] == sum_of(f->map + from, left < PACKED_CHUNK ? left : PACKED_CHUNK);
}

struct weight_image packed_file_image(const struct packed_file *f, uint32_t i)
{
    const struct packed_entry *x = &f->entries[i];
    struct weight_image im;
    memcpy(im.head, x->head, sizeof(im.head));
    for (int k = 0; k < WEIGHT_PIECES; k++)
        im.piece[k] =
            (struct weight_piece){x->bytes[k] ? f->map + x->offset[k] : NULL, x->bytes[k]};
    return im;
}

void packed_file_close(struct packed_file *f)
{
    if (f->map) {
        munmap((void *)(uintptr_t)f->map, f->size);
        close(f->fd);
    }
    *f = (struct packed_file){0};
}

/* ---------------------------------------------------------------- writing */

/* Whole chunks are written, so that the page cache can hold the file in huge pages. */
struct out {
    int fd;
    char *chunk;
    size_t used;
    uint64_t at; /* offset of the chunk in the file */
    uint64_t *sums;
    struct pacer *pacer;
};

static int put(int fd, const char *p, size_t n, uint64_t at, struct err *e)
{
    while (n > 0) {
        const ssize_t k = pwrite(fd, p, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            errno = k ? errno : ENOSPC;
            return err_sys(e, "write");
        }
        p += k, at += (uint64_t)k, n -= (size_t)k;
    }
    return 0;
}

/* Bounded amounts at a time, so that a stop never waits for gigabytes. */
static int flush(struct out *o, struct err *e)
{
    const uint64_t i = o->at / PACKED_CHUNK;
    if (!o->used)
        return 0;
    if (!pacer_rest(o->pacer, REST))
        return 1;
    o->sums[i] = sum_of(o->chunk, o->used);
    if (put(o->fd, o->chunk, o->used, o->at, e))
        return -1;
    if (i % SYNC_CHUNKS == SYNC_CHUNKS - 1 && fdatasync(o->fd) != 0)
        return err_sys(e, "fdatasync");
    o->at += o->used;
    o->used = 0;
    return 0;
}

/* Writes a piece, and zeros up to the start of the next one. */
static int add_piece(struct out *o, const char *p, uint64_t n, struct err *e)
{
    const uint64_t all = align(n);
    int rc = 0;
    for (uint64_t i = 0; i < all && rc == 0;) {
        const size_t room = PACKED_CHUNK - o->used, left = i < n ? n - i : all - i;
        const size_t k = left < room ? left : room;
        if (i < n)
            memcpy(o->chunk + o->used, p + i, k);
        else
            memset(o->chunk + o->used, 0, k);
        o->used += k, i += k;
        rc = o->used == PACKED_CHUNK ? flush(o, e) : 0;
    }
    return rc;
}

/* Sets the offsets. */
static uint64_t place(struct packed_item *items, uint32_t n)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < WEIGHT_PIECES; k++) {
            items[i].entry.offset[k] = at;
            items[i].entry.bytes[k] = items[i].piece[k].bytes;
            at += align(items[i].piece[k].bytes);
        }
    return at;
}

uint64_t packed_file_bytes(const struct packed_item *items, uint32_t n)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < WEIGHT_PIECES; k++)
            at += align(items[i].piece[k].bytes);
    return at + table_bytes(n, at) + WEIGHT_ALIGN;
}

static int write_table(const struct out *o, const struct packed_item *items, uint32_t n,
                       uint64_t payload, const uint8_t *key, struct err *e)
{
    const size_t table = table_bytes(n, payload), all = table + WEIGHT_ALIGN;
    struct trailer t = {.version = VERSION_NOW, .n = n, .payload = payload, .bytes = payload + all};
    char *p = calloc(1, all);
    if (!p)
        return err_nomem(e);
    for (uint32_t i = 0; i < n; i++)
        memcpy(p + i * sizeof(items[i].entry), &items[i].entry, sizeof(items[i].entry));
    memcpy(p + n * sizeof(items[0].entry), o->sums, chunks_of(payload) * sizeof(*o->sums));
    memcpy(t.magic, magic, sizeof(magic));
    memcpy(t.key, key, PACKED_KEY);
    t.table_sum = sum_of(p, table);
    t.sum = hash_bytes(0, &t, offsetof(struct trailer, sum));
    memcpy(p + table, &t, sizeof(t));
    int rc = put(o->fd, p, all, payload, e);
    free(p);
    if (rc == 0 && fsync(o->fd) != 0)
        rc = err_sys(e, "fsync");
    return rc;
}

int packed_file_write(int fd, struct packed_item *items, uint32_t n, const uint8_t key[PACKED_KEY],
                      struct pacer *pacer, struct err *e)
{
    const uint64_t payload = place(items, n);
    struct out o = {.fd = fd,
                    .chunk = aligned_alloc(WEIGHT_ALIGN, PACKED_CHUNK),
                    .sums = calloc(chunks_of(payload) + (size_t)1, sizeof(*o.sums)),
                    .pacer = pacer};
    int rc = o.chunk && o.sums ? 0 : err_nomem(e);
    /* A full disk is reported here; file systems without this function report it later. */
    if (rc == 0 && fallocate(fd, 0, 0, (off_t)packed_file_bytes(items, n)) != 0 &&
        errno != EOPNOTSUPP && errno != ENOSYS)
        rc = err_sys(e, "fallocate");
    for (uint32_t i = 0; i < n && rc == 0; i++)
        for (int k = 0; k < WEIGHT_PIECES && rc == 0; k++)
            rc = add_piece(&o, items[i].piece[k].data, items[i].piece[k].bytes, e);
    rc = rc ? rc : flush(&o, e);
    rc = rc ? rc : write_table(&o, items, n, payload, key, e);
    free(o.chunk);
    free(o.sums);
    return rc;
}
