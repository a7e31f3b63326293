#include "driver/doctor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "driver/cache.h"
#include "driver/oracle.h"
#include "driver/places.h"
#include "driver/process.h"
#include "support/staging.h"

namespace optc {
namespace {

std::string first_line(const std::string &text) { return text.substr(0, text.find('\n')); }

// The first line that `program --version` prints; empty: it is not there.
std::string version_of(const std::string &program) {
  if (!on_path(program)) return "";
  Diagnostics ignored;
  const Result<ProcessResult> said = run_process({program, "--version"}, ignored);
  return said && said->status == 0 ? first_line(said->output) : "";
}

Finding own_files() {
  Finding f{"optc's files", false, Need::kBundles, install_prefix() + "/share/optc", ""};
  f.there = is_folder(resource_path("runtime")) && exists(resource_path("tools/ort_run.py"));
  if (!f.there) {
    f.what = resource_path("runtime") + " is not there";
    f.help = "install optc whole: bin/optc wants share/optc beside bin";
  }
  return f;
}

Finding compiler() {
  const char *named = std::getenv("CXX");
  const std::string program = named && *named ? named : "c++";
  Finding f{"C++ compiler", false, Need::kBundles, "",
            "install g++ or clang++ (apt-get install g++), or name one by CXX"};
  const std::string version = version_of(program);
  if (version.empty()) {
    f.what = program + " cannot be run";
    return f;
  }
  ScratchFolder scratch;
  Diagnostics ignored;
  const std::string source = scratch.path() + "/try.cpp";
  if (scratch.path().empty() ||
      !write_file(source, "#include <optional>\nint main() { return std::optional<int>(0).value(); }\n", ignored)
           .ok()) {
    f.what = "no temporary file can be written";
    f.help = "TMPDIR names a folder for them";
    return f;
  }
  const Result<ProcessResult> built =
      run_process({program, "-std=c++17", source, "-o", scratch.path() + "/try"}, ignored);
  f.there = built && built->status == 0;
  f.what = f.there ? version + ", C++17" : version + " does not build a program of C++17";
  return f;
}

Finding cmake() {
  Finding f{"CMake", false, Need::kBundles, version_of("cmake"), "install it (apt-get install cmake)"};
  f.there = !f.what.empty();
  if (!f.there) f.what = "cmake is not on PATH";
  return f;
}

Finding cache() {
  Finding f{"cache", false, Need::kBundles, "", "OPTC_CACHE names another folder"};
  const std::string path = bundle_cache_path();
  std::error_code error;
  std::filesystem::create_directories(path, error);
  f.there = !error && access(path.c_str(), W_OK) == 0;
  if (!f.there) {
    f.what = path + " cannot be written";
    return f;
  }
  int64_t bytes = 0;
  const std::vector<CachedBundle> bundles = cached_bundles();
  for (const CachedBundle &one : bundles) bytes += one.bytes;
  f.what = fmt::format("{}: {} bundle{}, {} MiB of at most {} MiB", path, bundles.size(),
                       bundles.size() == 1 ? "" : "s", bytes >> 20, cache_limit() >> 20);
  return f;
}

Finding oracle() {
  Finding f{"ONNX Runtime", false, Need::kSome, "", ""};
  Diagnostics diagnostics;
  const Result<std::string> python = oracle_python(diagnostics);
  if (!python) {
    const char *named = std::getenv("OPTC_PYTHON");
    f.what = std::string(named && *named ? named : "python3") + " cannot import onnxruntime";
    f.help = "verify and bench --against=ort want it: pip install onnxruntime, and OPTC_PYTHON names that Python";
    return f;
  }
  const Result<ProcessResult> said =
      run_process({*python, "-c", "import onnxruntime as o; print(o.__version__)"}, diagnostics);
  f.there = said && said->status == 0;
  f.what = f.there ? first_line(said->output) + " of " + *python : "it cannot be imported";
  return f;
}

Finding gpu_module() {
  Finding f{"GPU targets", exists(module_path("optc-ptx.so")), Need::kSome, module_path("optc-ptx.so"), ""};
  if (f.there) return f;
  f.what = module_path("optc-ptx.so") + " is not there";
  f.help = "--target=sm_80 and its like want it: build optc with LLVM 19, or take a package that has it";
  return f;
}

Finding assembler() {
  Finding f{"ptxas", false, Need::kSome, "",
            "bundles need it not: the driver compiles their PTX. CUDA's toolkit brings it"};
  f.there = on_path("ptxas");
  Diagnostics ignored;
  const Result<ProcessResult> said =
      f.there ? run_process({"ptxas", "--version"}, ignored) : Result<ProcessResult>(Failure{});
  f.what = said ? last_lines(said->output, 1) : "not on PATH";
  while (!f.what.empty() && f.what.back() == '\n') f.what.pop_back();
  return f;
}

}  // namespace

// Only asked who it is: no context is made.
std::vector<Finding> driver_and_cards() {
  Finding driver{"GPU driver", false, Need::kSome, "",
                 "bundles run on the CPU without it; NVIDIA's driver brings libcuda.so.1"};
  const char *named = std::getenv("OPTC_LIBCUDA");
  const std::string path = named && *named ? named : "libcuda.so.1";
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    driver.what = path + " cannot be loaded";
    return {driver};
  }
  const auto ask = [&](const char *name, auto *call) {
    *call = reinterpret_cast<std::remove_pointer_t<decltype(call)>>(dlsym(library, name));
    return *call != nullptr;
  };
  int (*init)(unsigned) = nullptr, (*version)(int *) = nullptr, (*count)(int *) = nullptr, (*get)(int *, int) = nullptr,
      (*attribute)(int *, int, int) = nullptr, (*label)(char *, int, int) = nullptr;
  if (!ask("cuInit", &init) || !ask("cuDeviceGetCount", &count) || !ask("cuDeviceGet", &get) ||
      !ask("cuDeviceGetAttribute", &attribute)) {
    driver.what = path + " is no CUDA driver";
    return {driver};
  }
  if (const int status = init(0); status != 0) {
    driver.what = fmt::format("{} does not start: cuInit gives {}", path, status);
    return {driver};
  }
  driver.there = true;
  driver.what = path;
  int number = 0;
  if (ask("cuDriverGetVersion", &version) && version(&number) == 0)
    driver.what += fmt::format(", CUDA {}.{}", number / 1000, number % 1000 / 10);
  std::vector<Finding> all{driver};
  int cards = 0;
  if (count(&cards) != 0 || cards == 0) {
    all.push_back({"GPU", false, Need::kSome, "the driver sees none", "CUDA_VISIBLE_DEVICES may hide it"});
    return all;
  }
  for (int i = 0; i < cards; ++i) {
    constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
    int device = 0, major = 0, minor = 0;
    char text[128] = "";
    if (get(&device, i) != 0) continue;
    if (ask("cuDeviceGetName", &label)) (void)label(text, sizeof text, device);
    (void)attribute(&major, kMajor, device);
    (void)attribute(&minor, kMinor, device);
    all.push_back({fmt::format("GPU {}", i), true, Need::kSome,
                   fmt::format("{}{}sm_{}{}", text, *text ? ", " : "", major, minor), ""});
  }
  return all;
}

std::vector<Finding> examine() {
  std::vector<Finding> all = {own_files(), compiler(), cmake(), cache(), oracle(), gpu_module()};
  for (Finding &finding : driver_and_cards()) all.push_back(std::move(finding));
  all.push_back(assembler());
  return all;
}

}  // namespace optc
