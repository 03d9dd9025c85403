/* Runs a fuzzer's entry point over every file of the folders named on the command line. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    uint8_t *data = malloc(1 << 20);
    size_t size = data ? fread(data, 1, 1 << 20, f) : 0;
    fclose(f);
    uint8_t *exact = data ? realloc(data, size ? size : 1) : NULL; /* so that a sanitizer sees reads beyond the end */
    if (exact) data = exact;
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        for (struct dirent *e; d && (e = readdir(d));) {
            char path[4096];
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            files += replay(path);
        }
        if (d) closedir(d);
    }
    printf("%d inputs replayed\n", files);
    return files ? 0 : 1;
}
