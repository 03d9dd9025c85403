/* C++11 classes over the C interface: RAII handles, errors as exceptions, rows in std::vector.
 *
 *     cloob::model m("ViT-B-32.safetensors");
 *     std::vector<float> image = m.encode_files({"cat.jpg"});
 *     cloob::classifier c(m, {"a cat", "a dog"});
 *     std::vector<float> p = c.classify(image);              one probability per label
 *
 *     cloob::search photos(m, "photos", "photos.index.safetensors");
 *     for (const cloob::hit &h : photos.text("a dog in the snow", 10)) std::cout << h.score << ' ' << h.path << '\n';
 *
 * An object may be used by one thread at a time. A model must outlive the classifiers and searches created from it.
 * Every call may throw cloob::error, except destructors and moves. get() returns the C handle, for the rest of the
 * interface. */
#ifndef CLOOB_CLOOB_HPP
#define CLOOB_CLOOB_HPP

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <cloob/cloob.h>

namespace cloob {

/* A failed call: its status and the text of cloob_error. */
class error : public std::runtime_error {
  public:
    error(cloob_status status, const std::string &text) : std::runtime_error(text), status_(status) {}
    cloob_status status() const { return status_; }

  private:
    cloob_status status_;
};

namespace detail {

template <typename T, void (*Close)(T *)>
struct closer {
    void operator()(T *p) const { Close(p); }
};
template <typename T, void (*Close)(T *)>
using handle = std::unique_ptr<T, closer<T, Close>>;

inline std::vector<const char *> pointers(const std::vector<std::string> &list)
{
    std::vector<const char *> out;
    out.reserve(list.size());
    for (const std::string &s : list) out.push_back(s.c_str());
    return out;
}

} // namespace detail

/* Threads, log and the text of the last error. A model creates its own context unless the constructor receives one. */
class context {
  public:
    explicit context(const cloob_ctx_options *options = nullptr) : ctx_(cloob_ctx_create(options))
    {
        if (!ctx_) throw error(CLOOB_ERR_MEMORY, "out of memory: a context");
    }
    cloob_ctx *get() const { return ctx_.get(); }
    void check(cloob_status status) const
    {
        if (status != CLOOB_OK) throw error(status, cloob_error(ctx_.get()));
    }

  private:
    detail::handle<cloob_ctx, cloob_ctx_destroy> ctx_;
};

/* Returns options with their defaults. Strings must outlive the call that receives the options. */
inline cloob_model_options model_options()
{
    cloob_model_options o;
    cloob_model_options_init(&o);
    return o;
}

/* A model for inference. Embeddings are rows of width() floats, one row per input. */
class model {
  public:
    explicit model(const std::string &path) : model(path, model_options()) {}
    model(const std::string &path, const cloob_model_options &options)
        : model(path, options, std::make_shared<context>())
    {
    }
    model(const std::string &path, const cloob_model_options &options, std::shared_ptr<context> ctx)
        : ctx_(std::move(ctx)), path_(path)
    {
        cloob_model *m = nullptr;
        ctx_->check(cloob_model_open(ctx_->get(), path.c_str(), &options, &m));
        model_.reset(m);
    }

    cloob_model *get() const { return model_.get(); }
    const std::shared_ptr<context> &ctx() const { return ctx_; }
    const std::string &path() const { return path_; }

    std::int64_t width(cloob_output what = CLOOB_UNIT, cloob_side side = CLOOB_IMAGE) const
    {
        return cloob_model_width(model_.get(), what, side);
    }
    cloob_model_facts facts() const
    {
        cloob_model_facts f;
        std::memset(&f, 0, sizeof f);
        cloob_model_get_facts(model_.get(), &f);
        return f;
    }

    /* Encodes image files. Throws if an image cannot be read. */
    std::vector<float> encode_files(const std::vector<std::string> &paths, cloob_output what = CLOOB_UNIT)
    {
        const std::vector<const char *> p = detail::pointers(paths);
        std::vector<float> out = rows(paths.size(), what, CLOOB_IMAGE);
        check(cloob_encode_files(ctx_->get(), get(), p.data(), count(paths.size()), what, out.data(), nullptr));
        return out;
    }
    /* Encodes one image of any size: rgb (height, width, 3). */
    std::vector<float> encode_image(const std::uint8_t *rgb, std::int64_t image_width, std::int64_t image_height,
                                    cloob_output what = CLOOB_UNIT)
    {
        std::vector<float> out = rows(1, what, CLOOB_IMAGE);
        check(cloob_encode_image(ctx_->get(), get(), rgb, image_width, image_height, what, out.data()));
        return out;
    }
    std::vector<float> encode_texts(const std::vector<std::string> &texts, cloob_output what = CLOOB_UNIT)
    {
        const std::vector<const char *> t = detail::pointers(texts);
        std::vector<float> out = rows(texts.size(), what, CLOOB_TEXT);
        check(cloob_encode_texts(ctx_->get(), get(), t.data(), count(texts.size()), what, out.data()));
        return out;
    }

  private:
    static std::int64_t count(std::size_t n) { return static_cast<std::int64_t>(n); }
    std::vector<float> rows(std::size_t n, cloob_output what, cloob_side side) const
    {
        return std::vector<float>(n * static_cast<std::size_t>(width(what, side)));
    }
    void check(cloob_status status) const { ctx_->check(status); }

    std::shared_ptr<context> ctx_;
    std::string path_;
    detail::handle<cloob_model, cloob_model_close> model_;
};

/* Zero-shot classification of image embeddings by text labels. */
class classifier {
  public:
    /* At least two labels. Each template has {} in place of the label; without templates: "a photo of a {}.". */
    classifier(const model &m, const std::vector<std::string> &labels,
               const std::vector<std::string> &templates = std::vector<std::string>())
        : ctx_(m.ctx()), labels_(labels), width_(static_cast<std::size_t>(m.width()))
    {
        const std::vector<const char *> l = detail::pointers(labels), t = detail::pointers(templates);
        cloob_classifier *c = nullptr;
        ctx_->check(cloob_classifier_create(ctx_->get(), m.get(), l.data(), static_cast<std::int64_t>(l.size()),
                                            t.empty() ? nullptr : t.data(), static_cast<std::int64_t>(t.size()), &c));
        classifier_.reset(c);
    }
    const std::vector<std::string> &labels() const { return labels_; }

    /* Returns the probabilities (n, labels) of images (n, width) from model::encode_files. */
    std::vector<float> classify(const std::vector<float> &images) const
    {
        if (images.size() % width_ != 0) throw error(CLOOB_ERR_ARGUMENT, "images: not whole rows of the model's width");
        const std::size_t n = images.size() / width_;
        std::vector<float> p(n * labels_.size());
        ctx_->check(
            cloob_classify(ctx_->get(), classifier_.get(), images.data(), static_cast<std::int64_t>(n), p.data()));
        return p;
    }

  private:
    std::shared_ptr<context> ctx_;
    std::vector<std::string> labels_;
    std::size_t width_;
    detail::handle<cloob_classifier, cloob_classifier_destroy> classifier_;
};

struct hit {
    std::string path;
    float score; /* cosine */
};

/* Search in a folder of images by text or image. */
class search {
  public:
    /* Builds or updates the index of a folder, then opens it. */
    search(model &m, const std::string &folder, const std::string &index) : model_(&m)
    {
        cloob_search_update u;
        ctx().check(
            cloob_search_index(ctx().get(), m.get(), folder.c_str(), index.c_str(), m.path().c_str(), nullptr, &u));
        open(index);
    }
    /* Opens an existing index. */
    search(model &m, const std::string &index) : model_(&m) { open(index); }

    std::int64_t size() const { return cloob_search_count(search_.get()); }
    cloob_search *get() const { return search_.get(); }

    /* Return the nearest images, best first. */
    std::vector<hit> text(const std::string &query, std::int64_t max_hits = 10) const
    {
        return ask(cloob_search_text, query, max_hits);
    }
    std::vector<hit> image(const std::string &path, std::int64_t max_hits = 10) const
    {
        return ask(cloob_search_image, path, max_hits);
    }

  private:
    typedef cloob_status ask_fn(cloob_ctx *, const cloob_search *, cloob_model *, const char *, std::int64_t,
                                cloob_search_hit *, std::int64_t *);

    const context &ctx() const { return *model_->ctx(); }
    void open(const std::string &index)
    {
        cloob_search *s = nullptr;
        ctx().check(cloob_search_open(ctx().get(), index.c_str(), &s));
        search_.reset(s);
    }
    std::vector<hit> ask(ask_fn *how, const std::string &query, std::int64_t max_hits) const
    {
        std::vector<cloob_search_hit> raw(static_cast<std::size_t>(max_hits > 0 ? max_hits : 0));
        std::int64_t found = 0;
        ctx().check(how(ctx().get(), search_.get(), model_->get(), query.c_str(), max_hits, raw.data(), &found));
        std::vector<hit> out;
        try {
            for (std::int64_t i = 0; i < found; i++) {
                const cloob_search_hit &h = raw[static_cast<std::size_t>(i)];
                out.push_back(hit{ h.path, h.score });
            }
        } catch (...) {
            cloob_search_hits_release(raw.data(), found);
            throw;
        }
        cloob_search_hits_release(raw.data(), found);
        return out;
    }

    model *model_;
    detail::handle<cloob_search, cloob_search_close> search_;
};

} // namespace cloob
#endif
