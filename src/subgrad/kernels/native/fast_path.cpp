// In front of the kernels in Python: a call like one that was planned before is answered here, and no Python runs.
//
// A path lies over one kernel in Python, which lies over torch's own. It does not know what conventions mean: at the
// first call of a kind it asks the planner, in Python, how calls of that kind are to be answered from then on. That they
// are left to the kernel in Python is one of the answers.

#include <Python.h>

#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include "cpu_clamp.h"
#include "cpu_max_pool.h"

#if defined(__linux__)
#include <dlfcn.h>
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace py = pybind11;
using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using c10::OperatorHandle;
using c10::Scalar;
using loops::Bits;
using loops::Range;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;
using SavedData = decltype(AutogradContext::saved_data);

namespace c10 {

// What an `OperatorHandle` is a handle of is private, but for its typed handles: so this is one. It gives a kernel as
// the dispatcher holds it.
template <>
class TypedOperatorHandle<KernelFunction> {
 public:
  static KernelFunction of(const OperatorHandle& op, DispatchKey key) {
    return op.operatorDef_->op.lookup(DispatchKeySet(key));
  }
};

}  // namespace c10

namespace {

// Who passes the cotangent on and who does not, by where an entry lies.
struct Mask {
  double low, high;  // the kinks; where there is one only, `high` is nan, and nothing lies above it
  bool below, on_low, between, on_high, above, nan;

  // Of any type, however it lies. ``place`` is the kink, if it is a tensor.
  Tensor bytes(const Tensor& x, const std::optional<Tensor>& place) const {
    Tensor found = place ? side(x, *place, on_low, between) : side(x, Scalar(low), on_low, between);
    if (!std::isnan(high)) {
      // Between two kinks both must hold for what lies inside, either for what lies outside.
      const Tensor upper = side(x, Scalar(high), on_high, above);
      found = between != nan ? found.logical_and_(upper) : found.logical_or_(upper);
    }
    return nan ? found.logical_not_() : found;
  }

  // For loops over entries.
  template <typename Number>
  Range<Number> range() const {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    if (!std::isnan(high)) return Range<Number>(low, high, on_low, on_high, nan);
    return between ? Range<Number>(low, infinite, on_low, true, nan) : Range<Number>(-infinite, low, true, on_low, nan);
  }

 private:
  // A comparison with nan is false: so it says who passes where nan does not, and who does not where nan does.
  template <typename Place>
  Tensor side(const Tensor& x, const Place& place, bool on, bool right) const {
    const bool with_on = on != nan;
    if (right != nan) return with_on ? at::ge(x, place) : at::gt(x, place);
    return with_on ? at::le(x, place) : at::lt(x, place);
  }
};

// Memory that loops can read, and nothing more than that.
bool is_plain_cpu(const Tensor& tensor) {
  return !at::isTensorSubclassLike(tensor) && tensor.is_cpu() && !tensor.is_neg() && !tensor._is_zerotensor();
}

// Where the gradient of an input goes. Kept by nodes whose backward does not depend on the input, so that their second
// derivatives are zeros, as torch's own, and not missing.
struct Origin : torch::CustomClassHolder {
  torch::autograd::Edge edge;
  std::vector<int64_t> sizes;
  at::TensorOptions options;

  static IValue of(const Tensor& x) {
    auto origin = c10::make_intrusive<Origin>();
    origin->edge = torch::autograd::impl::gradient_edge(x);
    origin->sizes = x.sizes().vec();
    origin->options = x.options();
    return IValue::make_capsule(std::move(origin));
  }

  // 0.0, whose derivative with respect to the input is zeros: to subtract it leaves every bit. A plain 0.0 where the
  // origin has been hidden from compiled autograd.
  static Tensor zero(const SavedData& data, const Tensor& cotangent) {
    const auto kept = data.find("origin");
    if (kept == data.end()) return at::zeros({}, cotangent.options());
    const auto& origin = static_cast<const Origin&>(*kept->second.toCapsule());
    Tensor zeros = at::zeros({}, origin.options).expand(origin.sizes).detach();
    torch::autograd::impl::set_gradient_edge(zeros, origin.edge);
    return zeros.reshape({-1}).narrow(0, 0, 0).sum();
  }
};

// Compiled autograd cannot take capsules, nor functions that wrote over their input or have outputs without a
// derivative: all that is taken from a node before it looks at it. A recipe becomes its address, and is never freed,
// since the graphs that compiled autograd makes hold that address.
void hide_from_compiled_autograd(AutogradContext& context) {
  static auto* kept = new std::map<int64_t, c10::intrusive_ptr<torch::CustomClassHolder>>;
  static std::mutex mutex;
  context.mark_dirty({});
  context.mark_non_differentiable({});
  context.saved_data.erase("origin");
  const auto run_by = context.saved_data.find("run by");
  if (run_by == context.saved_data.end() || run_by->second.isInt()) return;
  auto holder = run_by->second.toCapsule();
  const auto address = reinterpret_cast<int64_t>(holder.get());
  run_by->second = address;
  const std::lock_guard<std::mutex> lock(mutex);
  kept->emplace(address, std::move(holder));
}

// How calls of one kind are run. Shared by the nodes of all of them; `in_python` does what C++ does not.
struct Recipe : torch::CustomClassHolder {
  PyObject* in_python = nullptr;

  // Freed with the last graph that needs it, in any thread.
  ~Recipe() override {
    if (!Py_IsInitialized()) return;
    py::gil_scoped_acquire gil;
    Py_XDECREF(in_python);
  }

  template <typename Kind>
  static const Kind& of(const AutogradContext& context) {
    const IValue& kept = context.saved_data.at("run by");
    const auto* holder = kept.isInt() ? reinterpret_cast<const torch::CustomClassHolder*>(kept.toInt())
                                      : kept.toCapsule().get();
    return static_cast<const Kind&>(*holder);
  }
};

// The node of a function, and what compiled autograd sees of it.
template <typename Function>
struct Backward : torch::autograd::Function<Backward<Function>> {
  static variable_list backward(AutogradContext* context, const variable_list& cotangents) {
    return Function::backward(context, cotangents);
  }
};

template <typename Function>
struct Compilable : torch::autograd::CppNode<Backward<Function>> {
  using Node = torch::autograd::CppNode<Backward<Function>>;

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    hide_from_compiled_autograd(const_cast<Compilable*>(this)->ctx_);
    Node::compiled_args(args);
  }
};

struct Masked;
struct Mended;
struct Packed;
struct Pooled;

}  // namespace

template <>
struct torch::autograd::CppNode<Masked> : Compilable<Masked> {};
template <>
struct torch::autograd::CppNode<Mended> : Compilable<Mended> {};
template <>
struct torch::autograd::CppNode<Packed> : Compilable<Packed> {};
template <>
struct torch::autograd::CppNode<Pooled> : Compilable<Pooled> {};

namespace {

// What is masked: an operator, and its arguments on the stack, where it leaves its result.
struct Call {
  const OperatorHandle& op;
  bool in_place, is_clamp, has_second;
  Stack* stack;
  Mask mask;
  std::optional<Tensor> place;  // the kink, if it differs from entry to entry
};

// Whether values are torch's to the bit: elsewhere its own instructions for lanes decide otherwise about zeros.
#if defined(__x86_64__)
constexpr bool CLAMPS_AS_TORCH = true;
#else
constexpr bool CLAMPS_AS_TORCH = false;
#endif

// The operator's value on the CPU, and a bit an entry, which is all that is kept; a byte where no loop is made for it.
struct Masked : torch::autograd::Function<Masked> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Call& call) {
    at::AutoDispatchBelowAutograd guard;
    if (call.has_second) context->saved_data["origin"] = Origin::of(x);
    const bool has_bits = (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble) &&
                          x.is_non_overlapping_and_dense() && is_plain_cpu(x);
    const bool is_clamp = CLAMPS_AS_TORCH && call.is_clamp && has_bits;
    Tensor out, kept;
    if (is_clamp) {
      out = call.in_place ? x : at::empty_like(x, {}, format_of_result(x));
      torch::jit::drop(*call.stack, call.op.schema().arguments().size());
      call.stack->emplace_back(out);
    }
    if (!has_bits) kept = call.mask.bytes(x, call.place);
    else if (x.scalar_type() == at::kFloat) kept = bits<float>(x, is_clamp ? &out : nullptr, call);
    else kept = bits<double>(x, is_clamp ? &out : nullptr, call);
    if (!is_clamp) {
      call.op.callBoxed(call.stack);
      out = call.in_place ? x : call.stack->back().toTensor();
    }
    context->save_for_backward({kept});
    context->saved_data["strides"] = out.strides();
    if (call.in_place) context->mark_dirty({x});
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& cotangents) {
    const Tensor kept = context->get_saved_variables()[0], cotangent = cotangents[0];
    if (!cotangent.defined()) return variable_list(2);
    auto& data = context->saved_data;
    const auto strides = data["strides"].toIntVector();
    Tensor gradient = kept.scalar_type() == at::kBool    ? at::where(kept, cotangent, 0)
                      : cotangent.scalar_type() == at::kFloat ? weighed<float>(kept, cotangent, strides)
                                                              : weighed<double>(kept, cotangent, strides);
    if (at::GradMode::is_enabled() && data.count("origin")) gradient = gradient.sub(Origin::zero(data, cotangent));
    return {gradient, Tensor()};
  }

 private:
  // As torch's own: lengths of 1 may have any stride, and get the usual one.
  static at::MemoryFormat format_of_result(const Tensor& x) {
    if (x.is_contiguous()) return at::MemoryFormat::Contiguous;
    const bool channels_last = x.is_contiguous(at::MemoryFormat::ChannelsLast);
    return channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Preserve;
  }

  // Those of entries that pass; a clamp is computed with them.
  template <typename Number>
  static Tensor bits(const Tensor& x, const Tensor* out, const Call& call) {
    using Word = typename Bits<Number>::Word;
    const auto range = call.mask.range<Number>();
    const loops::Sides sides{call.mask.below, call.mask.on_low, call.mask.between, call.mask.nan};
    const auto dtype = sizeof(Word) == 4 ? at::kInt : at::kLong;
    const Tensor words = at::empty({Bits<Number>::words(x.numel())}, x.options().dtype(dtype));
    const auto* from = x.const_data_ptr<Number>();
    auto* to = out ? out->mutable_data_ptr<Number>() : nullptr;
    const auto* place = call.place ? call.place->const_data_ptr<Number>() : nullptr;
    by_blocks<Number>(words, x.numel(), [&](Word* bits, int64_t begin, int64_t size) {
      if (place) loops::compare(from + begin, place + begin, bits, size, sides);
      else loops::clamp(from + begin, to ? to + begin : nullptr, bits, size, range);
    });
    return words;
  }

  template <typename Number>
  static Tensor weighed(const Tensor& words, const Tensor& cotangent, at::IntArrayRef strides) {
    if (at::GradMode::is_enabled() || !is_plain_cpu(words) || !is_plain_cpu(cotangent)) {
      return at::where(unpacked<Number>(words, cotangent.sizes(), strides), cotangent, 0);
    }
    const bool lies_alike = cotangent.strides() == strides;
    const Tensor out = at::empty_strided(cotangent.sizes(), strides, cotangent.options());
    if (!lies_alike) out.copy_(cotangent);
    const auto* from = (lies_alike ? cotangent : out).template const_data_ptr<Number>();
    auto* to = out.template mutable_data_ptr<Number>();
    by_blocks<Number>(words, out.numel(), [&](const auto* bits, int64_t begin, int64_t size) {
      loops::weigh(bits, from + begin, to + begin, size);
    });
    return out;
  }

  // In torch's own threads, which a loop that is compiled here would not be divided among, since OpenMP is off in
  // extensions: the first word of each block is what they divide.
  template <typename Number, typename Loop>
  static void by_blocks(const Tensor& words, int64_t size, const Loop& loop) {
    using B = Bits<Number>;
    using Word = typename B::Word;
    auto* const bits = static_cast<Word*>(words.data_ptr());
    if (size <= at::internal::GRAIN_SIZE) return loop(bits, 0, size);
    const Tensor firsts = words.as_strided({B::blocks(size)}, {B::LANES});
    auto blocks = at::TensorIterator::borrowing_nullary_op(firsts);
    blocks.for_each(
        [&](char** data, const int64_t* /*strides*/, int64_t count) {
          auto* const first = reinterpret_cast<Word*>(data[0]);
          const int64_t begin = (first - bits) * B::ROWS;
          loop(first, begin, std::min(count * B::BLOCK, size - begin));
        },
        at::internal::GRAIN_SIZE / B::BLOCK);
  }

  // Those who pass, lying in memory as `strides` say; of operators, which can be traced.
  template <typename Number>
  static Tensor unpacked(const Tensor& words, at::IntArrayRef sizes, at::IntArrayRef strides) {
    using B = Bits<Number>;
    const int64_t blocks = B::blocks(c10::multiply_integers(sizes));
    const Tensor whole = at::constant_pad_nd(words, {0, blocks * B::LANES - words.numel()}).view({blocks, 1, B::LANES});
    const Tensor rows = at::arange(B::ROWS, words.options()).view({B::ROWS, 1});
    return at::bitwise_right_shift(whole, rows).bitwise_and(1).to(at::kBool).as_strided(sizes, strides);
  }
};

// The driver of the GPU, which torch has loaded if there is one.
struct Driver {
  using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                         void**);
  Launch launch = nullptr;
  int (*current)(void**) = nullptr;
  int (*make_current)(void*) = nullptr;

  static const Driver& get() {
    static const Driver only;
    return only;
  }

  explicit operator bool() const { return launch != nullptr && current != nullptr && make_current != nullptr; }

  void* context() const {
    void* found = nullptr;
    current(&found);
    return found;
  }

 private:
  Driver() {
#if defined(__linux__)
    void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return;
    launch = reinterpret_cast<Launch>(dlsym(library, "cuLaunchKernel"));
    current = reinterpret_cast<int (*)(void**)>(dlsym(library, "cuCtxGetCurrent"));
    make_current = reinterpret_cast<int (*)(void*)>(dlsym(library, "cuCtxSetCurrent"));
#endif
  }
};

// A kernel of Triton's: for tensors that lie at multiples of 16 bytes, and a size, if it depends on one, that 16 divides.
struct Compiled {
  enum { TENSOR, SIZE, NUMBER };  // as in `triton_launch.py`

  uint64_t function;
  unsigned threads, shared, programs;  // 0 programs: as many as the size asks for
  int64_t entries;
  std::vector<std::pair<int, int64_t>> parameters;
  void* context;

  // From what `triton_launch.py` says of a kernel that has been launched in this thread.
  static Compiled of(const py::tuple& made) {
    return {made[0].cast<uint64_t>(), made[1].cast<unsigned>(), made[2].cast<unsigned>(), made[3].cast<unsigned>(),
            made[4].cast<int64_t>(), made[5].cast<std::vector<std::pair<int, int64_t>>>(), Driver::get().context()};
  }

  static bool is_for(const Tensor& tensor) {
    return tensor.numel() % 16 == 0 && tensor.numel() < INT32_MAX && is_well_placed(tensor) &&
           is_on_current_device(tensor);
  }

  static bool is_on_current_device(const Tensor& tensor) {
    return c10::impl::VirtualGuardImpl(tensor.device().type()).getDevice() == tensor.device();
  }

  static bool is_well_placed(const Tensor& tensor) {
    return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
  }

  void operator()(std::initializer_list<Tensor> tensors, int64_t size) const {
    std::vector<uint64_t> values;
    for (const auto& [kind, value] : parameters) {
      values.push_back(kind == TENSOR ? reinterpret_cast<uint64_t>(tensors.begin()[value].data_ptr())
                                      : static_cast<uint64_t>(kind == SIZE ? size : value));
    }
    values.resize(values.size() + 2);  // null for memory that Triton's kernels may ask for, and these do not
    std::vector<void*> pointers;
    for (uint64_t& value : values) pointers.push_back(&value);
    const c10::Device device = tensors.begin()->device();
    void* stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
    const auto grid = programs > 0 ? programs : static_cast<unsigned>((size + entries - 1) / entries);
    const Driver& driver = Driver::get();
    if (driver.context() == nullptr) driver.make_current(context);  // a thread that has done nothing yet
    const int status = driver.launch(reinterpret_cast<void*>(function), grid, 1, 1, threads, 1, 1, shared, stream,
                                     pointers.data(), nullptr);
    TORCH_CHECK(status == 0, "a kernel could not be launched: error ", status, " of the CUDA driver");
  }
};

constexpr int64_t MOST_FLAGS = 1 << 18;  // as in `bit_planes.py`

const DispatchKeySet PLAIN{DispatchKey::CPU, DispatchKey::CUDA, DispatchKey::AutogradCPU, DispatchKey::AutogradCUDA,
                           DispatchKey::ADInplaceOrView};

bool is_plain_cuda(const Tensor& tensor);

// A packed mask: a bit an entry is kept, or two, as `Codes` has them.
struct Packing : Recipe {
  Compiled write, weigh;
  int64_t bits = 1;
  c10::ScalarType dtype = c10::ScalarType::Undefined;

  // A flag for each block, of which two-bit codes may have too many.
  bool is_for(const Tensor& x) const {
    return x.is_non_overlapping_and_dense() && Compiled::is_for(x) &&
           (bits == 1 || x.numel() <= MOST_FLAGS * write.entries);
  }

  int64_t bytes(int64_t size) const {
    return bits == 1 ? size / 8 : 2 * ((size + 127) / 128 * 16) + (size + write.entries - 1) / write.entries;
  }
};

struct Packed : torch::autograd::Function<Packed> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const c10::intrusive_ptr<Packing>& packing,
                        bool in_place) {
    at::AutoDispatchBelowAutograd guard;
    const Tensor out = in_place ? x : at::empty_like(x);
    const Tensor codes = at::empty({packing->bytes(x.numel())}, x.options().dtype(at::kByte));
    packing->write({x, x, out, codes}, x.numel());
    context->save_for_backward({codes});
    context->saved_data["origin"] = Origin::of(x);
    context->saved_data["run by"] = IValue::make_capsule(packing);
    context->saved_data["sizes"] = out.sizes();
    context->saved_data["strides"] = out.strides();
    if (in_place) context->mark_dirty({x});
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& cotangents) {
    const Tensor codes = context->get_saved_variables()[0], cotangent = cotangents[0];
    if (!cotangent.defined()) return variable_list(3);
    auto& saved = context->saved_data;
    const auto& packing = Recipe::of<Packing>(*context);
    const auto sizes = saved["sizes"].toIntVector(), strides = saved["strides"].toIntVector();
    if (!at::GradMode::is_enabled() && is_plain_cuda(cotangent) && is_plain_cuda(codes) && cotangent.sizes() == sizes &&
        cotangent.scalar_type() == packing.dtype) {
      const bool lies_alike = cotangent.strides() == strides && Compiled::is_well_placed(cotangent);
      const Tensor dense = lies_alike ? cotangent : at::empty_strided(sizes, strides, cotangent.options());
      if (!lies_alike) dense.copy_(cotangent);
      const Tensor gradient = at::empty_like(dense);
      packing.weigh({dense, codes, gradient, gradient}, dense.numel());
      return {gradient, Tensor(), Tensor()};
    }
    py::gil_scoped_acquire gil;
    const auto in_python = py::reinterpret_borrow<py::object>(packing.in_python);
    const auto gradient = in_python(cotangent, codes, Origin::zero(saved, cotangent), py::tuple(py::cast(sizes)),
                                    py::tuple(py::cast(strides)));
    return {gradient.cast<Tensor>(), Tensor(), Tensor()};
  }
};

// Memory of the current device, and nothing more than that: autocast keys are on every tensor.
bool is_plain_cuda(const Tensor& tensor) {
  return tensor.is_cuda() && (PLAIN | c10::autocast_dispatch_keyset).has_all(tensor.key_set()) &&
         !at::isTensorSubclassLike(tensor) && Compiled::is_on_current_device(tensor);
}

// Torch's own derivative of an operator that is curved between its kinks, mended where an entry lies on one: see
// `cuda_corners.py`.
struct Mending : Recipe {
  struct Corner {
    double place, weight;
  };

  std::vector<Scalar> numbers;  // of `elu`; none of `hardswish`
  std::vector<Corner> corners;  // two; a single one is given twice
  std::optional<Compiled> kernel;

  Tensor gradient(const Tensor& cotangent, const Tensor& x) const {
    if (is_for(cotangent, x)) {
      const Tensor found = numbers.empty() ? at::hardswish_backward(cotangent, x)
                                           : at::elu_backward(cotangent, numbers[0], numbers[1], numbers[2], false, x);
      if (found.strides() == x.strides()) {
        if (kernel) (*kernel)({found, x, cotangent}, x.numel());
        else if (x.scalar_type() == at::kFloat) mend<float>(found, x, cotangent);
        else mend<double>(found, x, cotangent);
        return found;
      }
    }
    py::gil_scoped_acquire gil;
    return py::reinterpret_borrow<py::object>(in_python)(cotangent, x).cast<Tensor>();
  }

 private:
  bool is_for(const Tensor& cotangent, const Tensor& x) const {
    const auto is_plain = kernel ? is_plain_cuda : is_plain_cpu;
    return !at::GradMode::is_enabled() && is_plain(cotangent) && is_plain(x) && cotangent.strides() == x.strides() &&
           cotangent.scalar_type() == x.scalar_type() &&
           (!kernel || (Compiled::is_for(x) && Compiled::is_well_placed(cotangent)));
  }

  template <typename Number>
  void mend(const Tensor& gradient, const Tensor& x, const Tensor& cotangent) const {
    const auto low = static_cast<Number>(corners[0].place), high = static_cast<Number>(corners[1].place);
    auto entries = at::TensorIteratorConfig().add_output(gradient).add_const_input(x).add_const_input(cotangent).build();
    entries.for_each([&](char** data, const int64_t* strides, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const auto at = *reinterpret_cast<const Number*>(data[1] + i * strides[1]);
        if (at != low && at != high) continue;
        const double weight = corners[at == low ? 0 : 1].weight;
        const auto from = *reinterpret_cast<const Number*>(data[2] + i * strides[2]);
        *reinterpret_cast<Number*>(data[0] + i * strides[0]) = weight == 0 ? 0 : from * static_cast<Number>(weight);
      }
    });
  }
};

struct Mended : torch::autograd::Function<Mended> {
  // The operator takes its arguments from the stack, and leaves its result there.
  struct Call {
    const OperatorHandle& op;
    Stack* stack;
    bool in_place;
    Tensor kept;  // the input, or a copy with its history
    const c10::intrusive_ptr<Mending>& mending;
  };

  static Tensor forward(AutogradContext* context, const Tensor& x, const Call& call) {
    at::AutoDispatchBelowAutograd guard;
    context->save_for_backward({call.kept});
    context->saved_data["run by"] = IValue::make_capsule(call.mending);
    call.op.callBoxed(call.stack);
    if (!call.in_place) return call.stack->back().toTensor();
    context->mark_dirty({x});
    return x;
  }

  static variable_list backward(AutogradContext* context, const variable_list& cotangents) {
    if (!cotangents[0].defined()) return variable_list(2);
    const Tensor x = context->get_saved_variables()[0];
    return {Recipe::of<Mending>(*context).gradient(cotangents[0], x), Tensor()};
  }
};

// Max-pooling of one shape, whose tied entries share: see `max_pool.py`. By kernels, or by loops over windows.
struct Pooling : Recipe {
  std::optional<std::pair<Compiled, Compiled>> kernels;
  std::optional<pooling::Windows> windows;
  bool is_small = false;
  std::vector<int64_t> sizes, out;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  c10::ScalarType dtype = c10::ScalarType::Undefined, word = dtype;

  void pool(const Tensor& x, const Tensor& values, const Tensor& words, const std::optional<Tensor>& indices) const {
    if (kernels) return kernels->first({x, values, words, words}, 0);
    pooling::pool(x, values, words, indices, *windows);
  }

  void spread(const Tensor& cotangent, const Tensor& words, const Tensor& x, const Tensor& gradient) const {
    if (kernels) return kernels->second({cotangent, words, gradient}, 0);
    pooling::spread(x.defined() ? std::make_optional(x) : std::nullopt, cotangent, words, gradient, *windows);
  }
};

struct Pooled : torch::autograd::Function<Pooled> {
  static variable_list forward(AutogradContext* context, const Tensor& x, const c10::intrusive_ptr<Pooling>& pooling,
                               bool with_indices) {
    at::AutoDispatchBelowAutograd guard;
    const auto options = x.options().memory_format(pooling->format);
    const Tensor values = at::empty(pooling->out, options);
    const Tensor words = at::empty(pooling->out, options.dtype(pooling->word));
    std::optional<Tensor> indices;
    if (with_indices) indices = at::empty(pooling->out, options.dtype(at::kLong));
    const Tensor entries = x.contiguous(pooling->format);
    pooling->pool(entries, values, words, indices);
    context->save_for_backward({words, pooling->is_small ? Tensor() : entries});
    context->saved_data["origin"] = Origin::of(x);
    context->saved_data["run by"] = IValue::make_capsule(pooling);
    context->set_materialize_grads(false);
    if (!indices) return {values};
    context->mark_non_differentiable({*indices});
    return {values, *indices};
  }

  static variable_list backward(AutogradContext* context, const variable_list& cotangents) {
    const auto saved = context->get_saved_variables();
    const Tensor words = saved[0], x = saved[1], cotangent = cotangents[0];
    if (!cotangent.defined()) return variable_list(3);
    const auto& pooling = Recipe::of<Pooling>(*context);
    const auto is_plain = pooling.kernels ? is_plain_cuda : is_plain_cpu;
    if (!at::GradMode::is_enabled() && is_plain(cotangent) && is_plain(words) &&
        cotangent.scalar_type() == pooling.dtype) {
      const auto options = cotangent.options().memory_format(pooling.format);
      const bool is_placed = !pooling.kernels || Compiled::is_well_placed(cotangent);
      const bool lies_alike = is_placed && cotangent.is_contiguous(pooling.format);
      const Tensor dense = lies_alike ? cotangent : at::empty(cotangent.sizes(), options);
      if (!lies_alike) dense.copy_(cotangent);
      const Tensor gradient = at::empty(pooling.sizes, options);
      pooling.spread(dense, words, x, gradient);
      return {gradient, Tensor(), Tensor()};
    }
    py::gil_scoped_acquire gil;
    const auto in_python = py::reinterpret_borrow<py::object>(pooling.in_python);
    const Tensor zero = Origin::zero(context->saved_data, cotangent);
    const py::object input = pooling.is_small ? py::object(py::none()) : py::cast(x);
    return {in_python(cotangent, words, zero, input).cast<Tensor>(), Tensor(), Tensor()};
  }
};

// What the methods of `Tensor` return, read without calling them where a tensor is no view: calls that miss every cache
// are most of the time that a path takes.
const torch::autograd::AutogradMeta* autograd_of(const Tensor& tensor) {
  return static_cast<const torch::autograd::AutogradMeta*>(tensor.unsafeGetTensorImpl()->autograd_meta());
}

bool requires_grad(const Tensor& tensor) {
  const auto* meta = autograd_of(tensor);
  if (meta == nullptr) return false;
  return meta->is_view_ ? tensor.requires_grad() : meta->requires_grad_ || meta->grad_fn_ != nullptr;
}

bool has_tangent(const Tensor& tensor) {
  const auto* meta = autograd_of(tensor);
  return meta != nullptr && (meta->is_view_ || meta->fw_grad_ != nullptr) && tensor._fw_grad(0).defined();
}

// What plans depend on of an argument. Of tensors that are pooled that is their sizes and strides as well.
struct Kind {
  Kind(const IValue& value, bool with_sizes) {
    if (!value.isTensor()) {
      number = value;
      return;
    }
    const Tensor& tensor = value.toTensor();
    is_tensor = true;
    dtype = tensor.scalar_type();
    device = tensor.device();
    is_differentiated = requires_grad(tensor);
    has_dimensions = tensor.dim() > 0;
    if (with_sizes) sizes_and_strides.emplace(tensor.sizes().vec(), tensor.strides().vec());
  }

  void forget_sizes() { sizes_and_strides.reset(); }

  // Not of symbols, which have no value yet.
  static bool is_known(const IValue& value) {
    return value.isTensor() || value.isDouble() || value.isInt() || value.isBool() || value.isIntList() || value.isNone();
  }

  bool is_of(const IValue& value) const {
    if (!value.isTensor()) return !is_tensor && is_same(value, number);
    const Tensor& tensor = value.toTensor();
    return is_tensor && tensor.scalar_type() == dtype && tensor.device() == device &&
           requires_grad(tensor) == is_differentiated && (tensor.dim() > 0) == has_dimensions &&
           (!sizes_and_strides ||
            (tensor.sizes() == sizes_and_strides->first && tensor.strides() == sizes_and_strides->second));
  }

 private:
  // 0.0 and -0.0, which are equal, are not the same.
  static bool is_same(const IValue& one, const IValue& other) {
    if (one.isDouble() && other.isDouble()) {
      const double first = one.toDouble(), second = other.toDouble();
      return std::memcmp(&first, &second, sizeof first) == 0;
    }
    if (one.isInt()) return other.isInt() && one.toInt() == other.toInt();
    if (one.isBool()) return other.isBool() && one.toBool() == other.toBool();
    if (one.isIntList()) return other.isIntList() && one.toIntList() == other.toIntList();
    return one.isNone() && other.isNone();
  }

  bool is_tensor = false, is_differentiated = false, has_dimensions = false;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device = c10::kCPU;
  std::optional<std::pair<std::vector<int64_t>, std::vector<int64_t>>> sizes_and_strides;
  IValue number;
};

struct Kernel {
  OperatorHandle op;
  c10::KernelFunction function;

  Kernel(const OperatorHandle& of, DispatchKey key)
      : op(of), function(c10::TypedOperatorHandle<c10::KernelFunction>::of(of, key)) {}

  void operator()(DispatchKeySet keys, Stack* stack) const { function.callBoxed(op, keys, stack); }
};

// How calls of a kind are answered: by whichever of these is there, else by the kernel in Python.
struct Answer {
  std::shared_ptr<const Kernel> kernel;  // torch's own, or that of another operator
  std::optional<std::vector<Scalar>> numbers;  // for it, in place of all that follow the first argument
  c10::intrusive_ptr<Packing> packing;
  std::optional<Mask> mask;  // on the CPU
  int place = -1;  // which argument is the kink, if it is a tensor
  bool is_clamp = false;  // whether the value is an entry held within the range that passes
  bool has_second = false;  // whether second derivatives are zeros, as torch's own, and not missing
  c10::intrusive_ptr<Pooling> pooling;
  c10::intrusive_ptr<Mending> mending;
  int64_t smallest = 0, below = INT64_MAX;  // entries

  bool is_for(const Tensor& x) const { return smallest <= x.numel() && x.numel() < below; }
};

struct Known {
  py::object convention;
  std::vector<Kind> kinds;
  std::shared_ptr<const Answer> answer;

  bool is_like(c10::ArrayRef<IValue> args) const {
    for (size_t i = 0; i < args.size(); ++i) {
      if (!kinds[i].is_of(args[i])) return false;
    }
    return true;
  }
};

// What is asked of a call before its kind is looked up: are its tensors plain memory, and is one differentiated?
struct Met {
  Met(DispatchKeySet keys, c10::ArrayRef<IValue> args) : is_plain(PLAIN.has_all(keys)) {
    for (const IValue& each : args) {
      if (!each.isTensor()) continue;
      const Tensor& tensor = each.toTensor();
      is_plain = is_plain && tensor.defined() && !has_tangent(tensor);
      is_differentiated = is_differentiated || requires_grad(tensor);
    }
    is_differentiated = is_differentiated && at::GradMode::is_enabled();
  }

  bool is_plain, is_differentiated = false;
};

// A product with a finite number, or a quotient by one that is not 0: whatever strong zeros would spare is finite.
bool is_by_number(const OperatorHandle& op, c10::ArrayRef<IValue> args) {
  const std::string& name = op.operator_name().name;
  const bool divides = name == "aten::div" || name == "aten::div_";
  if (!divides && name != "aten::mul" && name != "aten::mul_") return false;
  if (!args[1].isTensor()) return false;
  const Tensor& other = args[1].toTensor();
  if (!other.unsafeGetTensorImpl()->is_wrapped_number() || other.is_complex()) return false;
  const double number = other.item().toDouble();
  return std::isfinite(number) && (!divides || number != 0);
}

// The convention in force here, as `apply.scopes` has it.
class Conventions {
 public:
  PyObject *scopes, *attribute, *module, *fallback;

  void forget() { ++changes_; }

  py::object around() const {
    PyObject* entered = nullptr;
    if (PyContextVar_Get(scopes, nullptr, &entered) < 0) throw py::error_already_set();
    py::object held = py::reinterpret_steal<py::object>(entered);
    Py_ssize_t count = PyTuple_Size(entered);
    if (count == 0) return py::reinterpret_borrow<py::object>(PyDict_GetItem(module, fallback));
    return py::reinterpret_steal<py::object>(PyObject_GetAttr(PyTuple_GetItem(entered, count - 1), attribute));
  }

  // A pointer to compare with, and for nothing else. Taking Python's lock at every call takes longer than all the rest,
  // so it is taken after a change alone: `apply.scopes` reports those it makes, and Python counts how often a thread
  // switches its context, as tasks do that take turns.
  const PyObject* recognised() const {
    struct Found {
      uint64_t thread, context, changes;
      const PyObject* convention;
    };
    thread_local Found last{};
    const uint64_t now = changes_;
    const PyThreadState* state = PyGILState_GetThisThreadState();
    if (last.convention == nullptr || now != last.changes || state == nullptr || state->id != last.thread ||
        state->context_ver != last.context) {
      py::gil_scoped_acquire gil;
      state = PyThreadState_Get();
      last = {state->id, state->context_ver, now, around().ptr()};
    }
    return last.convention;
  }

 private:
  std::atomic<uint64_t> changes_{0};
};

Conventions conventions;
std::atomic<bool> is_on{true};
constexpr size_t MOST = 256;  // kinds of calls that one path knows; bounds may change with every call

class FastPath {
 public:
  FastPath(const std::string& name, const std::string& overload, const std::string& key, bool in_place, bool pools,
           py::object planner)
      : op_(c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str())),
        key_(c10::parseDispatchKey(key)),
        in_place_(in_place),
        pools_(pools),
        planner_(std::move(planner)),
        torchs_own_(std::make_shared<const Kernel>(op_, key_)) {}

  // Register the path over the kernel that is registered now: for good, and without torch's warning of that.
  static void cover(const std::shared_ptr<FastPath>& path) {
    struct : c10::WarningHandler {
      void process(const c10::Warning&) override {}
    } silent;
    c10::WarningUtils::WarningHandlerGuard guard(&silent);
    path->in_python_.emplace(path->op_, path->key_);
    // Never given back: the dispatcher outlives Python, whose objects a path holds.
    new std::shared_ptr<FastPath>(path);
    auto* library = new torch::Library(torch::Library::IMPL, "aten", std::make_optional(path->key_), __FILE__, 0);
    const auto boxed = c10::BoxedKernel::makeFromFunctor(std::make_unique<Functor>(path.get()));
    library->impl(toString(path->op_.operator_name()).c_str(), torch::CppFunction::makeFromBoxedKernel(boxed));
  }

  void forget() {
    std::vector<Known> forgotten;
    std::lock_guard<std::mutex> held(mutex_);
    forgotten.swap(known_);
  }

  std::shared_ptr<const Kernel> torchs_own() const { return torchs_own_; }

  void operator()(DispatchKeySet keys, Stack* stack) {
    const auto args = torch::jit::last(*stack, op_.schema().arguments().size());
    const Met met(keys, args);
    if (!met.is_plain || !is_on || is_left_to_passes()) return (*in_python_)(keys, stack);
    if (!met.is_differentiated) return (*torchs_own_)(keys, stack);
    if (planner_.is_none()) {  // an operator without kinks, whose gradient may need strong zeros
      return is_by_number(op_, args) ? (*torchs_own_)(keys, stack) : (*in_python_)(keys, stack);
    }
    auto answer = recalled(args);
    if (!answer) answer = asked(args);
    if (!answer || !is_answered(*answer, keys, stack)) (*in_python_)(keys, stack);
  }

 private:
  struct Functor final : c10::OperatorKernel {
    explicit Functor(FastPath* of) : path(of) {}
    void operator()(const OperatorHandle&, DispatchKeySet keys, Stack* stack) { (*path)(keys, stack); }
    FastPath* path;
  };

  // A pass over a whole program has rules for the operator that torch's composite calls, and none for the composite.
  bool is_left_to_passes() const {
    return pools_ && c10::impl::tls_local_dispatch_key_set().included_.has(DispatchKey::TESTING_ONLY_GenericMode);
  }

  std::shared_ptr<const Answer> recalled(c10::ArrayRef<IValue> args) {
    const PyObject* convention = conventions.recognised();
    std::lock_guard<std::mutex> held(mutex_);
    for (const Known& known : known_) {
      if (known.convention.ptr() == convention && known.answer->is_for(args[0].toTensor()) && known.is_like(args)) {
        return known.answer;
      }
    }
    return nullptr;
  }

  // The planner's answer to a call of a new kind; null where it raises, as the kernel in Python then does.
  std::shared_ptr<const Answer> asked(c10::ArrayRef<IValue> args) {
    if (!std::all_of(args.begin(), args.end(), Kind::is_known)) return nullptr;
    py::gil_scoped_acquire gil;
    const py::object convention = conventions.around();
    std::shared_ptr<const Answer> answer;
    std::vector<Kind> kinds;
    try {
      py::tuple given(args.size() + 1);
      given[0] = convention;
      for (size_t i = 0; i < args.size(); ++i) {
        kinds.emplace_back(args[i], pools_);
        given[i + 1] = in_python(args[i]);
      }
      const py::object found = planner_(*given);
      if (found.is_none()) return nullptr;
      answer = found.cast<std::shared_ptr<Answer>>();
    } catch (py::error_already_set&) {
      return nullptr;
    }
    if (!answer->is_for(args[0].toTensor())) return nullptr;
    if (answer->kernel) {  // whatever the sizes are
      for (Kind& each : kinds) each.forget_sizes();
    }
    std::optional<Known> forgotten;  // freed after the lock is released, since that may run Python
    std::lock_guard<std::mutex> held(mutex_);
    if (known_.size() >= MOST) {
      forgotten = std::move(known_.front());
      known_.erase(known_.begin());
    }
    known_.push_back({convention, std::move(kinds), answer});
    return answer;
  }

  static py::object in_python(const IValue& value) {
    if (value.isTensor()) return py::cast(value.toTensor());
    if (value.isDouble()) return py::float_(value.toDouble());
    if (value.isInt()) return py::int_(value.toInt());
    if (value.isBool()) return py::bool_(value.toBool());
    return value.isIntList() ? py::object(py::cast(value.toIntVector())) : py::none();
  }

  bool is_answered(const Answer& answer, DispatchKeySet keys, Stack* stack) const {
    const size_t count = op_.schema().arguments().size();
    if (answer.kernel) {
      if (answer.numbers) {
        torch::jit::drop(*stack, count - 1);
        stack->insert(stack->end(), answer.numbers->begin(), answer.numbers->end());
      }
      (*answer.kernel)(keys, stack);
      return true;
    }
    const auto args = torch::jit::last(*stack, count);
    const Tensor x = args[0].toTensor();
    // Whether writing into it concerns others: an error of torch's, or more than one history.
    if (in_place_ && (x.is_leaf() || x.is_view())) return false;
    variable_list out;
    if (answer.pooling) {
      if (!is_plain_cpu(x) && !(is_plain_cuda(x) && Compiled::is_well_placed(x))) return false;
      out = Pooled::apply(x, answer.pooling, op_.schema().returns().size() > 1);
    } else if (answer.packing) {
      if (!answer.packing->is_for(x)) return false;
      out = {Packed::apply(x, answer.packing, in_place_)};
    } else if (answer.mending) {
      if (!x.is_non_overlapping_and_dense()) return false;
      out = {Mended::apply(x, Mended::Call{op_, stack, in_place_, in_place_ ? x.clone() : x, answer.mending})};
      torch::jit::drop(*stack, 1);
      stack->emplace_back(std::move(out[0]));
      return true;
    } else {
      return answer.mask && is_masked(answer, x, args, stack);
    }
    torch::jit::drop(*stack, count);
    for (Tensor& each : out) stack->emplace_back(std::move(each));
    return true;
  }

  bool is_masked(const Answer& answer, const Tensor& x, c10::ArrayRef<IValue> args, Stack* stack) const {
    if (in_place_ && !x.is_non_overlapping_and_dense()) return false;
    Call call{op_, in_place_, answer.is_clamp, answer.has_second, stack, *answer.mask, std::nullopt};
    if (answer.place >= 0) {
      const Tensor place = args[answer.place].toTensor();
      if (place.dim() == 0) {
        call.mask.low = place.item().toDouble();
        if (std::isnan(call.mask.low)) return false;
      } else if (is_plain_cpu(place) && place.sizes() == x.sizes() && place.strides() == x.strides() &&
                 place.scalar_type() == x.scalar_type()) {
        call.place = place;
      } else {
        return false;
      }
    }
    // The operator takes its arguments from the stack, and leaves there what it wrote.
    Tensor out = Masked::apply(x, call);
    torch::jit::drop(*stack, 1);
    stack->emplace_back(std::move(out));
    return true;
  }

  const OperatorHandle op_;
  const DispatchKey key_;
  const bool in_place_, pools_;
  const py::object planner_;
  const std::shared_ptr<const Kernel> torchs_own_;
  std::optional<Kernel> in_python_;
  std::mutex mutex_;  // taken last, and nothing is waited for under it
  std::vector<Known> known_;
};

// What `max_pool.py` says of calls of one kind.
c10::intrusive_ptr<Pooling> pooling_of(const Tensor& x, const py::object& kernels, const py::object& windows,
                                       bool is_small, const std::vector<int64_t>& out, bool channels_last,
                                       const Tensor& word, py::object in_python) {
  const auto last = x.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  auto made = c10::make_intrusive<Pooling>();
  made->is_small = is_small;
  made->sizes = x.sizes().vec(), made->out = out;
  made->format = channels_last ? last : at::MemoryFormat::Contiguous;
  made->dtype = x.scalar_type(), made->word = word.scalar_type();
  made->in_python = in_python.release().ptr();
  if (x.is_cpu()) made->windows = windows.cast<const pooling::Windows&>();
  else made->kernels.emplace(Compiled::of(kernels.cast<py::tuple>()[0]), Compiled::of(kernels.cast<py::tuple>()[1]));
  return made;
}

std::shared_ptr<Answer> between(int64_t smallest, int64_t below) {
  auto answer = std::make_shared<Answer>();
  answer->smallest = smallest;
  answer->below = below;
  return answer;
}

Scalar number_of(const py::handle& number) {
  if (py::isinstance<py::bool_>(number)) return number.cast<bool>();
  if (py::isinstance<py::int_>(number)) return number.cast<int64_t>();
  return number.cast<double>();
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("ask", [](py::object scopes, py::dict active) {
    conventions.scopes = scopes.release().ptr();
    conventions.attribute = PyUnicode_InternFromString("convention");
    conventions.module = active.release().ptr();
    conventions.fallback = PyUnicode_InternFromString("default");
  });
  module.def("forget_convention", [] { conventions.forget(); });
  module.def("switch_on", [](bool on) { is_on = on; });
  py::class_<pooling::Windows>(module, "Windows").def(py::init<const std::vector<int64_t>&>());
  py::class_<Answer, std::shared_ptr<Answer>>(module, "Answer");
  py::class_<FastPath, std::shared_ptr<FastPath>>(module, "FastPath")
      .def(py::init<const std::string&, const std::string&, const std::string&, bool, bool, py::object>())
      .def("cover", [](const std::shared_ptr<FastPath>& path) { FastPath::cover(path); })
      .def("forget", &FastPath::forget)
      .def("in_python", [](FastPath&, int64_t smallest, int64_t below) { return between(smallest, below); })
      .def("torchs_own",
           [](FastPath& path, int64_t smallest, int64_t below) {
             const auto answer = between(smallest, below);
             answer->kernel = path.torchs_own();
             return answer;
           })
      .def("other",
           [](FastPath&, const FastPath& other, const py::sequence& numbers, int64_t smallest, int64_t below) {
             const auto answer = between(smallest, below);
             answer->kernel = other.torchs_own();
             answer->numbers.emplace();
             for (const py::handle& each : numbers) answer->numbers->push_back(number_of(each));
             return answer;
           })
      .def("packed",
           [](FastPath&, const Tensor& x, const py::tuple& write, const py::tuple& weigh, py::object in_python,
              int64_t bits, int64_t smallest, int64_t below) {
             const auto answer = between(smallest, below);
             if (!Driver::get()) return answer;
             answer->packing = c10::make_intrusive<Packing>();
             answer->packing->write = Compiled::of(write), answer->packing->weigh = Compiled::of(weigh);
             answer->packing->bits = bits, answer->packing->dtype = x.scalar_type();
             answer->packing->in_python = in_python.release().ptr();
             return answer;
           })
      .def("masked",
           [](FastPath&, double low, double high, const std::vector<bool>& passes, int place, bool is_clamp,
              bool has_second) {
             const auto answer = between(1, INT64_MAX);
             answer->mask = {low, high, passes[0], passes[1], passes[2], passes[3], passes[4], passes[5]};
             answer->place = place;
             answer->is_clamp = is_clamp;
             answer->has_second = has_second;
             return answer;
           })
      .def("mended",
           [](FastPath&, const py::sequence& numbers, const std::vector<std::pair<double, double>>& corners,
              const py::object& kernel, py::object in_python) {
             const auto answer = between(1, INT64_MAX);
             if (!kernel.is_none() && !Driver::get()) return answer;
             answer->mending = c10::make_intrusive<Mending>();
             for (const py::handle& each : numbers) answer->mending->numbers.push_back(number_of(each));
             for (const auto& [place, weight] : corners) answer->mending->corners.push_back({place, weight});
             if (!kernel.is_none()) answer->mending->kernel.emplace(Compiled::of(kernel.cast<py::tuple>()));
             answer->mending->in_python = in_python.release().ptr();
             return answer;
           })
      .def("pooled", [](FastPath&, const Tensor& x, const py::object& kernels, const py::object& windows, bool is_small,
                        const std::vector<int64_t>& out, bool channels_last, const Tensor& word, py::object in_python) {
        const auto answer = between(0, INT64_MAX);
        if (x.is_cpu() || Driver::get())
          answer->pooling = pooling_of(x, kernels, windows, is_small, out, channels_last, word, std::move(in_python));
        return answer;
      });
}
