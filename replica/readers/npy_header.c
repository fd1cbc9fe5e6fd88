/*
 * The header of a .npy file: 6 bytes of magic, version, length, and a Python dictionary as text,
 * `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }` (NumPy Enhancement Proposal 1 and
 * numpy.lib.format). The three keys may stand in any order; anything else is refused.
 */
#include "replica/readers/npy.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[NPY_TYPES] = {{"|u1", 1}, {"<i4", 4}, {"<i8", 8}, {"<f4", 4}, {"<f8", 8}};

/* What is left of the dictionary. */
struct scan {
    const char *at;
};

static void skip_blanks(struct scan *s)
{
    while (*s->at == ' ' || *s->at == '\n' || *s->at == '\t') {
        s->at++;
    }
}

static bool take(struct scan *s, char c)
{
    skip_blanks(s);
    if (*s->at != c) return false;
    s->at++;
    return true;
}

static bool take_word(struct scan *s, const char *word)
{
    skip_blanks(s);
    if (strncmp(s->at, word, strlen(word)) != 0) return false;
    s->at += strlen(word);
    return true;
}

/* A string in either kind of quotes, without escapes. */
static bool take_string(struct scan *s, char text[32])
{
    const char *end;
    char quote;

    skip_blanks(s);
    quote = *s->at;
    if (quote != '\'' && quote != '"') return false;
    end = strchr(s->at + 1, quote);
    if (end == NULL || end - s->at - 1 >= 32) return false;
    memcpy(text, s->at + 1, (size_t)(end - s->at - 1));
    text[end - s->at - 1] = '\0';
    s->at = end + 1;
    return true;
}

static bool take_number(struct scan *s, uint64_t *number)
{
    uint64_t value = 0;

    skip_blanks(s);
    if (*s->at < '0' || *s->at > '9') return false;
    for (; *s->at >= '0' && *s->at <= '9'; s->at++) {
        if (value > UINT64_MAX / 100) return false;
        value = value * 10 + (uint64_t)(*s->at - '0');
    }
    *number = value;
    return true;
}

/* (3,) or (3, 4) */
static bool take_shape(struct scan *s, struct npy_header *header)
{
    if (!take(s, '(')) return false;
    while (!take(s, ')')) {
        uint64_t number;
        if (header->dimensions == NPY_DIMENSIONS_MAX || !take_number(s, &number)) return false;
        header->shape[header->dimensions++] = number;
        if (take(s, ',')) continue;
        return take(s, ')');
    }
    return true;
}

static bool find_type(const char *name, struct npy_header *header)
{
    for (int i = 0; i < NPY_TYPES; i++) {
        if (strcmp(name, types[i].name) != 0) continue;
        header->type = (enum npy_type)i;
        header->item_bytes = types[i].bytes;
        return true;
    }
    return false;
}

static enum rc parse_dictionary(struct data_stream *stream, const char *text,
                                struct npy_header *header, struct fault *why)
{
    struct scan s = {text};
    char key[32], type[32] = "";
    bool is_fortran = false, is_sound = take(&s, '{');
    unsigned seen = 0;

    while (is_sound && !take(&s, '}')) {
        unsigned bit = 0;
        is_sound = take_string(&s, key) && take(&s, ':');
        if (is_sound && strcmp(key, "descr") == 0) {
            bit = 1;
            is_sound = take_string(&s, type);
        } else if (is_sound && strcmp(key, "fortran_order") == 0) {
            bit = 2;
            is_fortran = take_word(&s, "True");
            is_sound = is_fortran || take_word(&s, "False");
        } else if (is_sound && strcmp(key, "shape") == 0) {
            bit = 4;
            is_sound = (seen & 4) == 0 && take_shape(&s, header);
        }
        is_sound = is_sound && bit != 0 && (seen & bit) == 0;
        seen |= bit;
        if (is_sound && !take(&s, ',')) {
            is_sound = take(&s, '}');
            break;
        }
    }
    skip_blanks(&s);
    if (!is_sound || seen != 7 || *s.at != '\0') {
        return data_stream_malformed(stream, why,
                                     "its .npy header is damaged, or of more than 4 dimensions");
    }
    if (!find_type(type, header)) {
        return data_stream_malformed(stream, why,
                                     "values of type '%s'; convert with astype() to |u1, <i4, <i8, "
                                     "<f4 or <f8",
                                     type);
    }
    if (is_fortran) {
        return data_stream_malformed(stream, why,
                                     "it is in Fortran order; save numpy.ascontiguousarray()");
    }
    return RC_OK;
}

/* That it has values, and the file room for them. */
static enum rc check_size(struct data_stream *stream, const struct npy_header *header,
                          uint64_t header_bytes, struct fault *why)
{
    uint64_t there = data_stream_bytes_max(stream), values = 1;

    if (header->dimensions == 0) {
        return data_stream_malformed(stream, why, "it holds a single number");
    }
    for (uint32_t i = 0; i < header->dimensions; i++) {
        if (header->shape[i] == 0) return data_stream_malformed(stream, why, "it is empty");
        if (header->shape[i] > there / values) {
            return data_stream_malformed(stream, why,
                                         "its header claims more values than the file can hold");
        }
        values *= header->shape[i];
    }
    if (values > there / header->item_bytes || values * header->item_bytes > there - header_bytes) {
        return data_stream_malformed(stream, why,
                                     "its header claims more values than the file can hold");
    }
    return RC_OK;
}

enum rc npy_read_header(struct data_stream *stream, struct npy_header *header, struct fault *why)
{
    struct npy_header parsed = {.shape = {1, 1, 1, 1}};
    uint8_t start[12] = {0};
    size_t start_bytes, length;
    char *text;
    enum rc rc = data_stream_read(stream, start, 10, why);

    if (rc != RC_OK) return rc;
    if (memcmp(start, "\x93NUMPY", 6) != 0) {
        return data_stream_malformed(stream, why, "not a .npy file (magic number)");
    }
    if (start[6] < 1 || start[6] > 3) {
        return data_stream_malformed(stream, why, "version %u of .npy is unknown", start[6]);
    }
    start_bytes = start[6] == 1 ? 10 : 12;
    if (start_bytes == 12) rc = data_stream_read(stream, start + 10, 2, why);
    if (rc != RC_OK) return rc;
    length = start_bytes == 10 ? (size_t)start[8] | (size_t)start[9] << 8 : load_le32(start + 8);
    if (length > NPY_HEADER_BYTES_MAX) {
        return data_stream_malformed(stream, why, "its .npy header is longer than %d bytes",
                                     NPY_HEADER_BYTES_MAX);
    }
    text = mem_alloc(length + 1);
    if (text == NULL) return fault_set(why, RC_NOMEM, "cannot read .npy header: out of memory");
    rc = data_stream_read(stream, text, length, why);
    if (rc == RC_OK && strlen(text) != length) {
        rc = data_stream_malformed(stream, why, "its .npy header is damaged");
    }
    if (rc == RC_OK) rc = parse_dictionary(stream, text, &parsed, why);
    if (rc == RC_OK) rc = check_size(stream, &parsed, start_bytes + length, why);
    mem_free(text);
    if (rc == RC_OK) *header = parsed;
    return rc;
}

double npy_value(const struct npy_header *header, const uint8_t *bytes, size_t i)
{
    const uint8_t *at = bytes + i * header->item_bytes;
    uint32_t word;
    uint64_t long_word;
    float real;
    double long_real;

    switch (header->type) {
    case NPY_U8:
        return (double)*at;
    case NPY_I32:
        word = load_le32(at);
        return (double)(int32_t)word;
    case NPY_I64:
        return (double)(int64_t)load_le64(at);
    case NPY_F32:
        word = load_le32(at);
        memcpy(&real, &word, sizeof real);
        return (double)real;
    default:
        long_word = load_le64(at);
        memcpy(&long_real, &long_word, sizeof long_real);
        return long_real;
    }
}
