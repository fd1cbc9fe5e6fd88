/*
 * run_model: a model file of grapevine, run by C99 alone, to copy and to change. It knows dense
 * layers, convolutions, poolings, batch normalisation and ReLU, float32 and int8 weights, pruned or
 * not (docs/consolidation.md, "Compact", has their form; docs/training.md the words for layers).
 *     cc -O2 -o run_model run_model.c -lm && ./run_model model.safetensors <rows.csv
 * Rows are numbers as `grapevine predict` takes them; for each a line of probabilities, or values.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *header;                      /* of the file, as text */
static const unsigned char *all;          /* the values behind it */
static size_t all_bytes, rows, layers[3]; /* convolutions, dense layers, norms so far */
static size_t C, H, W;
static float *x; /* what flows from layer to layer: [rows][C][H][W] */

static void *good(const void *there, const char *what)
{
    if (there == NULL) fprintf(stderr, "run_model: cannot run the model: %s\n", what), exit(1);
    return (void *)there;
}

static size_t number(const char *text, const char *key, size_t otherwise)
{
    const char *at = strstr(text, key);
    return at != NULL ? strtoul(at + strlen(key), NULL, 10) : otherwise;
}

static const unsigned char *find(const char *name, const char *part, char *type, size_t *bytes)
{
    char text[128];
    size_t begin, end;
    snprintf(text, sizeof text, "\"%.64s%s\":{\"dtype\":\"", name, part);
    const char *at = strstr(header, text);
    if (at == NULL) return NULL;
    *type = at[strlen(text)]; /* of F32, I8, U8 */
    at = good(strstr(at, "offsets\":["), name);
    const int is_read = sscanf(at + 10, "%zu,%zu", &begin, &end) == 2;
    good(is_read && begin <= end && end <= all_bytes ? at : NULL, name);
    *bytes = end - begin;
    return all + begin;
}

/* The values of a tensor, `each` of which share a scale; NULL: it has none of that name. */
static float *tensor(const char *layer, size_t n, const char *part, size_t count, size_t each)
{
    char name[64], type = 'F', other;
    size_t bytes = 0, bits = 0, scales = 0, at = 0;
    snprintf(name, sizeof name, n > 0 ? "%s%zu.%s" : "%s%.0zu.%s", layer, n, part);
    const float *scale = (const void *)find(name, ".scale", &other, &scales);
    const unsigned char *from = find(name, "", &type, &bytes), *mask = NULL;
    if (from == NULL) mask = find(name, ".mask", &other, &bits);
    if (from == NULL) from = find(name, ".values", &type, &bytes);
    if (from == NULL) return NULL;
    const size_t width = type == 'I' ? 1 : sizeof(float);
    good(type != 'I' || scales == count / each * sizeof(float) ? from : NULL, name);
    float *to = good(calloc(count, sizeof *to), "no memory");
    for (size_t i = 0; i < count; i++) {
        if (mask != NULL && (i / 8 >= bits || (mask[i / 8] >> i % 8 & 1) == 0)) continue;
        good(++at * width <= bytes ? from : NULL, name);
        if (type == 'I')
            to[i] = (float)((const signed char *)from)[at - 1] * scale[i / each];
        else
            memcpy(&to[i], from + (at - 1) * width, width);
    }
    return to;
}

/* A window goes over the image: filters of a layer, or ("max", "mean") of a pooling. */
static void window(const char *layer, size_t n, const size_t size[2], size_t stride, size_t pad[2])
{
    const int is_max = strcmp(layer, "max") == 0, is_pool = is_max || strcmp(layer, "mean") == 0;
    const size_t area = size[0] * size[1], filter = is_pool ? area : C * area;
    const size_t high = H + 2 * pad[0], wide = W + 2 * pad[1],
                 k = layers[*layer == 'd'] += !is_pool;
    float *weight = is_pool ? NULL : good(tensor(layer, k, "weight", n * filter, filter), layer);
    float *bias = is_pool ? NULL : tensor(layer, k, "bias", n, 1);
    good(high >= size[0] && wide >= size[1] && stride > 0 ? x : NULL, layer);
    const size_t h = (high - size[0]) / stride + 1, w = (wide - size[1]) / stride + 1;
    float *y = good(calloc(rows * n * h * w, sizeof *y), "no memory");
    for (size_t i = 0; i < rows * n * h * w; i++) {
        const size_t o = i / (h * w) % n, row = i / (n * h * w);
        const float *from = x + (row * C + (is_pool ? o : 0)) * H * W;
        double sum = is_max ? -INFINITY : bias != NULL ? bias[o] : 0;
        for (size_t f = 0; f < filter; f++) { /* above or left of the image: wraps to much */
            const size_t at_y = i / w % h * stride + f / size[1] % size[0] - pad[0];
            const size_t at_x = i % w * stride + f % size[1] - pad[1];
            if (at_y >= H || at_x >= W) continue;
            const double a = from[(f / area * H + at_y) * W + at_x];
            sum = is_max ? fmax(sum, a) : sum + a * (is_pool ? 1.0 / area : weight[o * filter + f]);
        }
        y[i] = (float)sum;
    }
    free(x), free(weight), free(bias);
    x = y, C = n, H = h, W = w;
}

static void normalise(void)
{
    static const char *const parts[] = {"weight", "bias", "running_mean", "running_variance"};
    float *p[4];
    layers[2]++;
    for (int i = 0; i < 4; i++) {
        p[i] = good(tensor("bn", layers[2], parts[i], C, 1), "bn");
    }
    for (size_t i = 0; i < rows * C * H * W; i++) {
        const size_t c = i / (H * W) % C;
        x[i] = (x[i] - p[2][c]) / sqrtf(p[3][c] + 1e-5F) * p[0][c] + p[1][c];
    }
}

static void layer(const char *word)
{
    size_t size[2] = {H, W}, pad[2] = {0, 0};
    const size_t n = number(word, ":", 0), classes = number(header, "\"classes\":\"", 0);
    int end = 0;
    if (sscanf(word, "conv%zux%zu:%*u%n", &size[0], &size[1], &end) == 2) {
        pad[0] = number(word, ",pad=", (size[0] - 1) / 2);
        pad[1] = number(word, ",pad=", (size[1] - 1) / 2);
        good(strstr(word, "dil") || strstr(word, "gro") || strstr(word, "wn=") ? NULL : word, word);
        window("conv", n, size, number(word, ",stride=", 1), pad);
    } else if (strncmp(word, "linear:", 7) == 0) { /* a filter as large as the image */
        window("dense", n > 0 ? n : classes, size, 1, pad);
    } else if (strncmp(word + 1, "axpool", 6) == 0 || strncmp(word + 1, "vgpool", 6) == 0) {
        size[0] = size[1] = number(word, "pool", 0);
        good(strchr(word, ',') == NULL ? word : NULL, word);
        window(word[0] == 'm' ? "max" : "mean", C, size, size[0], pad);
    } else if (strcmp(word, "globalpool") == 0) {
        window("mean", C, size, 1, pad);
    } else if (strcmp(word, "bn") == 0) {
        normalise();
    } else if (strcmp(word, "relu") == 0) {
        for (size_t i = 0; i < rows * C * H * W; i++) {
            x[i] = fmaxf(x[i], 0);
        }
    } else {
        good(strncmp(word, "dropout:", 8) == 0 ? word : NULL, word);
    }
}

static void read_model(FILE *file)
{
    unsigned char *bytes = NULL, size[8];
    size_t more = good(fread(size, 1, 8, file) == 8 ? file : NULL, "too short") ? 1 : 0;
    const size_t length = size[0] | size[1] << 8 | size[2] << 16 | (size_t)size[3] << 24;
    header = good(calloc(length + 1, 1), "no memory");
    good(fread(header, 1, length, file) == length ? file : NULL, "too short");
    for (; more > 0; all_bytes += more) {
        bytes = good(realloc(bytes, all_bytes + 65536), "no memory");
        more = fread(bytes + all_bytes, 1, 65536, file);
    }
    all = bytes;
    C = number(header, "\"channels\":\"", 0);
    H = number(header, "\"height\":\"", 0);
    W = number(header, "\"width\":\"", 0);
    good(C * H * W > 0 && strstr(header, "\"model\":\"") ? header : NULL, "none of grapevine");
}

static void read_rows(void)
{
    size_t count = 0;
    for (float value; scanf("%f%*[, ]", &value) == 1; x[count++] = value) {
        if (count % 65536 == 0) x = good(realloc(x, (count + 65536) * sizeof *x), "no memory");
    }
    rows = count / (C * H * W);
    good(feof(stdin) && rows > 0 && count == rows * C * H * W ? x : NULL, "rows of another size");
    const float *mean = good(tensor("input", 0, "mean", C, 1), "no mean");
    const float *scale = good(tensor("input", 0, "scale", C, 1), "no scale");
    for (size_t i = 0; i < count; i++) {
        x[i] = (x[i] - mean[i / (H * W) % C]) * scale[i / (H * W) % C];
    }
}

int main(int count, char **words)
{
    char word[64];
    read_model(good(count == 2 ? fopen(words[1], "rb") : NULL, "which? run_model FILE <ROWS"));
    read_rows();
    const char *at = strstr(header, "\"model\":\"") + 9;
    for (int length = 0; sscanf(at, " %63[^ \"]%n", word, &length) == 1; at += length) {
        layer(word);
    }
    const int is_real = strstr(header, "\"target\":\"reals\"") != NULL;
    for (size_t r = 0; r < rows; r++, x += C) {
        double sum = 0, most = -INFINITY;
        for (size_t i = 0; i < C; i++)
            most = fmax(most, x[i]);
        for (size_t i = 0; i < C; i++)
            sum += exp(x[i] - most);
        for (size_t i = 0; i < C; i++) {
            printf("%.7g%c", is_real ? x[i] : exp(x[i] - most) / sum, i + 1 < C ? ' ' : '\n');
        }
    }
    return 0;
}
