// The instructions of inline PTX that the interpreter knows. To add one: a row of the table, and its function.
#include "reader.h"
#include "tensor.h"

#include <unordered_map>

namespace emulator::ptx {

namespace {

struct Reading {
    Instruction& i;
    const std::string& name;
    std::vector<Type> types;  // in the operation

    bool second(const char* word) const { return i.words.size() > 1 && i.words[1] == word; }
    void needs(std::size_t operands) const
    {
        if (i.operands.size() < operands)
            throw Unknown(name + " with " + std::to_string(i.operands.size()) + " operands");
    }
    void require(bool holds) const
    {
        if (!holds) throw Unknown(name);
    }
};

struct Opcode {
    const char* name;  // the first words of the operation
    Run run;
    std::size_t operands;  // at least
    const char* words;     // that may follow, except types; null: any. What would change the result is refused
    int code = 0;
    void (*read)(const Reading&) = nullptr;  // finds out the rest
};

// ---- What some of them have more ------------------------------------------------------------------------------------

void read_product(const Reading& r) { r.i.code = r.i.has("hi") ? mul_hi : r.i.has("wide") ? mul_wide : mul; }

void read_carry(const Reading& r)
{
    r.require(r.types.size() == 1 && (r.i.type.kind == 'u' || r.i.type.kind == 's') && r.i.type.bits >= 32);
    r.i.flag = r.i.words[0].back() == 'c';  // addc, subc, madc
    r.i.other = r.i.has("cc");
}

void read_conversion(const Reading& r)
{
    r.require(r.types.size() >= 2);
    r.i.type = r.types[0];
    r.i.from = r.types[1];
    const char to = r.i.type.kind, from = r.i.from.kind;
    r.require(is_fp8(r.i.type) ? r.i.type.bits == 16 && r.i.has("satfinite") && (from == 'H' || from == 'f')
                               : !r.i.has("satfinite") && (!is_fp8(r.i.from) || (to == 'H' && r.i.from.bits == 16)));
    r.needs(from == 'f' && (to == 'H' || to == 'G' || is_fp8(r.i.type)) ? 3 : 2);
    r.require(!(r.i.type.kind == 't' && r.i.has("rn")));
}

void read_access(const Reading& r)
{
    for (std::size_t k = 1; k < r.i.words.size(); ++k) {
        const std::string& word = r.i.words[k];
        if (word == "v2" || word == "v4") r.i.width = word[1] - '0';
        r.require(word != "param" && word != "local" && word != "mmio");
    }
    if (r.i.type.bits == 128) r.i.type = {'b', 64}, r.i.width *= 2;
    r.require(r.i.operands[r.i.words[0] == "st" ? 0 : 1].kind == Operand::memory);
}

void read_atomic(const Reading& r)
{
    const std::map<std::string, int> codes = {{"add", add}, {"min", min_}, {"max", max_},  {"and", and_},
                                              {"or", or_},  {"xor", xor_}, {"exch", exch}, {"inc", inc},
                                              {"dec", dec}, {"cas", cas}};
    r.i.code = -1;
    for (const auto& word : r.i.words) {
        if (const auto found = codes.find(word); found != codes.end()) r.i.code = found->second;
        if (word == "v2" || word == "v4" || word == "v8") r.i.width = word[1] - '0';
    }
    r.require(r.i.code >= 0 && !r.i.has("async"));
    const bool is_vector = r.i.width > 1;
    r.require(!is_vector || (r.i.code == add && r.i.has("global") && r.i.width * r.i.type.bytes() <= 16));
}

void read_mbarrier(const Reading& r) { r.require(!r.i.has("noComplete")); }

void read_bulk(const Reading& r)
{
    Instruction& i = r.i;
    const bool tensor = i.has("tensor");
    r.require(!i.starts("im2col") && !i.has("gather4") && !i.has("scatter4") && !i.starts("tile::"));
    if (i.starts("shared") && i.has("global") && i.starts("mbarrier")) {
        // Which of the two comes first says which way it goes.
        r.needs(3 + !tensor + i.has("multicast::cluster"));
        i.run = tensor ? run_box_load : run_bulk_load;
    } else if (!tensor && i.words.size() > 4 && i.words[3] == "shared::cluster" && i.words[4] == "shared::cta" &&
               i.starts("mbarrier")) {
        r.needs(4);
        i.run = run_bulk_between;
    } else {
        r.require(i.has("global") && i.has("bulk_group"));
        r.needs(2);
        i.run = tensor ? run_box_store : run_bulk_store;
    }
}

void read_bulk_reduction(const Reading& r)
{
    r.require(r.i.has("bulk_group"));
    r.i.run = r.i.has("tensor") ? run_box_store : run_bulk_store;
}

void read_copy(const Reading& r)
{
    r.require((r.i.has("ca") || r.i.has("cg")) && r.i.starts("shared"));
    r.needs(3);
    r.i.other = r.i.starts("L2::cache_hint") && r.i.operands.size() == 4;
}

void read_wait_all(const Reading& r) { r.i.flag = true; }

void read_matrix(const Reading& r)
{
    r.i.width = r.i.has("x4") ? 4 : r.i.has("x2") ? 2 : 1;
    r.require(r.i.has("m8n8") && r.i.has("b16"));
}

void read_shape(const Reading& r)
{
    for (const auto& word : r.i.words) std::sscanf(word.c_str(), "m%dn%dk%d", &r.i.rows, &r.i.columns, &r.i.depth);
}

void read_mma(const Reading& r)
{
    Instruction& i = r.i;
    read_shape(r);
    r.require(r.types.size() == 4 && i.columns == 8 && i.has("row") && i.has("col") && !i.has("sp") &&
              !i.starts("kind"));
    i.type = r.types[1];
    i.from = r.types[2];
    const Type d = r.types[0], a = r.types[1], b = r.types[2], c = r.types[3];
    const int rows = i.rows, depth = i.depth;
    if (a.kind == 'f' && a.bits == 64) {
        r.require((rows == 8 && depth == 4) || (rows == 16 && (depth == 4 || depth == 8 || depth == 16)));
    } else if (is_bytes(a) && is_bytes(b)) {
        r.require(rows == 16 && (depth == 16 || depth == 32) && !i.has("satfinite"));
        i.flag = a.kind == 's';
        i.other = b.kind == 's';
    } else if ((a.kind == 'h' && b.kind == 'h') || (a.kind == 'g' && b.kind == 'g')) {
        r.require(rows == 16 && (depth == 8 || depth == 16));
        i.flag = c.kind == 'h';
        i.other = d.kind == 'h';
    } else if (is_fp8(a) && is_fp8(b)) {
        r.require(rows == 16 && (depth == 16 || depth == 32) && a.bits == 8 && b.bits == 8);
        i.flag = c.kind == 'h';
        i.other = d.kind == 'h';
    } else {
        r.require(rows == 16 && a.kind == 't' && b.kind == 't' && (depth == 4 || depth == 8));
    }
}

void read_wgmma(const Reading& r)
{
    Instruction& i = r.i;
    read_shape(r);
    r.require(r.types.size() == 3 && i.rows == 64 && i.columns % 8 == 0 && i.columns <= int(most_columns) &&
              !i.has("sp"));
    i.type = r.types[1];
    i.from = r.types[2];
    if (is_bytes(i.type) && is_bytes(r.types[2])) {
        r.require(i.depth == 32 && (i.columns <= 24 || i.columns % 16 == 0) && !i.has("satfinite"));
        r.needs(4);
        i.flag = i.type.kind == 's';
        i.other = r.types[2].kind == 's';
        return;
    }
    r.require(is_fp8(i.type) ? is_fp8(i.from) && i.type.bits == 8 && i.from.bits == 8
                             : std::strchr("hgt", i.type.kind) && i.from.kind == i.type.kind);
    r.require(i.depth == int(256 / i.type.bits));
    i.other = r.types[0].kind == 'h';
}

// ---- The table ------------------------------------------------------------------------------------------------------

constexpr const char *calculates = "rn ftz full approx NaN", *multiplies = "rn ftz lo hi wide", *one = "rn ftz approx",
                     *none = "";

const Opcode opcodes[] = {
    {"add", run_binary, 3, calculates, add},
    {"sub", run_binary, 3, calculates, sub},
    {"min", run_binary, 3, calculates, min_},
    {"max", run_binary, 3, calculates, max_},
    {"and", run_binary, 3, calculates, and_},
    {"or", run_binary, 3, calculates, or_},
    {"xor", run_binary, 3, calculates, xor_},
    {"shl", run_binary, 3, calculates, shl},
    {"shr", run_binary, 3, calculates, shr},
    {"div", run_binary, 3, calculates, div_},
    {"rem", run_binary, 3, calculates, rem},
    {"mul", run_binary, 3, multiplies, mul, read_product},
    {"mul24", run_binary, 3, multiplies, mul, read_product},
    {"mad", run_multiply_add, 4, multiplies, mul, read_product},
    {"fma", run_multiply_add, 4, multiplies, mul, read_product},
    {"add.cc", run_carry, 3, "cc", add, read_carry},
    {"addc", run_carry, 3, "cc", add, read_carry},
    {"sub.cc", run_carry, 3, "cc", sub, read_carry},
    {"subc", run_carry, 3, "cc", sub, read_carry},
    {"mad.lo.cc", run_carry, 4, "lo cc", mul, read_carry},
    {"mad.hi.cc", run_carry, 4, "hi cc", mul_hi, read_carry},
    {"madc.lo", run_carry, 4, "lo cc", mul, read_carry},
    {"madc.hi", run_carry, 4, "hi cc", mul_hi, read_carry},
    {"not", run_unary, 2, one},
    {"neg", run_unary, 2, one},
    {"abs", run_unary, 2, one},
    {"popc", run_unary, 2, one},
    {"clz", run_unary, 2, one},
    {"brev", run_unary, 2, one},
    {"rcp", run_unary, 2, one},
    {"sqrt", run_unary, 2, one},
    {"rsqrt", run_unary, 2, one},
    {"ex2", run_unary, 2, one},
    {"lg2", run_unary, 2, one},
    {"sin", run_unary, 2, one},
    {"cos", run_unary, 2, one},
    {"tanh", run_unary, 2, one},
    {"mov", run_mov, 2, nullptr},
    {"cvt", run_cvt, 2, "rn rz rna rni rzi rmi rpi ftz relu sat satfinite", 0, read_conversion},
    {"setp", run_setp, 3, nullptr},
    {"selp", run_selp, 4, nullptr},
    {"prmt", run_prmt, 4, none},
    {"lop3", run_lop3, 5, none},
    {"shf", run_shf, 4, nullptr},
    {"bfe", run_bfe, 4, nullptr},
    {"bfi", run_bfi, 5, nullptr},
    {"bra", run_bra, 1, nullptr},
    {"ret", run_exit, 0, nullptr},
    {"exit", run_exit, 0, nullptr},
    {"trap", run_trap, 0, nullptr},
    // Of these nothing is seen here.
    {"nanosleep", run_nothing, 0, nullptr},
    {"griddepcontrol", run_nothing, 0, nullptr},
    {"prefetch", run_nothing, 0, nullptr},
    {"prefetchu", run_nothing, 0, nullptr},
    {"pragma", run_nothing, 0, nullptr},
    {"applypriority", run_nothing, 0, nullptr},
    {"discard", run_nothing, 0, nullptr},
    {"brkpt", run_nothing, 0, nullptr},
    {"createpolicy", run_nothing, 0, nullptr},
    {"ld", run_ld, 2, nullptr, 0, read_access},
    {"ldu", run_ld, 2, nullptr, 0, read_access},
    {"st", run_st, 2, nullptr, 0, read_access},
    {"st.async", run_st_async, 3, nullptr, 0, read_access},
    {"atom", run_atom, 3, nullptr, 0, read_atomic},
    {"red", run_atom, 2, nullptr, 0, read_atomic},
    {"cvta", run_cvta, 2, nullptr},
    {"isspacep", run_isspacep, 2, nullptr},
    {"mapa", run_mapa, 3, nullptr},
    {"getctarank", run_getctarank, 2, nullptr},
    {"mbarrier.init", run_mbarrier, 1, nullptr, 0, read_mbarrier},
    {"mbarrier.inval", run_mbarrier, 1, nullptr, 0, read_mbarrier},
    {"mbarrier.arrive", run_mbarrier, 1, nullptr, 0, read_mbarrier},
    {"mbarrier.arrive_drop", run_mbarrier, 1, nullptr, 0, read_mbarrier},
    {"mbarrier.expect_tx", run_mbarrier, 1, nullptr, 0, read_mbarrier},
    {"mbarrier.complete_tx", run_mbarrier, 1, nullptr, 0, read_mbarrier},
    {"mbarrier.test_wait", run_mbarrier, 1, nullptr, 0, read_mbarrier},
    {"mbarrier.try_wait", run_mbarrier, 1, nullptr, 0, read_mbarrier},
    {"cp.async.bulk", run_bulk_load, 0, nullptr, 0, read_bulk},
    {"cp.async.bulk.commit_group", run_bulk_commit, 0, nullptr},
    {"cp.async.bulk.wait_group", run_bulk_wait, 0, nullptr},
    {"cp.async.bulk.prefetch", run_nothing, 0, nullptr},
    {"cp.reduce", run_bulk_store, 2, nullptr, 0, read_bulk_reduction},
    {"cp.async", run_cp_async, 0, nullptr, 0, read_copy},
    {"cp.async.commit_group", run_commit, 0, nullptr},
    {"cp.async.wait_group", run_wait_group, 0, nullptr},
    {"cp.async.wait_all", run_wait_group, 0, nullptr, 0, read_wait_all},
    {"cp.async.mbarrier", run_cp_async_arrive, 0, nullptr},
    {"bar", run_bar, 0, nullptr},
    {"barrier", run_bar, 0, nullptr},
    {"bar.warp", run_bar_warp, 0, nullptr},
    {"barrier.warp", run_bar_warp, 0, nullptr},
    {"barrier.cluster.arrive", run_cluster_arrive, 0, nullptr},
    {"barrier.cluster.wait", run_cluster_wait, 0, nullptr},
    {"fence", run_fence, 0, nullptr},
    {"membar", run_fence, 0, nullptr},
    {"setmaxnreg", run_setmaxnreg, 1, nullptr},
    {"shfl", run_shfl, 4, nullptr},
    {"vote", run_vote, 3, nullptr},
    {"activemask", run_activemask, 1, nullptr},
    {"redux", run_redux, 3, nullptr},
    {"elect", run_elect, 2, nullptr},
    {"ldmatrix", run_ldmatrix, 2, nullptr, 0, read_matrix},
    {"stmatrix", run_ldmatrix, 2, nullptr, 0, read_matrix},
    {"movmatrix", run_movmatrix, 2, nullptr},
    {"mma", run_mma, 4, nullptr, 0, read_mma},
    {"wgmma.mma_async", run_wgmma, 3, nullptr, 0, read_wgmma},
    {"wgmma.fence", run_wgmma_fence, 0, nullptr},
    {"wgmma.commit_group", run_wgmma_commit, 0, nullptr},
    {"wgmma.wait_group", run_wgmma_wait, 1, nullptr},
};

/// The row whose name has the most words of the operation, or null.
const Opcode* opcode_of(const std::vector<std::string>& words)
{
    static const auto* const by_name = [] {
        auto* const names = new std::unordered_map<std::string, const Opcode*>;
        for (const Opcode& opcode : opcodes) (*names)[opcode.name] = &opcode;
        return names;
    }();
    const Opcode* found = nullptr;
    std::string name;
    for (const std::string& word : words) {
        name += (name.empty() ? "" : ".") + word;
        if (const auto at = by_name->find(name); at != by_name->end()) found = at->second;
    }
    return found;
}

bool is_among(const std::string& word, std::string_view words)
{
    for (std::size_t at = 0; at < words.size();) {
        const std::size_t end = std::min(words.find(' ', at), words.size());
        if (words.substr(at, end - at) == word) return true;
        at = end + 1;
    }
    return false;
}

}  // namespace

void decode(Instruction& i, const std::string& name)
{
    const Opcode* const opcode = opcode_of(i.words);
    if (!opcode) throw Unknown(name);
    Reading reading{i, name, {}};
    for (std::size_t k = 1; k < i.words.size(); ++k) {
        Type t;
        const bool is_type = parse_type(i.words[k], t);
        if (is_type) reading.types.push_back(t);
        reading.require(is_type || !opcode->words || is_among(i.words[k], opcode->words));
    }
    if (!reading.types.empty()) i.type = reading.types.back();
    reading.needs(opcode->operands);
    i.code = opcode->code;
    i.run = opcode->run;
    if (opcode->read) opcode->read(reading);
    for (Operand& o : i.operands)
        if (o.decimal) o.value = bits_of_real(o.number, i.type);
}

}  // namespace emulator::ptx
