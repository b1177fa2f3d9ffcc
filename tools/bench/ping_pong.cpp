// Bare MPI, to measure `millrace bench ranks` against: two ranks throw a message of so many bytes
// to and fro, as OSU's osu_latency does. Rank 0 prints the median microseconds one way, a line a
// size.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  constexpr int kTag = 1, kWarm = 50, kTimes = 500;
  for (int i = 1; i < count; ++i) {
    std::vector<char> bytes(std::strtoul(arguments[i], nullptr, 10), 1);
    const auto send = [&] {
      MPI_Send(bytes.data(), int(bytes.size()), MPI_CHAR, 1 - rank, kTag, MPI_COMM_WORLD);
    };
    const auto receive = [&] {
      MPI_Recv(bytes.data(), int(bytes.size()), MPI_CHAR, 1 - rank, kTag, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
    };
    std::vector<double> took;
    for (int time = 0; time < kWarm + kTimes; ++time) {
      const double began = MPI_Wtime();
      if (rank == 0) send();
      receive();
      if (rank == 1) send();
      if (time >= kWarm) took.push_back(1e6 * (MPI_Wtime() - began) / 2);
    }
    std::nth_element(took.begin(), took.begin() + took.size() / 2, took.end());
    if (rank == 0) std::printf("%f\n", took[took.size() / 2]);
  }
  MPI_Finalize();
}
