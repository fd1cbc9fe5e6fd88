/* Tests of the stand-ins for the libraries: see libraries.h. */
#include "tests/cuda/virtual_libraries/libraries.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static std::vector<void *> &blocks(void)
{
    static std::vector<void *> the;

    return the;
}

static uint64_t next(uint64_t *seed) /* splitmix64 */
{
    uint64_t z = *seed += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

size_t random_below_of(uint64_t *seed, size_t bound)
{
    return next(seed) % bound;
}

floats random_values(uint64_t *seed, size_t n, enum value_type type)
{
    floats values(n);

    for (float &value : values) {
        value = static_cast<float>(next(seed) >> 40) / 8388608.0f - 1.0f;
        if (type == VALUE_BF16) value = value_round(ROUND_BF16, value);
    }
    return values;
}

void *room_bytes(size_t bytes)
{
    void *block = NULL;

    ok(cudaMalloc(&block, bytes > 0 ? bytes : 1));
    blocks().push_back(block);
    return block;
}

void *put(const floats &values, enum value_type type)
{
    size_t bytes = values.size() * value_bytes(type);
    std::vector<unsigned char> raw(bytes + 1);
    void *block = room_bytes(bytes);

    for (size_t i = 0; i < values.size(); i++) {
        value_put(type, raw.data(), i, values[i]);
    }
    ok(cudaMemcpy(block, raw.data(), bytes, cudaMemcpyHostToDevice));
    return block;
}

void *room(size_t n, enum value_type type)
{
    return put(floats(n, NAN), type);
}

floats get(const void *block, size_t n, enum value_type type)
{
    std::vector<unsigned char> raw(n * value_bytes(type) + 1);
    floats values(n);

    ok(cudaDeviceSynchronize());
    ok(cudaMemcpy(raw.data(), block, n * value_bytes(type), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++) {
        values[i] = value_get(type, raw.data(), i);
    }
    return values;
}

void release_all(void)
{
    ok(cudaDeviceSynchronize());
    for (void *block : blocks()) {
        ok(cudaFree(block));
    }
    blocks().clear();
    assert_int_equal(virtual_memory_used(), 0);
}

void compare(const char *what, const floats &got, const doubles &wanted, enum value_type type)
{
    double difference = 0.0, size = 0.0, limit = type == VALUE_BF16 ? 4e-3 : 2e-6;

    assert_int_equal(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); i++) {
        difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
        size += wanted[i] * wanted[i];
    }
    if (sqrt(difference) <= limit * sqrt(size) + 1e-30) return;
    fail_msg("%s: normalised error %.3g of %zu values", what, sqrt(difference / size), got.size());
}

void aborts(void (*run)(void), const char *text)
{
    char printed[4096];
    int ends[2], status = 0;
    size_t used = 0;
    ssize_t got;

    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        signal(SIGABRT, SIG_DFL);
        run();
        _exit(0);
    }
    close(ends[1]);
    while (used + 1 < sizeof(printed) &&
           (got = read(ends[0], printed + used, sizeof(printed) - used - 1)) > 0) {
        used += static_cast<size_t>(got);
    }
    printed[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(printed, text) != NULL) return;
    fail_msg("no abort with \"%s\", but status %x and: %s", text, static_cast<unsigned>(status),
             printed);
}

int main(void)
{
    int failures = 0;
    struct {
        const char *name;
        struct libraries_tests list;
    } all[] = {{"blas", libraries_blas()},
               {"blas_lt", libraries_blas_lt()},
               {"conv", libraries_conv()},
               {"recurrent", libraries_recurrent()},
               {"nccl", libraries_nccl()}};

    setenv("VIRTUAL_DEVICE_COUNT", "2", 1);
    for (auto &part : all) {
        failures +=
            _cmocka_run_group_tests(part.name, part.list.tests, part.list.count, NULL, NULL);
    }
    return failures > 0 ? 1 : 0;
}
