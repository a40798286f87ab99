// A rank of Gloo that does what ranks.py tells it.
//
//   rank_gloo RANK SIZE FOLDER SOCKET
//
// The ranks find each other in FOLDER, and use the interface eth0. Buffers are of float, and made
// once for each size. Every result is looked at.

#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace {

// The clock of Python's time.perf_counter.
double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

void sleep_until(double at) {
  timespec t{time_t(at), long((at - double(time_t(at))) * 1e9)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr);
}

struct Buffers {
  std::vector<float> mine, got, all;
};

class Rank {
 public:
  Rank(int rank, int size, const std::string& folder) : me(rank), size(size) {
    gloo::transport::tcp::attr where;
    where.iface = "eth0";
    auto device = gloo::transport::tcp::CreateDevice(where);
    gloo::rendezvous::FileStore store(folder);
    auto made = std::make_shared<gloo::rendezvous::Context>(rank, size);
    made->setTimeout(std::chrono::seconds(60));
    made->connectFullMesh(store, device);
    context = made;
  }

  void prepare(const std::string& operation, size_t nbytes) {
    it = &buffers[nbytes];
    size_t count = nbytes / sizeof(float);
    if (it->mine.empty()) {
      it->mine.assign(count, float(me + 1));
      it->got.assign(count, 0);
    }
    it->got.back() = 0;
    if (operation == "gather" && me == 0 && it->all.empty()) it->all.assign(count * size, 0);
    if (operation == "broadcast") it->got.assign(count, float(me + 1));
  }

  void barrier() {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
  }

  void run(const std::string& operation) {
    if (operation == "point_to_point") point_to_point();
    else if (operation == "round_trip") round_trip();
    else if (operation == "broadcast") broadcast();
    else if (operation == "reduce") reduce();
    else if (operation == "allreduce") allreduce();
    else if (operation == "gather") gather();
    else if (operation == "all_to_all") all_to_all();
    else throw std::runtime_error("no such operation: " + operation);
  }

  // Of the result, where this rank has one.
  bool is_right(const std::string& operation) const {
    float total = size * (size + 1) / 2.0f;
    if (operation == "broadcast") return it->got.back() == 1;
    if (operation == "allreduce") return it->got.back() == total;
    if (operation == "all_to_all") return it->got[it->got.size() / size * size - 1] == size;
    if (me != 0) return true;
    if (operation == "point_to_point") return it->got.back() == 2;
    if (operation == "round_trip") return it->got.back() == 1;
    if (operation == "reduce") return it->got.back() == total;
    return it->all.back() == size;
  }

 private:
  void point_to_point() {
    if (me == 0) receive(1);
    if (me == 1) send(it->mine, 0);
  }

  void round_trip() {
    if (me == 0) {
      send(it->mine, 1);
      receive(1);
    } else if (me == 1) {
      receive(0);
      send(it->got, 0);
    }
  }

  void send(std::vector<float>& data, int to) {
    auto buffer = context->createUnboundBuffer(data.data(), data.size() * sizeof(float));
    buffer->send(to, 7);
    buffer->waitSend();
  }

  void receive(int from) {
    auto buffer = context->createUnboundBuffer(it->got.data(), it->got.size() * sizeof(float));
    buffer->recv(from, 7);
    buffer->waitRecv();
  }

  void broadcast() {
    gloo::BroadcastOptions options(context);
    options.setOutput(it->got.data(), it->got.size());
    options.setRoot(0);
    gloo::broadcast(options);
  }

  void reduce() {
    gloo::ReduceOptions options(context);
    options.setInput(it->mine.data(), it->mine.size());
    options.setOutput(it->got.data(), it->got.size());
    options.setReduceFunction(sum);
    options.setRoot(0);
    gloo::reduce(options);
  }

  void allreduce() {
    gloo::AllreduceOptions options(context);
    options.setInput(it->mine.data(), it->mine.size());
    options.setOutput(it->got.data(), it->got.size());
    options.setReduceFunction(sum);
    gloo::allreduce(options);
  }

  void gather() {
    gloo::GatherOptions options(context);
    options.setInput(it->mine.data(), it->mine.size());
    if (me == 0) options.setOutput(it->all.data(), it->all.size());
    options.setRoot(0);
    gloo::gather(options);
  }

  void all_to_all() {
    size_t count = it->mine.size() / size * size;
    gloo::AlltoallOptions options(context);
    options.setInput(it->mine.data(), count);
    options.setOutput(it->got.data(), count);
    gloo::alltoall(options);
  }

  static void sum(void* to, const void* a, const void* b, size_t count) {
    gloo::sum<float>(to, a, b, count);
  }

  int me, size;
  std::shared_ptr<gloo::Context> context;
  std::map<size_t, Buffers> buffers;
  Buffers* it = nullptr;
};

int connected(const char* path) {
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    throw std::runtime_error(std::string("cannot connect to ") + path);
  return fd;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) {
    fprintf(stderr, "usage: rank_gloo RANK SIZE FOLDER SOCKET\n");
    return 2;
  }
  Rank rank(atoi(words[1]), atoi(words[2]), words[3]);
  int teller = connected(words[4]);
  FILE *told = fdopen(teller, "r"), *answers = fdopen(dup(teller), "w");
  setlinebuf(answers);
  fprintf(answers, "%s\n", words[1]);
  char line[256], operation[64];
  size_t nbytes;
  int times;
  double at;
  while (fgets(line, sizeof(line), told)) {
    if (sscanf(line, "%63s %zu %d %lf", operation, &nbytes, &times, &at) != 4) return 2;
    std::string answer;
    for (int time = 0; time < times; ++time) {
      rank.prepare(operation, nbytes);
      if (at > 0) sleep_until(at);
      else rank.barrier();
      double began = now();
      rank.run(operation);
      double ended = now();
      if (!rank.is_right(operation)) answer += "wrong ";
      char text[64];
      snprintf(text, sizeof(text), "%.9f %.9f ", began, ended);
      answer += text;
    }
    fprintf(answers, "%s\n", answer.c_str());
  }
  return 0;
}
