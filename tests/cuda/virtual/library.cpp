/* What the stand-ins of the libraries share: see library.h. */
#include "tests/cuda/virtual/library.h"

std::vector<float> matrix_values(const struct matrix &matrix, enum value_rounding rounding)
{
    std::vector<float> values(matrix.rows * matrix.columns);

    for (size_t row = 0; row < matrix.rows; row++) {
        for (size_t column = 0; column < matrix.columns; column++) {
            size_t at = row * matrix.row_stride + column * matrix.column_stride;
            float value = value_get(matrix.type, matrix.at, at);
            values[row * matrix.columns + column] = value_round(rounding, value);
        }
    }
    return values;
}

/* Columns at a time; terms summed before they join the others. */
static const size_t PANEL = 64, RUN = 128;

/* sums[PANEL] of one row over one panel of b, which is packed: [inner][PANEL]. */
static void row_of_panel(const float *a, const float *panel, size_t inner, float *sums)
{
    memset(sums, 0, PANEL * sizeof(*sums));
    for (size_t begin = 0; begin < inner; begin += RUN) {
        size_t end = begin + RUN < inner ? begin + RUN : inner;
        float run[PANEL] = {0};

        for (size_t k = begin; k < end; k++) {
            float factor = a[k];
            const float *row = panel + k * PANEL;
            for (size_t j = 0; j < PANEL; j++) {
                run[j] += factor * row[j];
            }
        }
        for (size_t j = 0; j < PANEL; j++) {
            sums[j] += run[j];
        }
    }
}

std::vector<float> matrix_product(const std::vector<float> &a, const std::vector<float> &b,
                                  size_t rows, size_t columns, size_t inner)
{
    std::vector<float> c(rows * columns), panel(inner * PANEL);
    float sums[PANEL];

    for (size_t first = 0; first < columns; first += PANEL) {
        size_t width = columns - first < PANEL ? columns - first : PANEL;

        for (size_t k = 0; k < inner; k++) {
            memcpy(&panel[k * PANEL], &b[k * columns + first], width * sizeof(float));
        }
        for (size_t row = 0; row < rows; row++) {
            row_of_panel(a.data() + row * inner, panel.data(), inner, sums);
            memcpy(&c[row * columns + first], sums, width * sizeof(float));
        }
    }
    return c;
}

void library_reach(const char *call, const char *what, const void *block, size_t bytes, int device)
{
    if (bytes == 0 || virtual_is_device_memory(block, bytes, device)) return;
    virtual_fatal("%s: %s is not memory of device %d: %p, %zu bytes", call, what, device, block,
                  bytes);
}

void library_apart(const char *call, const void *output, size_t output_bytes, const void *input,
                   size_t input_bytes)
{
    const char *out = static_cast<const char *>(output), *in = static_cast<const char *>(input);

    if (output_bytes == 0 || input_bytes == 0) return;
    if (out + output_bytes <= in || in + input_bytes <= out) return;
    virtual_fatal("%s: its output is memory of an input: %p, %zu bytes", call, output,
                  output_bytes);
}

uint32_t library_alignment(const void *block)
{
    uintptr_t address = reinterpret_cast<uintptr_t>(block) | 256;

    return static_cast<uint32_t>(address & (~address + 1));
}

void library_scribble(void *block, size_t bytes)
{
    if (bytes > 0) memset(block, 0xFF, bytes);
}
