// Bare MPI, the reference for `millrace bench ranks`: two ranks exchange a message of the given
// size, like OSU's osu_latency, and again with other memory touched before each turn, as a stage
// does. Rank 0 prints both medians, in microseconds one way.
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
  constexpr std::size_t kLine = 64;
  std::vector<char> others(12 << 20);  // about a stage's at 64 px
  std::vector<char> bytes(std::strtoul(arguments[1], nullptr, 10), 1), come = bytes;
  const auto send = [&] {
    MPI_Send(bytes.data(), int(bytes.size()), MPI_CHAR, 1 - rank, kTag, MPI_COMM_WORLD);
  };
  const auto receive = [&] {
    MPI_Recv(come.data(), int(come.size()), MPI_CHAR, 1 - rank, kTag, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
  };
  for (const bool works : {false, true}) {
    std::vector<double> took;
    for (int time = 0; time < kWarm + kTimes; ++time) {
      if (works) {
        for (std::size_t at = 0; at < others.size(); at += kLine) ++others[at];
        std::fill(bytes.begin(), bytes.end(), char(time));
        MPI_Barrier(MPI_COMM_WORLD);
      }
      const double began = MPI_Wtime();
      if (rank == 0) send();
      receive();
      if (rank == 1) send();
      if (time >= kWarm) took.push_back(1e6 * (MPI_Wtime() - began) / 2);
    }
    std::nth_element(took.begin(), took.begin() + took.size() / 2, took.end());
    if (rank == 0) std::printf("%f%c", took[took.size() / 2], works ? '\n' : ' ');
  }
  MPI_Finalize();
}
