/*
 * Values to bytes for the wire, as kernels/codec.h has it and kernels/cpu/codec.c does it, bit by
 * bit. A warp takes a block of CODEC_BLOCK values, each lane eight that follow each other: 16 bytes
 * at a time where memory is aligned, one by one at the ends of odd chunks.
 */
#include "kernels/cuda/each.cuh"

#include <cfloat>

enum { WARPS = THREADS / WARP, LANE_VALUES = CODEC_BLOCK / WARP };

struct encode_job {
    const float *in;
    size_t values, chunk_values, chunk_bytes, chunks;
    uint8_t *out;
    uint32_t *bad;
};

/* --- what a value becomes ----------------------------------------------------------------------*/

struct code_f32 {
    typedef float type;
    static constexpr bool HAS_SCALE = false;

    __device__ static type of(float value, float)
    {
        return value;
    }
};

struct code_f16 {
    typedef uint16_t type;
    static constexpr bool HAS_SCALE = false;

    __device__ static type of(float value, float)
    {
        return __half_as_ushort(__float2half_rn(fminf(fmaxf(value, -65504.0F), 65504.0F)));
    }
};

struct code_bf16 {
    typedef uint16_t type;
    static constexpr bool HAS_SCALE = false;

    __device__ static type of(float value, float)
    {
        uint32_t bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;

        magnitude = (magnitude + 0x7fffu + (magnitude >> 16 & 1u)) >> 16;
        magnitude = magnitude < 0x7f7fu ? magnitude : 0x7f7fu;
        return static_cast<uint16_t>((bits >> 16 & 0x8000u) | magnitude);
    }
};

struct code_int8 {
    typedef int8_t type;
    static constexpr bool HAS_SCALE = true;

    __device__ static type of(float value, float scale)
    {
        return static_cast<int8_t>(scale > 0.0F ? __float2int_rn(__fdiv_rn(value, scale)) : 0);
    }
};

/* Without the lowest bits, or 0 where it would not be normal. */
__device__ static inline float scale_of(float largest)
{
    float scale = __fdiv_rn(largest, 127.0F);

    return scale >= FLT_MIN ? __uint_as_float(__float_as_uint(scale) & ~0x7fu) : 0.0F;
}

/* --- a lane's eight ----------------------------------------------------------------------------*/

/* Those behind `count` are 0. */
__device__ static inline void read_lane(const float *in, unsigned count, bool is_wide,
                                        float *values)
{
    if (is_wide) {
        load_values<LANE_VALUES / 2>(in, values);
        load_values<LANE_VALUES / 2>(in + LANE_VALUES / 2, values + LANE_VALUES / 2);
        return;
    }
#pragma unroll
    for (unsigned k = 0; k < LANE_VALUES; k++) {
        values[k] = k < count ? in[k] : 0.0F;
    }
}

template <typename T>
__device__ static inline void write_lane(T *out, unsigned count, bool is_wide, const T *codes)
{
    constexpr int N = sizeof(T) * LANE_VALUES > ACCESS_BYTES
                          ? ACCESS_BYTES / static_cast<int>(sizeof(T))
                          : static_cast<int>(LANE_VALUES);

    if (is_wide) {
#pragma unroll
        for (int k = 0; k < LANE_VALUES; k += N) {
            *reinterpret_cast<access<T, N> *>(out + k) =
                *reinterpret_cast<const access<T, N> *>(codes + k);
        }
        return;
    }
#pragma unroll
    for (unsigned k = 0; k < LANE_VALUES; k++) {
        if (k < count) out[k] = codes[k];
    }
}

__device__ static inline bool is_wide_address(const void *address)
{
    return reinterpret_cast<uintptr_t>(address) % ACCESS_BYTES == 0;
}

/* --- blocks ------------------------------------------------------------------------------------*/

/* `count` values at `in`; `scale_out` and `out` are the block's places in its chunk. */
template <typename CODE>
__device__ static inline void encode_block(const float *in, size_t count, uint8_t *scale_out,
                                           typename CODE::type *out, uint32_t *bad)
{
    unsigned lane = threadIdx.x % WARP, at = lane * LANE_VALUES;
    unsigned mine = count <= at ? 0 : count - at < LANE_VALUES ? count - at : LANE_VALUES;
    bool is_whole = count == CODEC_BLOCK, is_bad = false;
    alignas(ACCESS_BYTES) typename CODE::type codes[LANE_VALUES];
    float values[LANE_VALUES], largest = 0.0F, scale = 0.0F;

    read_lane(in + at, mine, is_whole && is_wide_address(in), values);
#pragma unroll
    for (int k = 0; k < LANE_VALUES; k++) {
        is_bad = is_bad || (__float_as_uint(values[k]) & 0x7f800000u) == 0x7f800000u;
        largest = fmaxf(largest, fabsf(values[k]));
    }
    if (is_bad) *bad = 1; /* all that write it write the same */
    if (CODE::HAS_SCALE) {
        scale = scale_of(warp_max(largest));
        if (lane < sizeof(float)) { /* a byte each: chunks of odd lengths begin anywhere */
            scale_out[lane] = static_cast<uint8_t>(__float_as_uint(scale) >> 8 * lane);
        }
    }
#pragma unroll
    for (int k = 0; k < LANE_VALUES; k++) {
        codes[k] = CODE::of(values[k], scale);
    }
    write_lane(out + at, mine, is_whole && is_wide_address(out), codes);
}

/* A row of the grid for a chunk, a warp for a block of it. */
template <typename CODE> __global__ void encode_kernel(encode_job job)
{
    typedef typename CODE::type T;

    for (size_t chunk = blockIdx.y; chunk < job.chunks; chunk += gridDim.y) {
        size_t first = chunk * job.chunk_values, left = job.values - first;
        size_t n = left < job.chunk_values ? left : job.chunk_values;
        size_t blocks = (n + CODEC_BLOCK - 1) / CODEC_BLOCK;
        uint8_t *scales = job.out + chunk * job.chunk_bytes;
        T *codes = reinterpret_cast<T *>(scales + (CODE::HAS_SCALE ? sizeof(float) * blocks : 0));

        for (size_t block = blockIdx.x * (size_t)WARPS + threadIdx.x / WARP; block < blocks;
             block += gridDim.x * (size_t)WARPS) {
            size_t begin = block * CODEC_BLOCK, rest = n - begin;
            encode_block<CODE>(job.in + first + begin, rest < CODEC_BLOCK ? rest : CODEC_BLOCK,
                               scales + sizeof(float) * block, codes + begin, job.bad);
        }
    }
}

template <typename CODE>
static cudaError_t encode_as(const encode_job &job, dim3 grid, cudaStream_t stream)
{
    return launch(encode_kernel<CODE>, grid, THREADS, 0, stream, job);
}

static cudaError_t encode_all(enum codec_format format, const encode_job &job, dim3 grid,
                              cudaStream_t stream)
{
    switch (format) {
    case CODEC_F16:
        return encode_as<code_f16>(job, grid, stream);
    case CODEC_BF16:
        return encode_as<code_bf16>(job, grid, stream);
    case CODEC_INT8:
        return encode_as<code_int8>(job, grid, stream);
    case CODEC_F32:
    default:
        return encode_as<code_f32>(job, grid, stream);
    }
}

enum rc cuda_encode(struct cuda_backend *cuda, cudaStream_t stream, enum codec_format format,
                    const float *in, size_t values, size_t chunk_values, uint8_t *out,
                    uint32_t *bad)
{
    const size_t columns_max = 1024, rows_max = 65535; /* of a grid */
    encode_job job = {in, values, chunk_values, 0, 0, out, bad};
    size_t columns;
    dim3 grid;

    CHECK(chunk_values > 0 && format < CODEC_FORMATS);
    if (values == 0) return RC_OK;
    job.chunk_bytes = codec_bytes(format, chunk_values);
    job.chunks = (values + chunk_values - 1) / chunk_values;
    columns = chunk_values < values ? chunk_values : values;
    columns = (columns + CODEC_BLOCK * WARPS - 1) / (CODEC_BLOCK * WARPS);
    grid.x = static_cast<unsigned>(columns < columns_max ? columns : columns_max);
    grid.y = static_cast<unsigned>(job.chunks < rows_max ? job.chunks : rows_max);
    return CUDA_CHECK(cuda, encode_all(format, job, grid, stream));
}
