// Writes a synthetic Llama-shaped bf16 checkpoint (by default 1,100,048,384 parameters, 2.2 GB): config.json and
// model.safetensors with normally distributed weights, the same bytes for the same seed. Shares no code with the product,
// so that what it is measured on does not come from itself.
//
//   make_llama DIR [--layers N] [--hidden N] [--seed N]

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t elements() const { return shape.size() == 2 ? shape[0] * shape[1] : shape[0]; }
};

std::vector<Tensor> Llama(int64_t layers, int64_t hidden) {
  const int64_t vocabulary = 32000, inner = hidden * 11 / 4, grouped = hidden / 8;
  std::vector<Tensor> out = {{"lm_head.weight", {vocabulary, hidden}},
                             {"model.embed_tokens.weight", {vocabulary, hidden}}};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    out.push_back({layer + "input_layernorm.weight", {hidden}});
    out.push_back({layer + "mlp.down_proj.weight", {hidden, inner}});
    out.push_back({layer + "mlp.gate_proj.weight", {inner, hidden}});
    out.push_back({layer + "mlp.up_proj.weight", {inner, hidden}});
    out.push_back({layer + "post_attention_layernorm.weight", {hidden}});
    out.push_back({layer + "self_attn.k_proj.weight", {grouped, hidden}});
    out.push_back({layer + "self_attn.o_proj.weight", {hidden, hidden}});
    out.push_back({layer + "self_attn.q_proj.weight", {hidden, hidden}});
    out.push_back({layer + "self_attn.v_proj.weight", {grouped, hidden}});
  }
  out.push_back({"model.norm.weight", {hidden}});
  return out;
}

// 2^16 normal values with deviation 0.02, as bf16, drawn by the Box-Muller transform of evenly spread points.
std::vector<uint16_t> NormalTable() {
  std::vector<uint16_t> table(1 << 16);
  for (size_t i = 0; i < table.size(); ++i) {
    const double u = (static_cast<double>(i) + 0.5) / static_cast<double>(table.size());
    const double angle = 6.283185307179586 * std::fmod(static_cast<double>(i) * 0.6180339887498949, 1.0);
    const float value = static_cast<float>(0.02 * std::sqrt(-2 * std::log(u)) * std::cos(angle));
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    table[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  return table;
}

uint64_t Next(uint64_t& state) {  // splitmix64
  uint64_t z = state += 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t layers = 22, hidden = 2048;
  uint64_t seed = 1;
  std::string directory;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--", 0) != 0) {
      directory = arg;
    } else if (i + 1 < argc && (arg == "--layers" || arg == "--hidden" || arg == "--seed")) {
      const int64_t value = std::atoll(argv[++i]);
      if (arg == "--layers") layers = value;
      if (arg == "--hidden") hidden = value;
      if (arg == "--seed") seed = static_cast<uint64_t>(value);
    } else {
      std::cerr << "usage: make_llama DIR [--layers N] [--hidden N] [--seed N]\n";
      return 2;
    }
  }
  if (directory.empty() || layers < 1 || hidden < 8 || hidden % 8 != 0) {
    std::cerr << "usage: make_llama DIR [--layers N] [--hidden N, a multiple of 8] [--seed N]\n";
    return 2;
  }
  std::filesystem::create_directories(directory);
  const std::vector<Tensor> tensors = Llama(layers, hidden);
  nlohmann::ordered_json header;
  int64_t offset = 0, parameters = 0;
  for (const Tensor& tensor : tensors) {
    const int64_t end = offset + 2 * tensor.elements();
    header[tensor.name] = {{"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
    parameters += tensor.elements();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::ofstream config(directory + "/config.json");
  config << nlohmann::json{{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"},
                           {"tie_word_embeddings", false},          {"hidden_size", hidden},
                           {"num_hidden_layers", layers},           {"torch_dtype", "bfloat16"}}
                .dump(2);
  std::ofstream out(directory + "/model.safetensors", std::ios::binary);
  const uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof(length));  // little-endian on every machine we build for
  out << text;
  const std::vector<uint16_t> table = NormalTable();
  std::vector<uint16_t> block;
  uint64_t state = seed;
  for (const Tensor& tensor : tensors) {
    for (int64_t left = tensor.elements(); left > 0;) {
      block.resize(static_cast<size_t>(std::min<int64_t>(left, 1 << 20)));
      for (size_t i = 0; i < block.size(); i += 4) {
        const uint64_t random = Next(state);
        for (size_t j = i; j < std::min(block.size(), i + 4); ++j) block[j] = table[random >> 16 * (j - i) & 0xffff];
      }
      out.write(reinterpret_cast<const char*>(block.data()),
                static_cast<std::streamsize>(2 * block.size()));  // raw bf16
      left -= static_cast<int64_t>(block.size());
    }
  }
  out.close();
  if (!out || !config) {
    std::cerr << "make_llama: cannot write " << directory << ": " << std::strerror(errno) << "\n";
    return 1;
  }
  std::cout << parameters << " parameters, " << offset << " bytes in " << directory << "\n";
  return 0;
}
