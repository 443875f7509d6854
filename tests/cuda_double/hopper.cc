/* hopper.cc - the double's mbarriers, tile copies and products of a warpgroup.
 *
 * Everything asynchronous happens as late as the PTX manual allows: a copy when no thread can go on
 * without it (its destination is NaN until then), a product when its group is waited for, from the
 * registers and the shared memory as they are then. So a missing wait, a stage overwritten too
 * early or a register reused too early gives wrong numbers. With shuffled threads copies also come
 * early, and in any order. */
#include "model-server/backend/cuda/kernels/hopper.cuh"
#include "model-server/backend/numbers.h"
#include "tests/cuda_double/inside.h"
#include <map>
#include <vector>

/* ---------------------------------------------------------------- barriers */

struct phases {
    uint32_t arrivals, pending;
    int64_t bytes;  /* announced and not come */
    uint64_t ended; /* phases so far */
    bool fenced;    /* for copies */
};
static std::map<const mbarrier *, phases> barriers;

static phases *find(const mbarrier *b)
{
    auto p = barriers.find(b);
    if (p == barriers.end())
        double_die("a barrier that was not initialised");
    return &p->second;
}

static void settle(phases *p)
{
    if (p->pending || p->bytes)
        return;
    p->pending = p->arrivals;
    p->ended++;
}

void mbarrier_init(mbarrier *b, uint32_t arrivals)
{
    double_shared_address(b);
    if (!arrivals || (uintptr_t)b % 8 || barriers.count(b))
        double_die("a barrier's initialisation");
    barriers[b] = phases{arrivals, arrivals, 0, 0, false};
}

void mbarrier_init_fence(void)
{
    for (auto &b : barriers)
        b.second.fenced = true;
}

static void arrive(phases *p)
{
    if (!p->pending)
        double_die("more threads arrive at a barrier than it was made for");
    p->pending--;
    settle(p);
}

void mbarrier_arrive(mbarrier *b) { arrive(find(b)); }

void mbarrier_expect(mbarrier *b, uint32_t bytes)
{
    phases *p = find(b);
    if (p->bytes + bytes >= 1 << 20)
        double_die("more bytes than a barrier can count");
    p->bytes += bytes;
    arrive(p);
}

void mbarrier_wait(mbarrier *b, uint32_t parity)
{
    const phases *p = find(b);
    while ((p->ended & 1) == parity)
        double_yield_until(&p->ended);
}

/* ---------------------------------------------------------------- tiles */

/* What a tensor map holds here, in the place of what the hardware wants. */
struct matrix {
    uint64_t magic;
    const char *data;
    uint64_t columns, rows, pitch;
    uint32_t box_columns, box_rows, swizzle;
    uint32_t bytes(void) const { return box_columns * box_rows * 2; }
};
static const uint64_t MAGIC = 0x746e6573726f7421;

/* Refuses what the driver's documentation refuses. */
static CUresult encode(CUtensorMap *m, CUtensorMapDataType type, cuuint32_t rank, void *data,
                       const cuuint64_t *dim, const cuuint64_t *stride, const cuuint32_t *box,
                       const cuuint32_t *step, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    uint32_t row_bytes = box[0] * 2;
    if ((uintptr_t)m % 64 || type != CU_TENSOR_MAP_DATA_TYPE_UINT16 || rank != 2 ||
        (uintptr_t)data % 16 || !dim[0] || !dim[1] || dim[0] >> 32 || dim[1] >> 32 ||
        stride[0] % 16 || stride[0] < 2 * dim[0] || stride[0] >> 40 || !box[0] || box[0] > 256 ||
        !box[1] || box[1] > 256 || row_bytes % 16 || step[0] != 1 || step[1] != 1 ||
        (swizzle == CU_TENSOR_MAP_SWIZZLE_128B && row_bytes > 128))
        return CUDA_ERROR_INVALID_VALUE;
    matrix as = {MAGIC,  (const char *)data, dim[0], dim[1], stride[0], box[0],
                 box[1], (uint32_t)swizzle};
    static_assert(sizeof(as) <= sizeof(*m), "a tensor map");
    memcpy(m, &as, sizeof(as));
    return CUDA_SUCCESS;
}

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f,
                                                        unsigned version, unsigned long long flags,
                                                        enum cudaDriverEntryPointQueryResult *is)
{
    bool known = strcmp(name, "cuTensorMapEncodeTiled") == 0 && version >= 12000 && !flags;
    *f = known ? (void *)encode : NULL;
    *is = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

struct copy {
    uint32_t to;
    matrix from;
    phases *barrier;
    uint32_t column, row, block;
};
static std::vector<copy> copies;

/* The 128-byte swizzle is one of addresses: bits 4 to 6 are exchanged by bits 7 to 9. */
static uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

void tile_load(void *dst, const CUtensorMap *map, mbarrier *b, uint32_t column, uint32_t row)
{
    copy c = {double_shared_address(dst), {}, find(b), column, row, double_own_block()};
    memcpy(&c.from, map, sizeof(c.from));
    if (c.from.magic != MAGIC || c.to % 128 || !double_shared_at(c.to, c.from.bytes()))
        double_die("a tile's place or its map");
    if (!c.barrier->fenced)
        double_die("a copy to a barrier that was initialised without a fence");
    memset(dst, 0xff, c.from.bytes());
    copies.push_back(c);
}

/* Eight numbers at a time, 16 bytes, which the swizzle moves as a whole; zeros past the end. */
static void land(const copy &c)
{
    const matrix &m = c.from;
    for (uint32_t r = 0; r < m.box_rows; r++)
        for (uint32_t k = 0; k < m.box_columns; k += 8) {
            const uint64_t row = (uint64_t)c.row + r, column = (uint64_t)c.column + k;
            uint32_t at = c.to + (r * m.box_columns + k) * 2;
            uint16_t v[8] = {};
            const uint64_t n = row < m.rows && column < m.columns ? m.columns - column : 0;
            memcpy(v, m.data + row * m.pitch + column * 2, (n < 8 ? n : 8) * 2);
            if (m.swizzle == CU_TENSOR_MAP_SWIZZLE_128B)
                at = swizzled(at);
            memcpy(double_shared_of(c.block, at, 16), v, 16);
        }
    c.barrier->bytes -= m.bytes();
    settle(c.barrier);
}

bool hopper_late(void)
{
    if (copies.empty())
        return false;
    size_t i = double_random() % copies.size();
    copy c = copies[i];
    copies.erase(copies.begin() + (long)i);
    land(c);
    return true;
}

/* ---------------------------------------------------------------- products */

struct product {
    float *c[128];
    const uint32_t *a[128][4];
    uint64_t b, a_tile;
    uint32_t n, group;
    bool columns, add;
    double_factors type;
};
static struct {
    std::vector<product> waiting;
    uint32_t groups;
    bool fenced;
} warpgroups[8][1024 / 128]; /* of each block of a cluster */
typedef decltype(warpgroups[0][0]) warpgroup_ref;

static warpgroup_ref &warpgroup(void) { return warpgroups[double_own_block()][threadIdx.x / 128]; }

/* Eight elements of a matrix whose descriptor says rows of 128 bytes in eights, swizzled: of one row
 * from k on, or with `columns` of one k from the row on. They are 16 bytes side by side, which the
 * swizzle moves as a whole. */
static void eight(uint16_t to[8], uint64_t tile, bool columns, uint32_t row, uint32_t k)
{
    const uint32_t start = (uint32_t)(tile & 0x3fff) << 4;
    const uint32_t apart = (uint32_t)(tile >> 16 & 0x3fff) << 4;
    const uint32_t eights = (uint32_t)(tile >> 32 & 0x3fff) << 4;
    uint32_t at = start + row / 8 * eights + row % 8 * 128 + 2 * k;
    if (tile >> 62 != 1 || tile >> 49 & 7 || eights % 1024 ||
        (columns ? start % 1024 != 0 : start % 1024 > 96 || start % 32))
        double_die("a descriptor of shared memory that is not one of swizzled rows");
    if (columns)
        at = start + row / 64 * apart + k / 8 * eights + k % 8 * 128 + row % 64 * 2;
    const char *from = double_shared_at(swizzled(at), 16);
    if (!from)
        double_die("a product reads past shared memory");
    memcpy(to, from, 16);
}

/* What a product multiplies: b[k][n], a[m][k]. */
struct factors {
    uint16_t b[16][256], a[64][16];
};

static void gather(const product &p, factors *f)
{
    uint16_t v[8];
    for (uint32_t n = 0; n < p.n; n += p.columns ? 8 : 1)
        for (uint32_t k = 0; k < 16; k += p.columns ? 1 : 8) {
            eight(v, p.b, p.columns, n, k);
            for (uint32_t i = 0; i < 8; i++)
                f->b[p.columns ? k : k + i][p.columns ? n + i : n] = v[i];
        }
    for (uint32_t m = 0; p.a_tile && m < 64; m++)
        for (uint32_t k = 0; k < 16; k += 8)
            eight(&f->a[m][k], p.a_tile, false, m, k);
    for (uint32_t lane = 0; lane < 128 && !p.a_tile; lane++)
        for (uint32_t i = 0; i < 4; i++)
            memcpy(&f->a[lane / 32 * 16 + lane % 32 / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8],
                   p.a[lane][i], 4);
}

static float toward_zero(float f, double sum)
{
    return fabs((double)f) > fabs(sum) ? nextafterf(f, 0.0f) : f;
}

/* Sums in the order of the double's mma.sync. */
template <float (*WIDE)(uint16_t)>
static inline __attribute__((always_inline)) void sums(const product &p, const factors &f)
{
    static float b[16][256];
    const bool truncates = cuda_double()->wgmma_truncates;
    for (uint32_t k = 0; k < 16; k++)
        for (uint32_t n = 0; n < p.n; n++)
            b[k][n] = WIDE(f.b[k][n]);
    for (uint32_t m = 0; m < 64; m++) {
        double a[16];
        for (uint32_t k = 0; k < 16; k++)
            a[k] = WIDE(f.a[m][k]);
        float *const *lane = &p.c[m / 16 * 32 + m % 8 * 4];
        const uint32_t low = m % 16 / 8 * 2; /* of the 4 sums of 8 columns */
        for (uint32_t n = 0; n < p.n; n += 8) {
            double sum[8];
            for (uint32_t i = 0; i < 8; i++)
                sum[i] = p.add ? lane[i / 2][n / 8 * 4 + low + i % 2] : 0.0f;
            for (uint32_t k = 0; k < 16; k++)
                for (uint32_t i = 0; i < 8; i++)
                    sum[i] += a[k] * b[k][n + i];
            for (uint32_t i = 0; i < 8; i++) {
                const float r = (float)sum[i];
                lane[i / 2][n / 8 * 4 + low + i % 2] = truncates ? toward_zero(r, sum[i]) : r;
            }
        }
    }
}

/* Also for AVX2: products of two floats are exact in double, so the bits are the same. */
#define VECTORS __attribute__((optimize("O3"), target_clones("arch=haswell", "default")))
VECTORS static void sums_bf16(const product &p, const factors &f) { sums<f32_of_bf16>(p, f); }
VECTORS static void sums_f16(const product &p, const factors &f) { sums<f32_of_f16>(p, f); }

/* Pairs of integers are in the place of numbers of 16 bits. */
static void sums_s8(const product &p, const factors &f)
{
    for (uint32_t m = 0; m < 64; m++)
        for (uint32_t n = 0; n < p.n; n++) {
            float *at =
                &p.c[m / 16 * 32 + m % 8 * 4 + n % 8 / 2][n / 8 * 4 + m % 16 / 8 * 2 + n % 2];
            int32_t sum = 0;
            if (p.add)
                memcpy(&sum, at, sizeof(sum));
            for (uint32_t k = 0; k < 16; k++)
                for (uint32_t shift = 0; shift < 16; shift += 8)
                    sum += (int8_t)(f.a[m][k] >> shift) * (int8_t)(f.b[k][n] >> shift);
            memcpy(at, &sum, sizeof(sum));
        }
}

static void multiply(const product &p)
{
    static factors f;
    cuda_double()->wgmmas++;
    if (p.n % 8 || p.n > 256)
        double_die("a product's columns");
    gather(p, &f);
    if (p.type == FACTORS_S8)
        sums_s8(p, f);
    else if (p.type == FACTORS_BF16)
        sums_bf16(p, f);
    else
        sums_f16(p, f);
}

void double_wgmma(const double_wgmma_lane *mine)
{
    double_warpgroup(
        [](void *const *lanes) {
            const double_wgmma_lane *const *l = (const double_wgmma_lane *const *)lanes;
            auto &g = warpgroup();
            if (!g.fenced)
                double_die("wgmma without a fence since its registers were written");
            product p = {};
            p.b = l[0]->b, p.n = l[0]->n, p.type = l[0]->type, p.group = g.groups;
            p.a_tile = l[0]->a_tile, p.columns = l[0]->columns, p.add = l[0]->add;
            for (int i = 0; i < 128; i++) {
                if (l[i]->b != p.b || l[i]->n != p.n || l[i]->a_tile != p.a_tile ||
                    l[i]->add != p.add)
                    double_die("the threads of a warpgroup want different products");
                p.c[i] = l[i]->c;
                memcpy(p.a[i], l[i]->a, sizeof(p.a[i]));
            }
            g.waiting.push_back(p);
        },
        (void *)mine);
}

/* Stricter than the manual, which wants a fence only when registers were written by others: here
 * every group begins with one, as fragments of a are written for each. */
void wgmma_fence(void)
{
    double_warpgroup([](void *const *) { warpgroup().fenced = true; }, NULL);
}

void wgmma_commit(void)
{
    double_warpgroup(
        [](void *const *) {
            warpgroup().groups++;
            warpgroup().fenced = false;
        },
        NULL);
}

void double_wgmma_wait(uint32_t left)
{
    double_warpgroup(
        [](void *const *lanes) {
            auto &g = warpgroup();
            size_t kept = 0;
            for (const product &p : g.waiting)
                if (p.group + *(const uint32_t *)lanes[0] >= g.groups)
                    g.waiting[kept++] = p;
                else
                    multiply(p);
            g.waiting.resize(kept);
        },
        &left);
}

/* ---------------------------------------------------------------- blocks */

void hopper_begin(void)
{
    barriers.clear(), copies.clear();
    for (auto &block : warpgroups)
        for (auto &g : block)
            g.waiting.clear(), g.groups = 0, g.fenced = false;
}

void hopper_end(void)
{
    if (!copies.empty())
        double_die("a block ends while a copy is under way");
    for (auto &block : warpgroups)
        for (auto &g : block)
            if (!g.waiting.empty())
                double_die("a block ends before its products");
}
