/* Labels and searches images from C++.
 *
 *     c++ -std=c++11 photos.cpp $(pkg-config --cflags --libs cloob) -o photos
 *     ./photos model.safetensors photos "a dog in the snow" dog cat horse
 *
 * Prints the images of the folder that match the text best, each with its most probable label. */
#include <algorithm>
#include <cstdio>
#include <exception>

#include <cloob/cloob.hpp>

static int run(int argc, char **argv)
{
    cloob::model m(argv[1]);
    const std::vector<std::string> labels(argv + 4, argv + argc);
    const cloob::classifier c(m, labels);
    const cloob::search photos(m, argv[2], "photos.index.safetensors");
    std::printf("%lld images\n", static_cast<long long>(photos.size()));
    for (const cloob::hit &h : photos.text(argv[3], 5)) {
        const std::vector<float> p = c.classify(m.encode_files({ h.path }));
        const std::size_t best = static_cast<std::size_t>(std::max_element(p.begin(), p.end()) - p.begin());
        std::printf("%.3f  %s  %s (%.0f %%)\n", static_cast<double>(h.score), h.path.c_str(), labels[best].c_str(),
                    static_cast<double>(100 * p[best]));
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        std::fprintf(stderr, "usage: %s MODEL FOLDER TEXT LABEL LABEL...\n", argv[0]);
        return 2;
    }
    try {
        return run(argc, argv);
    } catch (const std::exception &e) { /* cloob::error, or out of memory */
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
