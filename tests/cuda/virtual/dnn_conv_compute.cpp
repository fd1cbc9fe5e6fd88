/*
 * The arithmetic of the stand-in's convolutions: by products of matrices, each image and group on
 * its own. Inputs under the taps of the filters are gathered into [in channels x taps][pixels].
 */
#include "tests/cuda/virtual/dnn_conv.h"

static size_t stride_of(const struct cudnnTensorStruct *tensor, int i)
{
    return static_cast<size_t>(tensor->strides[i]);
}

static size_t size_of(const struct cudnnTensorStruct *tensor, int i)
{
    return static_cast<size_t>(tensor->sizes[i]);
}

/* Address of input value (image, channel, row, column) under a tap, or -1: padding. */
static ptrdiff_t input_at(const struct conv_shape *shape, size_t image, size_t channel, size_t tap,
                          size_t pixel)
{
    const struct cudnnConvolutionStruct *c = &shape->conv;
    int kernel_width = shape->filter.sizes[3], out_width = shape->y.sizes[3];
    int row = static_cast<int>(pixel) / out_width * c->stride[0] - c->padding[0] +
              static_cast<int>(tap) / kernel_width * c->dilation[0];
    int column = static_cast<int>(pixel) % out_width * c->stride[1] - c->padding[1] +
                 static_cast<int>(tap) % kernel_width * c->dilation[1];

    if (row < 0 || row >= shape->x.sizes[2] || column < 0 || column >= shape->x.sizes[3]) return -1;
    return static_cast<ptrdiff_t>(image * stride_of(&shape->x, 0) +
                                  channel * stride_of(&shape->x, 1) +
                                  static_cast<size_t>(row) * stride_of(&shape->x, 2) +
                                  static_cast<size_t>(column) * stride_of(&shape->x, 3));
}

static size_t output_at(const struct conv_shape *shape, size_t image, size_t channel, size_t pixel)
{
    size_t width = size_of(&shape->y, 3);

    return image * stride_of(&shape->y, 0) + channel * stride_of(&shape->y, 1) +
           pixel / width * stride_of(&shape->y, 2) + pixel % width * stride_of(&shape->y, 3);
}

/* CUDNN_CONVOLUTION turns the filters around; a cross correlation does not. */
static size_t filter_at(const struct conv_shape *shape, size_t out, size_t in, size_t tap)
{
    size_t width = static_cast<size_t>(shape->filter.sizes[3]);
    size_t turned = shape->conv.mode == CUDNN_CONVOLUTION ? shape->taps - 1 - tap : tap;

    return out * shape->filter_strides[0] + in * shape->filter_strides[1] +
           turned / width * shape->filter_strides[2] + turned % width * shape->filter_strides[3];
}

/* [group_in x taps][pixels]; or, turned, [pixels][group_in x taps]. */
static std::vector<float> gather(const struct conv_shape *shape, const void *x, size_t image,
                                 size_t group, bool is_turned)
{
    enum value_type type = dnn_value_type(shape->x.type);
    enum value_rounding rounding = dnn_rounding(shape->x.type, shape->conv.math);
    size_t rows = shape->group_in * shape->taps;
    std::vector<float> values(rows * shape->pixels);

    for (size_t row = 0; row < rows; row++) {
        size_t channel = group * shape->group_in + row / shape->taps;
        for (size_t pixel = 0; pixel < shape->pixels; pixel++) {
            ptrdiff_t at = input_at(shape, image, channel, row % shape->taps, pixel);
            float value = at < 0 ? 0.0f : value_get(type, x, static_cast<size_t>(at));
            values[is_turned ? pixel * rows + row : row * shape->pixels + pixel] =
                value_round(rounding, value);
        }
    }
    return values;
}

/* [group_out][group_in x taps] of a group, or turned. */
static std::vector<float> filters_of(const struct conv_shape *shape, const void *filter,
                                     size_t group, bool is_turned)
{
    enum value_type type = dnn_value_type(shape->filter.type);
    enum value_rounding rounding = dnn_rounding(shape->filter.type, shape->conv.math);
    size_t columns = shape->group_in * shape->taps;
    std::vector<float> values(shape->group_out * columns);

    for (size_t out = 0; out < shape->group_out; out++) {
        for (size_t column = 0; column < columns; column++) {
            size_t at = filter_at(shape, group * shape->group_out + out, column / shape->taps,
                                  column % shape->taps);
            values[is_turned ? column * shape->group_out + out : out * columns + column] =
                value_round(rounding, value_get(type, filter, at));
        }
    }
    return values;
}

/* [group_out][pixels] */
static std::vector<float> outputs_of(const struct conv_shape *shape, const void *dy, size_t image,
                                     size_t group)
{
    enum value_type type = dnn_value_type(shape->y.type);
    enum value_rounding rounding = dnn_rounding(shape->y.type, shape->conv.math);
    std::vector<float> values(shape->group_out * shape->pixels);

    for (size_t out = 0; out < shape->group_out; out++) {
        for (size_t pixel = 0; pixel < shape->pixels; pixel++) {
            size_t at = output_at(shape, image, group * shape->group_out + out, pixel);
            values[out * shape->pixels + pixel] = value_round(rounding, value_get(type, dy, at));
        }
    }
    return values;
}

void conv_forward(const struct conv_shape *shape, const void *x, const void *filter, float alpha,
                  float beta, const struct conv_finish *finish, void *y)
{
    enum value_type type = dnn_value_type(shape->y.type);
    size_t inner = shape->group_in * shape->taps;

    for (size_t group = 0; group < static_cast<size_t>(shape->conv.groups); group++) {
        std::vector<float> filters = filters_of(shape, filter, group, false);

        for (size_t image = 0; image < size_of(&shape->x, 0); image++) {
            std::vector<float> sums = matrix_product(filters, gather(shape, x, image, group, false),
                                                     shape->group_out, shape->pixels, inner);

            for (size_t i = 0; i < sums.size(); i++) {
                size_t channel = group * shape->group_out + i / shape->pixels;
                size_t at = output_at(shape, image, channel, i % shape->pixels);
                float value = alpha * sums[i];

                if (beta != 0.0f) value += beta * value_get(type, y, at);
                if (finish->other != NULL && finish->other_alpha != 0.0f) {
                    value += finish->other_alpha * value_get(type, finish->other, at);
                }
                if (finish->bias != NULL) value += value_get(type, finish->bias, channel);
                if (finish->has_relu && !(value > 0.0f)) value = 0.0f;
                value_put(type, y, at, value);
            }
        }
    }
}

void conv_data(const struct conv_shape *shape, const void *filter, const void *dy, float alpha,
               float beta, bool is_backwards, void *dx)
{
    enum value_type type = dnn_value_type(shape->x.type);
    size_t rows = shape->group_in * shape->taps;
    size_t groups = static_cast<size_t>(shape->conv.groups);
    std::vector<float> sums(dnn_tensor_bytes(&shape->x) / value_bytes(type));

    for (size_t group = 0; group < groups; group++) {
        std::vector<float> filters = filters_of(shape, filter, group, true);

        for (size_t image = 0; image < size_of(&shape->x, 0); image++) {
            std::vector<float> spread = matrix_product(filters, outputs_of(shape, dy, image, group),
                                                       rows, shape->pixels, shape->group_out);

            for (size_t turn = 0; turn < spread.size(); turn++) {
                size_t i = is_backwards ? spread.size() - 1 - turn : turn;
                size_t row = i / shape->pixels;
                ptrdiff_t at = input_at(shape, image, group * shape->group_in + row / shape->taps,
                                        row % shape->taps, i % shape->pixels);
                if (at >= 0) sums[static_cast<size_t>(at)] += spread[i];
            }
        }
    }
    for (size_t i = 0; i < sums.size(); i++) { /* tensors are packed */
        float value = alpha * sums[i];
        if (beta != 0.0f) value += beta * value_get(type, dx, i);
        value_put(type, dx, i, value);
    }
}

void conv_filter(const struct conv_shape *shape, const void *x, const void *dy, float alpha,
                 float beta, bool is_backwards, void *dfilter)
{
    enum value_type type = dnn_value_type(shape->filter.type);
    size_t columns = shape->group_in * shape->taps, images = size_of(&shape->x, 0);

    for (size_t group = 0; group < static_cast<size_t>(shape->conv.groups); group++) {
        std::vector<float> sums(shape->group_out * columns);

        for (size_t turn = 0; turn < images; turn++) {
            size_t image = is_backwards ? images - 1 - turn : turn;
            std::vector<float> part = matrix_product(outputs_of(shape, dy, image, group),
                                                     gather(shape, x, image, group, true),
                                                     shape->group_out, columns, shape->pixels);

            for (size_t i = 0; i < sums.size(); i++) {
                sums[i] += part[i];
            }
        }
        for (size_t i = 0; i < sums.size(); i++) {
            size_t at = filter_at(shape, group * shape->group_out + i / columns,
                                  i % columns / shape->taps, i % columns % shape->taps);
            float value = alpha * sums[i];

            if (beta != 0.0f) value += beta * value_get(type, dfilter, at);
            value_put(type, dfilter, at, value);
        }
    }
}
