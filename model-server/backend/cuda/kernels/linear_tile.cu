/* linear_tile.cu - products of many rows, on tensor cores: prefill, and decode steps of more than
 * 16 sequences.
 *
 * A block has 128 outputs x 32 or 128 rows; 8 warps in 4 x 2. Columns arrive in stages of shared
 * memory (cp.async), 64 at a time in three of them, or 128 if they are small. They are laid out
 * as [64 bytes of a row][row], so that the 16-byte fragment loads of linear_mma.cuh and the
 * copies have no bank conflicts without a swizzle. Quantised weights are widened on their way
 * from there to the fragments, by both warps that share them. Order of the sums: linear_mma.cuh.
 * With few tiles the slices run in parallel (grid.z = 8) and linear_sum adds them. Otherwise a
 * block computes them one after the other and keeps two sets of sums: the bits are the same.
 *
 * Tiles 128 x 128 (x 64): accumulators 2 x 64 registers per thread, 82 to 96 KiB of shared
 * memory, one block per multiprocessor. 128 x 32: 34 to 60 KiB, two or three blocks. mma.sync
 * reaches about 60% of the speed of wgmma on Hopper; see docs/decisions/cuda.md. Written after:
 * the multistage GEMM of CUTLASS' documentation (Kerr et al.). */
#include "model-server/backend/cuda/kernels/linear_mma.cuh"

enum { THREADS = 256, OUTS = 128, ROW_BYTES = 64 };

template <class F> static constexpr int tile_scales(void)
{
    if constexpr (F::GROUPED)
        return F::SCALES;
    return 16;
}
template <class F, int ROWS> struct stage {
    enum { W_PIECES = F::STAGE / F::STEP, X_PIECES = W_PIECES * F::PARTS };
    unsigned char w[W_PIECES][OUTS][ROW_BYTES], x[X_PIECES][ROWS][ROW_BYTES];
    /* of 16 rows and the groups of a step, then the offsets */
    unsigned char scales[F::OFFSETS ? 2 : 1][F::GROUPED ? OUTS / 16 : 1][tile_scales<F>()];
};

/* Starts copying the scales, and offsets, of a step to a stage. */
template <class F, int ROWS>
static __device__ __forceinline__ void load_scales(const linear_args &a, stage<F, ROWS> *s,
                                                   uint32_t step)
{
    const uint32_t steps = k_padded(a.w.cols, F::QUANT) / F::STEP, last = (a.w.rows - 1) / 16;
    enum { EACH = F::SCALES / 16, COPIES = OUTS / 16 * EACH }; /* of 16 bytes, one by a thread */
    const uint32_t i = threadIdx.x % COPIES, kind = threadIdx.x / COPIES;
    static_assert(THREADS >= 2 * COPIES, "");
    if (kind > (F::OFFSETS && a.w.offsets ? 1 : 0))
        return;
    uint32_t block = blockIdx.x * (OUTS / 16) + i / EACH;
    block = block < last ? block : last;
    const char *scales = (const char *)a.w.data + scales_at(a.w.rows, a.w.cols, F::QUANT) +
                         kind * groups_bytes(a.w.rows, a.w.cols, F::QUANT);
    copy_async(&s->scales[F::OFFSETS ? kind : 0][i / EACH][i % EACH * 16],
               scales + ((size_t)block * steps + step) * F::SCALES + i % EACH * 16, true);
}

/* Starts copying columns [k, k + F::STAGE) of the tile to a stage. */
template <class F, int ROWS>
static __device__ void load_stage(const linear_args &a, stage<F, ROWS> *s, uint32_t k)
{
    typedef stage<F, ROWS> S;
    const size_t x_pitch = (size_t)k_padded(a.w.cols, F::QUANT) * F::T::BYTES;
    const size_t w_pitch = row_bytes(a.w.cols, DT_F16, F::QUANT);
    const char *w = (const char *)a.w.data + (size_t)(k / F::STEP) * ROW_BYTES;
    const char *x = (const char *)a.narrow + (size_t)k * F::T::BYTES;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < OUTS * S::W_PIECES * 4; i += THREADS) {
        uint32_t chunk = i % (S::W_PIECES * 4), r = i / (S::W_PIECES * 4);
        uint32_t out = blockIdx.x * OUTS + r;
        out = out < a.w.rows ? out : a.w.rows - 1; /* its result is not used */
        copy_async(&s->w[chunk / 4][r][chunk % 4 * 16], w + out * w_pitch + 16 * chunk, true);
    }
#pragma unroll
    for (uint32_t i = threadIdx.x; i < ROWS * S::X_PIECES * 4; i += THREADS) {
        uint32_t chunk = i % (S::X_PIECES * 4), r = i / (S::X_PIECES * 4);
        uint32_t row = blockIdx.y * ROWS + r;
        row = row < a.rows ? row : a.rows - 1;
        copy_async(&s->x[chunk / 4][r][chunk % 4 * 16], x + row * x_pitch + 16 * chunk, true);
    }
    if constexpr (F::GROUPED)
        load_scales<F, ROWS>(a, s, k / F::STEP);
}

/* Fragments of a piece of a stage, 64 bytes of x, for outputs out + 16 m + 8 i, and their scales.
 */
template <class F, int ROWS>
static __device__ __forceinline__ void load_fragments(uint4 (&w)[2][2], part_scales<F> (&of)[2][2],
                                                      const linear_args &a, const stage<F, ROWS> *s,
                                                      uint32_t out, int piece)
{
    const uint32_t t = threadIdx.x % 4, from = piece / F::PARTS, p = piece % F::PARTS;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned char *at = &s->w[from][out + 16 * m + 8 * i][16 * t];
            if constexpr (F::GROUPED && !F::WHOLE) {
                const uint32_t from = out % 8 * 16 + 8 * i;
                const uint2 scales = *(const uint2 *)&s->scales[0][out / 16 + m][from];
                uint2 offsets = {};
                if (F::OFFSETS && a.w.offsets)
                    offsets = *(const uint2 *)&s->scales[F::OFFSETS][out / 16 + m][from];
                of[m][i].take(scales, offsets, p);
            }
            if constexpr (F::PARTS == 4)
                w[m][i] = F::widen(a.w, *(const uint32_t *)(at + 4 * p));
            else
                w[m][i] = F::widen(a.w, *(const uint4 *)at, p);
        }
}

/* multiply_stage() where a stage is a group: its chain has the products of all pieces. */
template <class F, int ROWS>
static __device__ __forceinline__ void multiply_whole(const linear_args &a, const stage<F, ROWS> *s,
                                                      typename F::T::sum (&acc)[2][ROWS / 16][4])
{
    enum { PIECES = stage<F, ROWS>::X_PIECES };
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t row = warp / 4 * (ROWS / 2) + g, out = warp % 4 * 32 + g;
    uint4 w[PIECES][2][2];
    part_scales<F> none[2][2];
    static_assert((int)F::STAGE == (int)F::STEP, "a stage is a step");
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++)
        load_fragments<F, ROWS>(w[piece], none, a, s, out, piece);
#pragma unroll
    for (int n = 0; n < ROWS / 16; n++) {
        uint4 x[PIECES];
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++)
            x[piece] = *(const uint4 *)&s->x[piece][row + 8 * n][16 * t];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const float2 scale = *(const float2 *)&s->scales[0][out / 16 + m][g * sizeof(float2)];
            float step[4] = {};
#pragma unroll
            for (int piece = 0; piece < PIECES; piece++)
                mma_pair<typename F::T>(step, w[piece][m][0], w[piece][m][1], x[piece]);
            add_step(acc[m][n], step, {scale.x, scale.y});
        }
    }
}

/* Warp (wm, wn) of 4 x 2: outputs 32 wm .. + 31, rows ROWS / 2 wn .. */
template <class F, int ROWS>
static __device__ __forceinline__ void multiply_stage(const linear_args &a, const stage<F, ROWS> *s,
                                                      typename F::T::sum (&acc)[2][ROWS / 16][4])
{
    enum { PIECES = stage<F, ROWS>::X_PIECES, UNROLL = F::GROUPED ? 1 : PIECES };
    if constexpr (F::WHOLE) {
        multiply_whole<F, ROWS>(a, s, acc);
        return;
    }
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t row = warp / 4 * (ROWS / 2) + g;
#pragma unroll UNROLL
    for (int piece = 0; piece < PIECES; piece++) {
        uint4 w[2][2];
        part_scales<F> of[2][2];
        load_fragments<F, ROWS>(w, of, a, s, warp % 4 * 32 + g, piece);
#pragma unroll
        for (int n = 0; n < ROWS / 16; n++) {
            uint4 x = *(const uint4 *)&s->x[piece][row + 8 * n][16 * t];
            part_sums<F> sums;
            sums.take(a.w, x);
#pragma unroll
            for (int m = 0; m < 2; m++)
                multiply_part<F>(acc[m][n], w[m][0], w[m][1], x, of[m], sums);
        }
    }
}

/* Sum of columns [begin, end) of the tile, added to `acc`. */
template <class F, int ROWS>
static __device__ void slice_sum(const linear_args &a, stage<F, ROWS> *ring, uint32_t begin,
                                 uint32_t end, typename F::T::sum (&acc)[2][ROWS / 16][4])
{
    for (int i = 0; i < F::STAGES - 1; i++) {
        if (begin + i * F::STAGE < end)
            load_stage<F, ROWS>(a, &ring[i], begin + i * F::STAGE);
        copy_commit();
    }
    int at = 0;
    for (uint32_t k = begin; k < end; k += F::STAGE) {
        copy_wait<F::STAGES - 2>();
        __syncthreads(); /* the stage is complete, and no warp reads the one that is filled next */
        uint32_t next = k + (F::STAGES - 1) * F::STAGE;
        if (next < end)
            load_stage<F, ROWS>(a, &ring[(at + F::STAGES - 1) % F::STAGES], next);
        copy_commit();
        multiply_stage<F, ROWS>(a, &ring[at], acc);
        at = (at + 1) % F::STAGES;
    }
    copy_wait<0>();
    __syncthreads(); /* the next slice starts from stage 0 */
}

/* Calls fn(m, n, c, row, output) for every sum of this thread that is in the result. */
template <int ROWS, typename FN>
static __device__ __forceinline__ void each_sum(const linear_args &a, FN fn)
{
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < ROWS / 16; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                uint32_t out = blockIdx.x * OUTS + warp % 4 * 32 + 16 * m + g + c / 2 * 8;
                uint32_t row = blockIdx.y * ROWS + warp / 4 * (ROWS / 2) + 8 * n + 2 * t + c % 2;
                if (out < a.w.rows && row < a.rows)
                    fn(m, n, c, row, out);
            }
}

/* grid: (outputs / 128, rows / ROWS, 1 or SLICES) */
template <class F, int ROWS>
static __global__ void __launch_bounds__(THREADS, 1) linear_tile_kernel(linear_args a)
{
    typedef typename F::T::sum SUM;
    stage<F, ROWS> *ring = dynamic_shared<stage<F, ROWS>>();
    const uint32_t k = a.w.cols;
    depend();
    if (a.part) {
        const uint32_t s = blockIdx.z;
        SUM acc[2][ROWS / 16][4] = {};
        SUM *part = (SUM *)a.part + (size_t)s * a.rows * a.w.rows;
        slice_sum<F, ROWS>(a, ring, slice_begin(k, s, F::QUANT), slice_begin(k, s + 1, F::QUANT),
                           acc);
        each_sum<ROWS>(a, [&](int m, int n, int c, uint32_t row, uint32_t out) {
            part[(size_t)row * a.w.rows + out] = acc[m][n][c];
        });
        return;
    }
    SUM sum[2][ROWS / 16][4] = {};
    if constexpr (F::QUANT == QUANT_W8A8) { /* exact: in any order */
        slice_sum<F, ROWS>(a, ring, 0, k_padded(k, F::QUANT), sum);
    } else {
        for (uint32_t s = 0; s < SLICES; s++) {
            SUM acc[2][ROWS / 16][4] = {};
            slice_sum<F, ROWS>(a, ring, slice_begin(k, s, F::QUANT),
                               slice_begin(k, s + 1, F::QUANT), acc);
#pragma unroll
            for (int i = 0; i < 2 * (ROWS / 16) * 4; i++)
                sum[i / (ROWS / 16 * 4)][i / 4 % (ROWS / 16)][i % 4] +=
                    acc[i / (ROWS / 16 * 4)][i / 4 % (ROWS / 16)][i % 4];
        }
    }
    each_sum<ROWS>(a, [&](int m, int n, int c, uint32_t row, uint32_t out) {
        a.y[(size_t)row * a.w.rows + out] =
            finish<F>(a, sum[m][n][c], terms_of<F>(a, a.w.data, out), row);
    });
}

template <class F, int ROWS> static cudaError_t start(const struct launch *l, const linear_args *a)
{
    dim3 grid((a->w.rows + OUTS - 1) / OUTS, (a->rows + ROWS - 1) / ROWS, a->part ? SLICES : 1);
    return launch(linear_tile_kernel<F, ROWS>, grid, THREADS, F::STAGES * sizeof(stage<F, ROWS>),
                  l->stream, l->overlap, *a);
}

/* Rows of a large tile: with 128, registers for the bits of e2m1 do not suffice. */
template <class F> static constexpr int MANY_ROWS = F::QUANT == PACKED_FP4 ? 64 : 128;

extern "C" cudaError_t linear_tile_launch(const struct launch *l, const void *args)
{
    const linear_args *a = (const linear_args *)args;
    return with_format(a->w, [=](auto f) {
        typedef decltype(f) F;
        return a->rows <= 32 ? start<F, 32>(l, a) : start<F, MANY_ROWS<F>>(l, a);
    });
}

/* grid-stride over the outputs */
template <class F>
static __global__ void __launch_bounds__(THREADS) linear_sum_kernel(linear_args a)
{
    typedef typename F::T::sum SUM;
    depend();
    const SUM *part = (const SUM *)a.part;
    size_t all = (size_t)a.rows * a.w.rows, step = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        SUM sum = 0;
        for (int s = 0; s < SLICES; s++)
            sum += part[s * all + i];
        a.y[i] =
            finish<F>(a, sum, terms_of<F>(a, a.w.data, (uint32_t)(i % a.w.rows)), i / a.w.rows);
    }
}

extern "C" cudaError_t linear_sum_launch(const struct launch *l, const void *args)
{
    const linear_args *a = (const linear_args *)args;
    size_t blocks = ((size_t)a->rows * a->w.rows + THREADS - 1) / THREADS;
    return with_format(a->w, [=](auto f) {
        return launch(linear_sum_kernel<decltype(f)>, (uint32_t)(blocks < 1056 ? blocks : 1056),
                      THREADS, 0, l->stream, l->overlap, *a);
    });
}
