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

static char *header;                               /* of the file, as text */
static const unsigned char *all;                   /* the values behind it */
static size_t all_bytes, rows, layers[3], C, H, W; /* layers: of each kind, so far */
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

static const void *find(const char *name, const char *part, char *type, size_t *bytes)
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
    const float *scale = find(name, ".scale", &other, &scales);
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
        if (type == 'F') memcpy(&to[i], from + (at - 1) * width, width);
        if (type == 'I') to[i] = (float)((const signed char *)from)[at - 1] * scale[i / each];
    }
    return to;
}

/* A window goes over the image: filters of a layer, or ("max", "mean") of a pooling. */
static void window(const char *layer, size_t n, const size_t size[2], size_t stride,
                   const size_t pad[2])
{
    const int is_max = strcmp(layer, "max") == 0, is_pool = is_max || strcmp(layer, "mean") == 0;
    const size_t area = size[0] * size[1], filter = is_pool ? area : C * area,
                 bottom = H + 2 * pad[0];
    const size_t right = W + 2 * pad[1], k = layers[*layer == 'd'] += is_pool ? 0 : 1;
    float *weight = is_pool ? NULL : good(tensor(layer, k, "weight", n * filter, filter), layer);
    float *bias = is_pool ? NULL : tensor(layer, k, "bias", n, 1);
    good(bottom >= size[0] && right >= size[1] && area * stride > 0 ? x : NULL, layer);
    const size_t h = (bottom - size[0]) / stride + 1, w = (right - size[1]) / stride + 1;
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
            sum = is_max ? fmax(sum, a)
                         : sum + a * (is_pool ? 1.0 / (double)area : weight[o * filter + f]);
        }
        y[i] = (float)sum;
    }
    free(x), free(weight), free(bias);
    x = y, C = n, H = h, W = w;
}

/* (x - mean) * scale + shift, channel by channel; without a variance scale is as it is. */
static void normalise(float *mean, float *variance, float *scale, float *shift)
{
    for (size_t i = 0; i < rows * C * H * W; i++) {
        const size_t c = i / (H * W) % C;
        const float deviation = variance != NULL ? sqrtf(variance[c] + 1e-5F) : 1;
        x[i] = (x[i] - mean[c]) * scale[c] / deviation + (shift != NULL ? shift[c] : 0);
    }
    free(mean), free(variance), free(scale), free(shift);
}

static float *channels(const char *layer, size_t n, const char *part)
{
    return good(tensor(layer, n, part, C, 1), part);
}

static void run(const char *word)
{
    size_t size[2] = {H, W}, pad[2] = {0, 0};
    const size_t n = number(word, ":", 0), k = number(word, "pool", 0);
    if (sscanf(word, "conv%zux%zu:", &size[0], &size[1]) == 2) {
        good(strstr(word, "dil") || strstr(word, "gro") || strstr(word, "wn=") ? NULL : word, word);
        pad[0] = number(word, ",pad=", (size[0] - 1) / 2);
        pad[1] = number(word, ",pad=", (size[1] - 1) / 2);
        window("conv", n, size, number(word, ",stride=", 1), pad);
    } else if (strncmp(word, "linear:", 7) == 0) { /* a filter as large as the image */
        window("dense", n > 0 ? n : number(header, "\"classes\":\"", 0), size, 1, pad);
    } else if (k > 0 && strchr(word, ',') == NULL) { /* maxpool2, avgpool2 */
        window(word[0] == 'm' ? "max" : "mean", C, (size_t[]){k, k}, k, pad);
    } else if (strcmp(word, "globalpool") == 0) {
        window("mean", C, size, 1, pad);
    } else if (strcmp(word, "bn") == 0) {
        const size_t b = ++layers[2];
        normalise(channels("bn", b, "running_mean"), channels("bn", b, "running_variance"),
                  channels("bn", b, "weight"), channels("bn", b, "bias"));
    } else if (strcmp(word, "relu") == 0) {
        for (size_t i = 0; i < rows * C * H * W; i++)
            x[i] = fmaxf(x[i], 0);
    } else {
        good(strncmp(word, "dropout:", 8) == 0 ? word : NULL, word);
    }
}

static void read_model(FILE *file)
{
    unsigned char size[8] = {0}, *bytes;
    size_t length = fread(size, 1, 8, file) == 8 ? 0 : 1;
    length += size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 | (size_t)size[3] << 24;
    header = good(calloc(length + 1, 1), "no memory");
    good(fread(header, 1, length, file) == length && fseek(file, 0, SEEK_END) == 0 ? file : NULL,
         "too short");
    all_bytes = (size_t)ftell(file) - 8 - length;
    all = bytes = good(malloc(all_bytes + 1), "no memory");
    fseek(file, 8 + (long)length, SEEK_SET);
    good(fread(bytes, 1, all_bytes, file) == all_bytes ? bytes : NULL, "too short");
    C = number(header, "\"channels\":\"", 0), H = number(header, "\"height\":\"", 0);
    W = number(header, "\"width\":\"", 0);
    good(C * H * W > 0 && strstr(header, "\"model\":\"") ? header : NULL, "not one of grapevine");
}

int main(int count, char **words)
{
    char word[64];
    size_t values = 0;
    read_model(good(count == 2 ? fopen(words[1], "rb") : NULL, "which? run_model FILE <ROWS"));
    for (float value; scanf("%f%*[, ]", &value) == 1; x[values++] = value)
        if (values % 65536 == 0) x = good(realloc(x, (values + 65536) * sizeof *x), "no memory");
    rows = values / (C * H * W);
    good(feof(stdin) && rows > 0 && values == rows * C * H * W ? x : NULL, "rows of another size");
    normalise(channels("input", 0, "mean"), NULL, channels("input", 0, "scale"), NULL);
    const char *at = strstr(header, "\"model\":\"") + 9;
    for (int length = 0; sscanf(at, " %63[^ \"]%n", word, &length) == 1; at += length)
        run(word);
    const int is_real = strstr(header, "\"target\":\"reals\"") != NULL;
    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * C;
        double sum = 0, most = -INFINITY;
        for (size_t i = 0; i < C; i++)
            most = fmax(most, row[i]);
        for (size_t i = 0; i < C; i++)
            sum += exp(row[i] - most);
        for (size_t i = 0; i < C; i++)
            printf("%.7g%c", is_real ? row[i] : exp(row[i] - most) / sum, i + 1 < C ? ' ' : '\n');
    }
    return 0;
}
