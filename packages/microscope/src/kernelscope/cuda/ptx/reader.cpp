// Reads the text of inline PTX. docs/microscope.md lists the instructions.
#include "reader.h"

namespace emulator::ptx {

namespace {

unsigned lane_number() { return thread_number() % 32; }
const std::map<std::string, std::uint64_t (*)()> specials = {
    {"tid.x", [] { return std::uint64_t(threadIdx.x); }},
    {"tid.y", [] { return std::uint64_t(threadIdx.y); }},
    {"tid.z", [] { return std::uint64_t(threadIdx.z); }},
    {"ntid.x", [] { return std::uint64_t(blockDim.x); }},
    {"ntid.y", [] { return std::uint64_t(blockDim.y); }},
    {"ntid.z", [] { return std::uint64_t(blockDim.z); }},
    {"ctaid.x", [] { return std::uint64_t(blockIdx.x); }},
    {"ctaid.y", [] { return std::uint64_t(blockIdx.y); }},
    {"ctaid.z", [] { return std::uint64_t(blockIdx.z); }},
    {"nctaid.x", [] { return std::uint64_t(gridDim.x); }},
    {"nctaid.y", [] { return std::uint64_t(gridDim.y); }},
    {"nctaid.z", [] { return std::uint64_t(gridDim.z); }},
    {"laneid", [] { return std::uint64_t(lane_number()); }},
    {"warpid", [] { return std::uint64_t(thread_in_block() / 32); }},
    {"nwarpid", [] { return std::uint64_t((thread_count() + 31) / 32); }},
    {"smid", [] { return std::uint64_t(0); }},
    {"nsmid", [] { return std::uint64_t(132); }},
    {"clock", [] { return std::uint64_t(tick()); }},
    {"clock64", [] { return std::uint64_t(tick()); }},
    {"globaltimer", [] { return std::uint64_t(tick()); }},
    {"cluster_ctarank", [] { return std::uint64_t(block_rank() % cluster_size); }},
    {"cluster_nctarank", [] { return std::uint64_t(cluster_size); }},
    {"cluster_ctaid.x", [] { return std::uint64_t(blockIdx.x % clusterDim.x); }},
    {"cluster_nctaid.x", [] { return std::uint64_t(clusterDim.x); }},
    {"cluster_ctaid.y", [] { return std::uint64_t(blockIdx.y % clusterDim.y); }},
    {"cluster_nctaid.y", [] { return std::uint64_t(clusterDim.y); }},
    {"cluster_ctaid.z", [] { return std::uint64_t(blockIdx.z % clusterDim.z); }},
    {"cluster_nctaid.z", [] { return std::uint64_t(clusterDim.z); }},
    {"clusterid.x", [] { return std::uint64_t(blockIdx.x / clusterDim.x); }},
    {"nclusterid.x", [] { return std::uint64_t(gridDim.x / clusterDim.x); }},
    {"clusterid.y", [] { return std::uint64_t(blockIdx.y / clusterDim.y); }},
    {"nclusterid.y", [] { return std::uint64_t(gridDim.y / clusterDim.y); }},
    {"clusterid.z", [] { return std::uint64_t(blockIdx.z / clusterDim.z); }},
    {"nclusterid.z", [] { return std::uint64_t(gridDim.z / clusterDim.z); }},
    {"lanemask_eq", []() -> std::uint64_t { return 1ull << lane_number(); }},
    {"lanemask_lt", []() -> std::uint64_t { return (1ull << lane_number()) - 1; }},
    {"lanemask_le", []() -> std::uint64_t { return (2ull << lane_number()) - 1; }},
    {"lanemask_gt", []() -> std::uint64_t { return ~((2ull << lane_number()) - 1) & ~0u; }},
    {"lanemask_ge", []() -> std::uint64_t { return ~((1ull << lane_number()) - 1) & ~0u; }},
};

// ---- The text -------------------------------------------------------------------------------------------------------

std::string trimmed(const std::string& text)
{
    const auto first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::vector<std::string> split(const std::string& text, char separator)
{
    std::vector<std::string> parts(1);
    int depth = 0;
    for (char c : text) {
        depth += c == '{' || c == '[' || c == '(';
        depth -= c == '}' || c == ']' || c == ')';
        if (c == separator && !depth)
            parts.emplace_back();
        else
            parts.back() += c;
    }
    return parts;
}

struct Reader {
    unsigned operands;  // of the asm statement
    std::map<std::string, int> registers;
    std::map<std::string, std::size_t> labels;
    Program program;

    Operand operand(std::string text)
    {
        text = trimmed(text);
        Operand o;
        if (text.empty()) return o;
        if (text[0] == '!') {
            o = operand(text.substr(1));
            o.negated = true;
            return o;
        }
        if (text == "_") return o.kind = Operand::sink, o;
        if (text[0] == '{') {
            o.kind = Operand::list;
            for (const auto& p : split(text.substr(1, text.rfind('}') - 1), ',')) o.parts.push_back(operand(p));
            return o;
        }
        if (text[0] == '[') {
            o.kind = Operand::memory;
            const auto inner = split(text.substr(1, text.rfind(']') - 1), ',');
            const std::string first = trimmed(inner[0]);
            const auto plus = first.find_first_of("+-", 1);
            o.parts.push_back(operand(first.substr(0, plus)));
            if (plus != std::string::npos) {
                const Operand offset = operand(first[plus] == '+' ? first.substr(plus + 1) : first.substr(plus));
                if (offset.kind == Operand::immediate)
                    o.value = offset.value;
                else
                    throw Unknown("the address " + text);
            }
            if (inner.size() > 1) o.parts.push_back(operand(inner[1]));
            return o;
        }
        if (const auto pair = split(text, '|'); pair.size() == 2) {
            o.kind = Operand::list;
            for (const auto& p : pair) o.parts.push_back(operand(p));
            return o;
        }
        // nvcc takes a register with one % too: only a number after it names an operand.
        if (text[0] == '%' && text.size() > 1 && !std::isdigit(static_cast<unsigned char>(text[1]))) {
            const std::string name = text.substr(text[1] == '%' ? 2 : 1);
            const auto found = specials.find(name);
            if (found == specials.end()) throw Unknown("the register %" + name);
            o.kind = Operand::special;
            o.ask = found->second;
            return o;
        }
        if (text[0] == '%') {
            char* end;
            o.kind = Operand::slot;
            o.index = std::strtol(text.c_str() + 1, &end, 10);
            if (*end || static_cast<unsigned>(o.index) >= operands) throw Unknown("the operand " + text);
            return o;
        }
        if (std::isdigit(static_cast<unsigned char>(text[0])) ||
            ((text[0] == '-' || text[0] == '+') && text.size() > 1)) {
            o.kind = Operand::immediate;
            if (text.size() > 2 && text[0] == '0' &&
                (text[1] == 'f' || text[1] == 'F' || text[1] == 'd' || text[1] == 'D')) {
                o.value = std::strtoull(text.c_str() + 2, nullptr, 16);
            } else if (text.find('.') != std::string::npos) {
                o.decimal = true;
                o.number = std::strtod(text.c_str(), nullptr);
            } else {
                // A sum of numbers, as %0 * 8 never is: PTX has constant expressions, kernels hardly use them.
                char* end;
                o.value = std::strtoll(text.c_str(), &end, 0);
                if (text.size() > 2 && text[0] == '0') o.value = std::strtoull(text.c_str(), &end, 0);
                while (*end == 'U' || *end == 'u') ++end;
                if (*end) throw Unknown("the number " + text);
            }
            return o;
        }
        if (text == "WARP_SZ") return o.kind = Operand::immediate, o.value = 32, o;
        const auto found = registers.find(text);
        if (found != registers.end()) {
            o.kind = Operand::slot;
            o.index = found->second;
            return o;
        }
        o.kind = Operand::label;
        o.name = text;
        return o;
    }

    void declare(const std::string& text)  // .reg .b32 a, b<4>
    {
        const auto space = text.find_first_of(" \t\n", text.find('.', 1));
        for (std::string name : split(text.substr(space), ',')) {
            name = trimmed(name);
            const auto range = name.find('<');
            if (range == std::string::npos) {
                registers[name] = operands + program.locals++;
            } else {
                const int count = std::atoi(name.c_str() + range + 1);
                for (int k = 0; k < count; ++k)
                    registers[name.substr(0, range) + std::to_string(k)] = operands + program.locals++;
            }
        }
    }

    void statement(std::string text)
    {
        text = trimmed(text);
        if (text.empty()) return;
        // A label stands before what follows it: `again: ...`
        const auto colon = text.find(':');
        if (colon != std::string::npos && text[colon + 1] != ':' && text.find_first_of(" \t\n.[{") > colon) {
            labels[text.substr(0, colon)] = program.code.size();
            return statement(text.substr(colon + 1));
        }
        if (text[0] == '.') {
            if (text.rfind(".reg", 0) == 0) return declare(text);
            throw Unknown("the directive " + text.substr(0, text.find_first_of(" \t\n")));
        }
        Instruction i;
        if (text[0] == '@') {
            auto end = text.find_first_of(" \t\n");
            std::string name = text.substr(1, end - 1);
            i.unless = name[0] == '!';
            const Operand p = operand(i.unless ? name.substr(1) : name);
            if (p.kind != Operand::slot) throw Unknown("the predicate " + name);
            i.predicate = p.index;
            text = trimmed(text.substr(end));
        }
        const auto end = text.find_first_of(" \t\n");
        for (const std::string& word : split(text.substr(0, end), '.')) i.words.push_back(word);
        if (end != std::string::npos)
            for (const auto& part : split(text.substr(end), ',')) i.operands.push_back(operand(part));
        if (i.operands.size() == 1 && i.operands[0].kind == Operand::none) i.operands.clear();
        decode(i, text.substr(0, end));
        program.code.push_back(std::move(i));
    }

    Program read(const char* text)
    {
        std::string clean;
        for (const char* c = text; *c;) {
            if (c[0] == '/' && c[1] == '/') {
                while (*c && *c != '\n') ++c;
            } else if (c[0] == '/' && c[1] == '*') {
                const char* close = std::strstr(c, "*/");
                c = close ? close + 2 : c + std::strlen(c);
            } else {
                clean += *c++;
            }
        }
        // Braces are scopes where a statement may begin, and lists of registers elsewhere.
        std::string one;
        int depth = 0;
        for (char c : clean) {
            const bool begins = trimmed(one).empty();
            if (!depth && begins && (c == '{' || c == '}')) continue;
            if (!depth && c == '}') {  // the last statement of a scope may lack its semicolon
                statement(one);
                one.clear();
                continue;
            }
            depth += c == '{';
            depth -= c == '}';
            // A label, and the brace of a scope behind it
            if (c == ';' && !depth) {
                statement(one);
                one.clear();
            } else {
                one += c;
                if (c == ':' && !depth) {
                    const std::string label = trimmed(one);
                    if (label.find_first_of(" \t\n.[{:") == label.size() - 1 && label.size() > 1) {
                        labels[label.substr(0, label.size() - 1)] = program.code.size();
                        one.clear();
                    }
                }
            }
        }
        statement(one);
        for (Instruction& i : program.code)
            for (Operand& o : i.operands)
                if (o.kind == Operand::label) {
                    const auto found = labels.find(o.name);
                    if (found == labels.end()) throw Unknown("the name " + o.name);
                    o.index = found->second;
                }
        return std::move(program);
    }
};

}  // namespace

Program read(const char* text, unsigned operands) { return Reader{operands, {}, {}, {}}.read(text); }

}  // namespace emulator::ptx
