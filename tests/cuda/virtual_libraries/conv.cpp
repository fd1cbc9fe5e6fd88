/* Tests of the stand-in for cuDNN's convolutions. */
#include "tests/cuda/virtual_libraries/libraries.h"

#include <cudnn.h>

struct conv {
    cudnnHandle_t handle;
    cudnnTensorDescriptor_t x, y, bias;
    cudnnFilterDescriptor_t filter;
    cudnnConvolutionDescriptor_t conv;
    cudnnActivationDescriptor_t activation;
    enum value_type type;
    bool is_last;                      /* NHWC */
    int n, c, h, w, k, kh, kw, oh, ow; /* images, channels, sizes; filters; output */
    int groups, padding[2], stride, dilation;
    floats x_values, filter_values, y_values, bias_values;
    void *x_at, *filter_at, *y_at, *bias_at, *workspace;
};

enum { WORKSPACE_BYTES = 1 << 20 };

static size_t at(const struct conv &s, size_t n, size_t c, size_t h, size_t w, size_t channels,
                 size_t height, size_t width)
{
    return s.is_last ? ((n * height + h) * width + w) * channels + c
                     : ((n * channels + c) * height + h) * width + w;
}

static struct conv begin(uint64_t seed, enum value_type type, bool is_last)
{
    cudnnDataType_t dnn_type = type == VALUE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    cudnnTensorFormat_t format = is_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    struct conv s = {};
    int n, k;

    s.type = type;
    s.is_last = is_last;
    s.groups = 1 + static_cast<int>(random_below_of(&seed, 3));
    s.n = 1 + static_cast<int>(random_below_of(&seed, 3));
    s.c = s.groups * (1 + static_cast<int>(random_below_of(&seed, 4)));
    s.k = s.groups * (1 + static_cast<int>(random_below_of(&seed, 4)));
    s.kh = 1 + static_cast<int>(random_below_of(&seed, 3));
    s.kw = 1 + static_cast<int>(random_below_of(&seed, 3));
    s.padding[0] = static_cast<int>(random_below_of(&seed, 3));
    s.padding[1] = static_cast<int>(random_below_of(&seed, 3));
    s.stride = 1 + static_cast<int>(random_below_of(&seed, 2));
    s.dilation = 1 + static_cast<int>(random_below_of(&seed, 2));
    s.h = 5 + static_cast<int>(random_below_of(&seed, 6));
    s.w = 5 + static_cast<int>(random_below_of(&seed, 6));
    ok(cudnnCreate(&s.handle));
    ok(cudnnCreateTensorDescriptor(&s.x));
    ok(cudnnCreateTensorDescriptor(&s.y));
    ok(cudnnCreateTensorDescriptor(&s.bias));
    ok(cudnnCreateFilterDescriptor(&s.filter));
    ok(cudnnCreateConvolutionDescriptor(&s.conv));
    ok(cudnnCreateActivationDescriptor(&s.activation));
    ok(cudnnSetTensor4dDescriptor(s.x, format, dnn_type, s.n, s.c, s.h, s.w));
    ok(cudnnSetFilter4dDescriptor(s.filter, dnn_type, format, s.k, s.c / s.groups, s.kh, s.kw));
    ok(cudnnSetConvolution2dDescriptor(s.conv, s.padding[0], s.padding[1], s.stride, s.stride,
                                       s.dilation, s.dilation, CUDNN_CROSS_CORRELATION,
                                       CUDNN_DATA_FLOAT));
    ok(cudnnSetConvolutionGroupCount(s.conv, s.groups));
    ok(cudnnSetConvolutionMathType(s.conv, CUDNN_FMA_MATH));
    ok(cudnnSetActivationDescriptor(s.activation, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN,
                                    0.0));
    ok(cudnnGetConvolution2dForwardOutputDim(s.conv, s.x, s.filter, &n, &k, &s.oh, &s.ow));
    ok(cudnnSetTensor4dDescriptor(s.y, format, dnn_type, n, k, s.oh, s.ow));
    ok(cudnnSetTensor4dDescriptor(s.bias, format, dnn_type, 1, k, 1, 1));
    s.x_values = random_values(&seed, static_cast<size_t>(s.n * s.c * s.h * s.w), type);
    s.filter_values =
        random_values(&seed, static_cast<size_t>(s.k * s.c / s.groups * s.kh * s.kw), type);
    s.y_values = random_values(&seed, static_cast<size_t>(s.n * s.k * s.oh * s.ow), type);
    s.bias_values = random_values(&seed, static_cast<size_t>(s.k), type);
    s.x_at = put(s.x_values, type);
    s.filter_at = put(s.filter_values, type);
    s.y_at = put(s.y_values, type);
    s.bias_at = put(s.bias_values, type);
    s.workspace = room_bytes(WORKSPACE_BYTES);
    return s;
}

static void end(struct conv *s)
{
    for (cudnnTensorDescriptor_t tensor : {s->x, s->y, s->bias}) {
        ok(cudnnDestroyTensorDescriptor(tensor));
    }
    ok(cudnnDestroyFilterDescriptor(s->filter));
    ok(cudnnDestroyConvolutionDescriptor(s->conv));
    ok(cudnnDestroyActivationDescriptor(s->activation));
    ok(cudnnDestroy(s->handle));
    release_all();
}

/* Calls f(input, filter, output) with the places of every product of the convolution. */
template <typename F> static void for_each_product(const struct conv &s, F f)
{
    int in = s.c / s.groups, out = s.k / s.groups;

    for (int n = 0; n < s.n; n++) {
        for (int k = 0; k < s.k; k++) {
            for (int i = 0; i < s.oh * s.ow * in * s.kh * s.kw; i++) {
                int kw = i % s.kw, kh = i / s.kw % s.kh, c = i / s.kw / s.kh % in;
                int pixel = i / s.kw / s.kh / in, oh = pixel / s.ow, ow = pixel % s.ow;
                int h = oh * s.stride - s.padding[0] + kh * s.dilation;
                int w = ow * s.stride - s.padding[1] + kw * s.dilation;

                if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
                f(at(s, n, k / out * in + c, h, w, s.c, s.h, s.w),
                  at(s, k, c, kh, kw, in, s.kh, s.kw), at(s, n, k, oh, ow, s.k, s.oh, s.ow));
            }
        }
    }
}

static void check_forward(uint64_t seed, enum value_type type, bool is_last)
{
    struct conv s = begin(seed, type, is_last);
    doubles wanted(s.y_values.size()), fused;
    const float alpha = 0.5f, beta = -2.0f, one = 1.0f;

    for_each_product(s, [&](size_t x, size_t filter, size_t y) {
        wanted[y] += static_cast<double>(s.x_values[x]) * s.filter_values[filter];
    });
    fused = wanted;
    for (size_t i = 0; i < wanted.size(); i++) {
        size_t channel = is_last ? i % static_cast<size_t>(s.k)
                                 : i / static_cast<size_t>(s.oh * s.ow) % static_cast<size_t>(s.k);
        wanted[i] = 0.5 * wanted[i] - 2.0 * s.y_values[i];
        fused[i] += -2.0 * s.y_values[i] + s.bias_values[channel];
        fused[i] = fused[i] > 0.0 ? fused[i] : 0.0;
    }
    ok(cudnnConvolutionForward(s.handle, &alpha, s.x, s.x_at, s.filter, s.filter_at, s.conv,
                               CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, NULL, 0, &beta, s.y,
                               s.y_at));
    compare("y", get(s.y_at, wanted.size(), type), wanted, type);
    s.y_at = put(s.y_values, type);
    ok(cudnnConvolutionBiasActivationForward(
        s.handle, &one, s.x, s.x_at, s.filter, s.filter_at, s.conv,
        CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, s.workspace, WORKSPACE_BYTES, &beta, s.y,
        s.y_at, s.bias, s.bias_at, s.activation, s.y, s.y_at));
    compare("fused y", get(s.y_at, fused.size(), type), fused, type);
    end(&s);
}

static void check_backward(uint64_t seed, enum value_type type, bool is_last)
{
    struct conv s = begin(seed, type, is_last);
    doubles dx(s.x_values.size()), dfilter(s.filter_values.size()), dbias(s.bias_values.size());
    const float alpha = 1.0f, none = 0.0f, beta = 0.5f;

    for_each_product(s, [&](size_t x, size_t filter, size_t y) {
        dx[x] += static_cast<double>(s.y_values[y]) * s.filter_values[filter];
        dfilter[filter] += static_cast<double>(s.y_values[y]) * s.x_values[x];
    });
    for (size_t i = 0; i < dfilter.size(); i++) {
        dfilter[i] += 0.5 * s.filter_values[i];
    }
    for (size_t i = 0; i < s.y_values.size(); i++) {
        size_t channel = is_last ? i % static_cast<size_t>(s.k)
                                 : i / static_cast<size_t>(s.oh * s.ow) % static_cast<size_t>(s.k);
        dbias[channel] += s.y_values[i];
    }
    void *dx_at = room(dx.size(), type), *dbias_at = room(dbias.size(), type);
    ok(cudnnConvolutionBackwardData(s.handle, &alpha, s.filter, s.filter_at, s.y, s.y_at, s.conv,
                                    CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, s.workspace, WORKSPACE_BYTES,
                                    &none, s.x, dx_at));
    ok(cudnnConvolutionBackwardBias(s.handle, &alpha, s.y, s.y_at, &none, s.bias, dbias_at));
    ok(cudnnConvolutionBackwardFilter(s.handle, &alpha, s.x, s.x_at, s.y, s.y_at, s.conv,
                                      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, s.workspace,
                                      WORKSPACE_BYTES, &beta, s.filter, s.filter_at));
    compare("dx", get(dx_at, dx.size(), type), dx, type);
    compare("dfilter", get(s.filter_at, dfilter.size(), type), dfilter, type);
    compare("dbias", get(dbias_at, dbias.size(), type), dbias, type);
    end(&s);
}

static void convolutions_are_those_of_plain_loops(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        for (int kind = 0; kind < 4; kind++) {
            check_forward(seed, kind % 2 == 0 ? VALUE_F32 : VALUE_BF16, kind / 2 == 1);
            check_backward(seed, kind % 2 == 0 ? VALUE_F32 : VALUE_BF16, kind / 2 == 1);
        }
    }
}

static void a_convolution_proper_turns_the_filters(void **state)
{
    const float one = 1.0f, none = 0.0f;
    struct conv s = begin(1, VALUE_F32, false);
    floats turned = s.filter_values;
    size_t taps = static_cast<size_t>(s.kh * s.kw), count = s.y_values.size();

    (void)state;
    for (size_t i = 0; i < turned.size(); i++) {
        turned[i] = s.filter_values[i / taps * taps + taps - 1 - i % taps];
    }
    ok(cudnnConvolutionForward(s.handle, &one, s.x, s.x_at, s.filter, put(turned, VALUE_F32),
                               s.conv, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, NULL, 0, &none,
                               s.y, s.y_at));
    floats wanted = get(s.y_at, count, VALUE_F32);
    ok(cudnnSetConvolution2dDescriptor(s.conv, s.padding[0], s.padding[1], s.stride, s.stride,
                                       s.dilation, s.dilation, CUDNN_CONVOLUTION,
                                       CUDNN_DATA_FLOAT));
    ok(cudnnConvolutionForward(s.handle, &one, s.x, s.x_at, s.filter, s.filter_at, s.conv,
                               CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, NULL, 0, &none, s.y,
                               s.y_at));
    compare("y", get(s.y_at, count, VALUE_F32), doubles(wanted.begin(), wanted.end()), VALUE_F32);
    end(&s);
}

static void the_default_math_rounds_to_tf32(void **state)
{
    const float one = 1.0f, none = 0.0f;
    struct conv s = begin(2, VALUE_F32, true);
    size_t count = s.y_values.size();

    (void)state;
    ok(cudnnConvolutionForward(s.handle, &one, s.x, s.x_at, s.filter, s.filter_at, s.conv,
                               CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, NULL, 0, &none, s.y,
                               s.y_at));
    floats exact = get(s.y_at, count, VALUE_F32);
    ok(cudnnSetConvolutionMathType(s.conv, CUDNN_DEFAULT_MATH));
    ok(cudnnConvolutionForward(s.handle, &one, s.x, s.x_at, s.filter, s.filter_at, s.conv,
                               CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, NULL, 0, &none, s.y,
                               s.y_at));
    floats rounded = get(s.y_at, count, VALUE_F32);
    assert_memory_not_equal(exact.data(), rounded.data(), count * sizeof(float));
    compare("rounded", rounded, doubles(exact.begin(), exact.end()), VALUE_BF16);
    end(&s);
}

static void searches_list_what_works_first_and_say_so(void **state)
{
    cudnnConvolutionBwdFilterAlgoPerf_t results[CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT];
    struct conv s = begin(3, VALUE_BF16, true);
    size_t bytes = 0;
    int count = 0;

    (void)state;
    ok(cudnnGetConvolutionBackwardFilterAlgorithm_v7(s.handle, s.x, s.y, s.conv, s.filter,
                                                     CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT,
                                                     &count, results));
    assert_true(count > 2);
    assert_int_equal(results[0].status, CUDNN_STATUS_SUCCESS);
    assert_int_equal(results[0].determinism, CUDNN_NON_DETERMINISTIC);
    assert_int_equal(results[count - 1].status, CUDNN_STATUS_NOT_SUPPORTED);
    for (int i = 0; i < count && results[i].status == CUDNN_STATUS_SUCCESS; i++) {
        ok(cudnnGetConvolutionBackwardFilterWorkspaceSize(s.handle, s.x, s.y, s.conv, s.filter,
                                                          results[i].algo, &bytes));
        assert_int_equal(bytes, results[i].memory);
    }
    ok(cudnnFindConvolutionBackwardFilterAlgorithmEx(s.handle, s.x, s.x_at, s.y, s.y_at, s.conv,
                                                     s.filter, s.filter_at, 1, &count, results,
                                                     s.workspace, WORKSPACE_BYTES));
    assert_int_equal(count, 1);
    assert_true(results[0].time > 0.0f);
    end(&s);
}

static cudnnStatus_t forward(struct conv *s, cudnnConvolutionFwdAlgo_t algo, size_t bytes)
{
    const float one = 1.0f, none = 0.0f;

    return cudnnConvolutionForward(s->handle, &one, s->x, s->x_at, s->filter, s->filter_at, s->conv,
                                   algo, s->workspace, bytes, &none, s->y, s->y_at);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct conv s = begin(4, VALUE_BF16, true);
    size_t bytes = 0;
    char text[64] = "";

    (void)state;
    ok(cudnnGetConvolutionForwardWorkspaceSize(s.handle, s.x, s.filter, s.conv, s.y,
                                               CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                               &bytes));
    ok(forward(&s, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, bytes));
    assert_int_equal(forward(&s, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, bytes - 1),
                     CUDNN_STATUS_BAD_PARAM);
    cudnnGetLastErrorString(text, sizeof(text));
    assert_string_equal(text, "the workspace is too small");
    assert_int_equal(forward(&s, CUDNN_CONVOLUTION_FWD_ALGO_FFT, bytes),
                     CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(forward(&s, CUDNN_CONVOLUTION_FWD_ALGO_GEMM, WORKSPACE_BYTES),
                     CUDNN_STATUS_NOT_SUPPORTED); /* channels come last */
    ok(cudnnSetTensor4dDescriptor(s.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_BFLOAT16, s.n, s.k, s.oh,
                                  s.ow));
    if (s.k > 1 && s.oh * s.ow > 1) {
        assert_int_equal(forward(&s, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0),
                         CUDNN_STATUS_NOT_SUPPORTED);
    }
    ok(cudnnSetTensor4dDescriptor(s.y, CUDNN_TENSOR_NHWC, CUDNN_DATA_BFLOAT16, s.n, s.k, s.oh + 1,
                                  s.ow));
    assert_int_equal(forward(&s, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0),
                     CUDNN_STATUS_BAD_PARAM);
    ok(cudnnSetTensor4dDescriptor(s.y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, s.n, s.k, s.oh, s.ow));
    assert_int_equal(forward(&s, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0),
                     CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnSetConvolution2dDescriptor(s.conv, 0, 0, 1, 1, 1, 1, CUDNN_CONVOLUTION,
                                                     CUDNN_DATA_BFLOAT16),
                     CUDNN_STATUS_BAD_PARAM);
    end(&s);
}

static void there_is_no_graph_api(void **state)
{
    cudnnBackendDescriptor_t descriptor = &descriptor;

    (void)state;
    assert_int_equal(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &descriptor),
                     CUDNN_STATUS_NOT_SUPPORTED);
    assert_null(descriptor);
}

struct libraries_tests libraries_conv(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_are_those_of_plain_loops),
        cmocka_unit_test(a_convolution_proper_turns_the_filters),
        cmocka_unit_test(the_default_math_rounds_to_tf32),
        cmocka_unit_test(searches_list_what_works_first_and_say_so),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(there_is_no_graph_api),
    };

    return {tests, sizeof(tests) / sizeof(*tests)};
}
