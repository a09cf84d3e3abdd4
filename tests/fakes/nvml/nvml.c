/* A libnvidia-ml.so.1 for tests: answers what a real H200 answered, and has faults that are switched while it runs.
 *
 * The file that FAKE_NVML_CONTROL names is read again whenever it has changed. A line is `key=value`, for all GPUs, or
 * `key=value@gpuN` for one. Keys: see `known` below; a key that is not there has the recorded value. `xid=79@gpu1` is
 * delivered once, as an event, when the line appears; `xid=79@gpu1#2` is another line. `serial` is that of GPU 0.
 *
 * Compiled with OLD_DRIVER it lacks what drivers before r525 lack: symbols and fields.
 * recorded.h is made by build.py from tests/fixtures/nvml-h200.json: fields, and what each call cost.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "recorded.h"

enum {
  SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, CORRUPTED_INFOROM = 14,
  LOST = 15, RESET_REQUIRED = 16, LIB_RM_MISMATCH = 18
};
#define MAX_GPUS 16
#define MAX_XIDS 64
#define LINE 128

enum key {
  GPUS, COUNT, LOST_GPU, RESET_GPU, ACTION, ECC, ECC_CORRECTED, SRAM, SRAM_FLAG, REMAP_PENDING, REMAP_FAILED, REMAPS,
  RETIRED, RETIRED_PENDING, REPAIR, INFOROM, NVLINKS, NVLINK_DOWN, NVLINK_RECOVERIES, NVLINK_CRC, FABRIC,
  FABRIC_STATUS, FABRIC_MASK, PCIE_WIDTH, PCIE_REPLAYS, PCIE_FATAL, MARGIN, THROTTLE, ENERGY_STUCK, POWER, VBIOS,
  SERIAL, INIT_ERROR, HANG_SECONDS, BUSY, EVERY_CALL_FAILS, NOISE, HANDLE_ERROR, GPU_FAILS, LINK_ERROR, PCIE_GENERATION,
  PERFORMANCE_STATE, PERSISTENCE, MIG, MODEL, KEYS
};
static const char *const known[KEYS] = {
  "gpus", "count", "lost", "reset_required", "recovery_action", "ecc", "ecc_corrected", "sram", "sram_flag",
  "remap_pending", "remap_failed", "remaps", "retired", "retired_pending", "repair", "inforom", "nvlinks",
  "nvlink_down", "nvlink_recoveries", "nvlink_crc", "fabric", "fabric_status", "fabric_mask", "pcie_width",
  "pcie_replays", "pcie_fatal", "margin", "throttle", "energy_stuck", "power_mw", "vbios",
  "serial", "init_error", "hang_seconds", "busy", "every_call_fails", "noise", "handle_error", "gpu_fails", "link_error",
  "pcie_generation", "performance_state", "persistence", "mig", "model"
};

static struct {
  int set[KEYS][MAX_GPUS];
  long value[KEYS][MAX_GPUS];
} control;
static char seen[MAX_XIDS][LINE];
static int seen_count, first_reading = 1;
static struct { int gpu; long xid; } queue[MAX_XIDS];
static int queued;
static struct timespec read_at;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct gpu { int index; } gpus[MAX_GPUS];

static void take_xid(const char *line, long value, int gpu, char now[][LINE], int *count) {
  if (*count < MAX_XIDS) snprintf(now[(*count)++], LINE, "%s", line);
  for (int i = 0; i < seen_count; i++)
    if (!strcmp(seen[i], line)) return;
  if (!first_reading && queued < MAX_XIDS) {
    queue[queued].gpu = gpu < 0 ? 0 : gpu;
    queue[queued++].xid = value;
  }
}

static void read_control(void) {
  const char *path = getenv("FAKE_NVML_CONTROL");
  struct stat status;
  if (!path || stat(path, &status)) { first_reading = 0; return; }
  if (status.st_mtim.tv_sec == read_at.tv_sec && status.st_mtim.tv_nsec == read_at.tv_nsec) return;
  FILE *file = fopen(path, "r");
  if (!file) return;
  read_at = status.st_mtim;
  memset(&control, 0, sizeof control);
  static char now[MAX_XIDS][LINE];
  int count = 0;
  char line[LINE];
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    char *equals = strchr(line, '=');
    if (!equals || line[0] == '#') continue;
    char *at = strstr(equals, "@gpu");
    int gpu = at ? atoi(at + 4) : -1;
    long value = strtol(equals + 1, NULL, 0);
    if (!strncmp(line, "xid=", 4)) { take_xid(line, value, gpu, now, &count); continue; }
    for (int key = 0; key < KEYS; key++) {
      if (strlen(known[key]) != (size_t)(equals - line) || strncmp(known[key], line, equals - line)) continue;
      for (int i = 0; i < MAX_GPUS; i++)
        if (gpu < 0 || gpu == i) { control.set[key][i] = 1; control.value[key][i] = value; }
    }
  }
  fclose(file);
  memcpy(seen, now, sizeof seen);
  seen_count = count;
  first_reading = 0;
}

static long get(enum key key, int gpu, long recorded) {
  pthread_mutex_lock(&lock);
  read_control();
  long value = control.set[key][gpu] ? control.value[key][gpu] : recorded;
  pthread_mutex_unlock(&lock);
  return value;
}

/* Every call begins here: it may hang, cost what it cost on the real GPU, or fail as a whole. */
static int enter(int gpu, double recorded_ms) {
  long hang = get(HANG_SECONDS, gpu, 0);
  if (hang) nanosleep(&(struct timespec){hang, 0}, NULL);
  if (get(NOISE, gpu, 0)) { puts("a library that prints"); fflush(stdout); }
  if (get(BUSY, gpu, 0)) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1e3 + (now.tv_nsec - begin.tv_nsec) / 1e6 < recorded_ms);
  }
  return (int)get(EVERY_CALL_FAILS, gpu, SUCCESS);
}

static int on(struct gpu *gpu, double recorded_ms) {
  if (!gpu || gpu < gpus || gpu >= gpus + MAX_GPUS) return INVALID;
  int failed = enter(gpu->index, recorded_ms);
  if (failed) return failed;
  if (get(LOST_GPU, gpu->index, 0)) return LOST;
  if (get(RESET_GPU, gpu->index, 0)) return RESET_REQUIRED;
  return (int)get(GPU_FAILS, gpu->index, SUCCESS);
}
#define ON(gpu, ms) do { int failed = on(gpu, ms); if (failed) return failed; } while (0)

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  for (int i = 0; i < MAX_GPUS; i++) gpus[i].index = i;
  int failed = enter(0, MS_INIT);
  return failed ? failed : (int)get(INIT_ERROR, 0, SUCCESS);
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) {
  switch (code) {
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    case RESET_REQUIRED: return "GPU requires restart";
    case LIB_RM_MISMATCH: return "Driver/library version mismatch";
    default: return "an error of the fake library";
  }
}
int nvmlSystemGetDriverVersion(char *text, unsigned length) {
  int failed = enter(0, 0);
  snprintf(text, length, "%s", RECORDED_DRIVER);
  return failed;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
  int failed = enter(0, 0.005);
  *count = (unsigned)get(COUNT, 0, get(GPUS, 0, 8));
  return failed;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu) {
  if (index >= MAX_GPUS) return INVALID;
  *gpu = &gpus[index];
  if (get(LOST_GPU, (int)index, 0)) return LOST;
  long failed = get(HANDLE_ERROR, (int)index, SUCCESS);
  return failed ? (int)failed : enter((int)index, 0.01);
}
/* The library remembers the UUID: a GPU that fails everything else may still have it. */
int nvmlDeviceGetUUID(struct gpu *gpu, char *text, unsigned length) {
  if (!get(GPU_FAILS, gpu->index, SUCCESS)) ON(gpu, MS_UUID);
  snprintf(text, length, "GPU-00000000-0000-4000-8000-%012d", gpu->index + 1);
  return SUCCESS;
}
int nvmlDeviceGetSerial(struct gpu *gpu, char *text, unsigned length) {
  ON(gpu, MS_SERIAL);
  snprintf(text, length, "%ld", get(SERIAL, gpu->index, 1650000000001L) + gpu->index);
  return SUCCESS;
}
int nvmlDeviceGetName(struct gpu *gpu, char *text, unsigned length) {
  ON(gpu, MS_NAME);
  static const char *const models[] = {RECORDED_NAME, "NVIDIA H200 NVL", "NVIDIA GH200 480GB"};
  snprintf(text, length, "%s", models[get(MODEL, gpu->index, 0) % 3]);
  return SUCCESS;
}
int nvmlDeviceGetVbiosVersion(struct gpu *gpu, char *text, unsigned length) {
  ON(gpu, MS_VBIOS);
  long other = get(VBIOS, gpu->index, 0);
  if (other) snprintf(text, length, "96.00.A5.00.%02lX", other);
  else snprintf(text, length, "%s", RECORDED_VBIOS);
  return SUCCESS;
}
struct pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char address[32];
};
int nvmlDeviceGetPciInfo_v3(struct gpu *gpu, struct pci *pci) {
  ON(gpu, MS_PCI);
  memset(pci, 0, sizeof *pci);
  pci->bus = 0x10u + (unsigned)gpu->index;
  snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
  snprintf(pci->address, sizeof pci->address, "00000000:%02X:00.0", pci->bus);
  return SUCCESS;
}
int nvmlDeviceGetPerformanceState(struct gpu *gpu, unsigned *state) {
  ON(gpu, 0.012);
  *state = (unsigned)get(PERFORMANCE_STATE, gpu->index, 0);
  return SUCCESS;
}
int nvmlDeviceGetPersistenceMode(struct gpu *gpu, int *mode) {
  ON(gpu, 0.01);
  *mode = (int)get(PERSISTENCE, gpu->index, 1);
  return SUCCESS;
}
int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *current, unsigned *pending) {
  ON(gpu, 0.01);
  *current = *pending = (unsigned)get(MIG, gpu->index, 0);
  return SUCCESS;
}
int nvmlDeviceGetCurrPcieLinkGeneration(struct gpu *gpu, unsigned *generation) {
  ON(gpu, 0.014);
  *generation = (unsigned)get(PCIE_GENERATION, gpu->index, 5);
  return SUCCESS;
}

union value { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; int si; unsigned short us; };
struct field {
  uint32_t id, scope;
  int64_t timestamp, latency;
  int type, status;
  union value value;
};
static const struct { unsigned id; enum key key; } switched[] = {
  {3, ECC_CORRECTED}, {4, ECC}, {29, RETIRED}, {31, RETIRED_PENDING}, {38, NVLINK_CRC}, {59, NVLINK_RECOVERIES},
  {94, PCIE_REPLAYS}, {143, REMAPS}, {144, REMAP_PENDING}, {145, REMAP_FAILED}, {180, PCIE_FATAL}, {186, POWER},
  {230, ACTION},
};
static void answer(struct gpu *gpu, struct field *field) {
  field->status = NOT_SUPPORTED;
  for (unsigned i = 0; i < sizeof recorded_fields / sizeof *recorded_fields; i++)
    if (recorded_fields[i].id == field->id) {
      field->status = SUCCESS;
      field->type = recorded_fields[i].type;
      field->value.ull = recorded_fields[i].value;
    }
  for (unsigned i = 0; i < sizeof switched / sizeof *switched; i++)
    if (switched[i].id == field->id && get(switched[i].key, gpu->index, -1) >= 0) {
      if (field->status) field->type = 3;
      field->status = SUCCESS;
      field->value.ull = (unsigned long long)get(switched[i].key, gpu->index, 0);
    }
  if (field->id == 83 && !get(ENERGY_STUCK, gpu->index, 0)) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    field->value.ull = (unsigned long long)now.tv_sec * 100000 + (unsigned long long)now.tv_nsec / 10000;
  }
#ifdef OLD_DRIVER
  if (field->id > 145) field->status = INVALID;
#endif
}
int nvmlDeviceGetFieldValues(struct gpu *gpu, int count, struct field *fields) {
  ON(gpu, MS_FIELD * count);
  for (int i = 0; i < count; i++) answer(gpu, &fields[i]);
  return SUCCESS;
}
/* The same counter as field 83. */
int nvmlDeviceGetTotalEnergyConsumption(struct gpu *gpu, unsigned long long *millijoules) {
  ON(gpu, MS_FIELD);
  struct field field = {.id = 83};
  answer(gpu, &field);
  *millijoules = field.value.ull;
  return field.status;
}
int nvmlDeviceGetNvLinkState(struct gpu *gpu, unsigned link, unsigned *active) {
  ON(gpu, MS_NVLINK);
  long failed = get(LINK_ERROR, gpu->index, SUCCESS);
  if (failed) return (int)failed;
  if (link >= (unsigned)get(NVLINKS, gpu->index, 0)) return NOT_SUPPORTED;
  *active = link >= (unsigned)get(NVLINK_DOWN, gpu->index, 0);
  return SUCCESS;
}
int nvmlDeviceGetMemoryErrorCounter(struct gpu *gpu, int type, int counter, int location, unsigned long long *count) {
  ON(gpu, MS_MEMORY_ERRORS);
  if (location != 7) return NOT_SUPPORTED;
  *count = type == 1 && counter == 0 ? (unsigned long long)get(SRAM, gpu->index, 0) : 0;
  return SUCCESS;
}
int nvmlDeviceGetCurrPcieLinkWidth(struct gpu *gpu, unsigned *width) {
  ON(gpu, MS_WIDTH);
  *width = (unsigned)get(PCIE_WIDTH, gpu->index, 16);
  return SUCCESS;
}
int nvmlDeviceGetMaxPcieLinkWidth(struct gpu *gpu, unsigned *width) {
  ON(gpu, 0.045);
  *width = 16;
  return SUCCESS;
}
int nvmlDeviceGetMaxPcieLinkGeneration(struct gpu *gpu, unsigned *generation) {
  ON(gpu, 0.014);
  *generation = 5;
  return SUCCESS;
}
int nvmlDeviceValidateInforom(struct gpu *gpu) {
  ON(gpu, MS_INFOROM);
  return get(INFOROM, gpu->index, 0) ? CORRUPTED_INFOROM : SUCCESS;
}

#ifndef OLD_DRIVER
struct repair { unsigned version, channel, tpc; };
int nvmlDeviceGetRepairStatus(struct gpu *gpu, struct repair *status) {
  ON(gpu, MS_REPAIR);
  status->channel = get(REPAIR, gpu->index, 0) & 1;
  status->tpc = (get(REPAIR, gpu->index, 0) >> 1) & 1;
  return SUCCESS;
}
int nvmlDeviceGetCurrentClocksEventReasons(struct gpu *gpu, unsigned long long *reasons) {
  ON(gpu, MS_CLOCKS);
  *reasons = (unsigned long long)get(THROTTLE, gpu->index, 1);
  return SUCCESS;
}
struct margin { unsigned version; int margin; };
int nvmlDeviceGetMarginTemperature(struct gpu *gpu, struct margin *answer) {
  ON(gpu, MS_MARGIN);
  answer->margin = (int)get(MARGIN, gpu->index, RECORDED_MARGIN);
  return SUCCESS;
}
struct sram { unsigned version; unsigned long long counts[11]; unsigned exceeded; };
int nvmlDeviceGetSramEccErrorStatus(struct gpu *gpu, struct sram *status) {
  ON(gpu, MS_MEMORY_ERRORS);
  status->exceeded = (unsigned)get(SRAM_FLAG, gpu->index, 0);
  return SUCCESS;
}
struct fabric { unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; unsigned mask; };
int nvmlDeviceGetGpuFabricInfoV(struct gpu *gpu, struct fabric *fabric) {
  ON(gpu, MS_FABRIC);
  fabric->state = (unsigned char)get(FABRIC, gpu->index, 0);
  fabric->status = (int)get(FABRIC_STATUS, gpu->index, 0);
  fabric->mask = (unsigned)get(FABRIC_MASK, gpu->index, 0);
  return SUCCESS;
}
#endif

int nvmlEventSetCreate(void **set) { *set = &queue; return SUCCESS; }
int nvmlDeviceGetSupportedEventTypes(struct gpu *gpu, unsigned long long *types) {
  ON(gpu, 0.007);
  *types = 0xff9f;
  return SUCCESS;
}
int nvmlDeviceRegisterEvents(struct gpu *gpu, unsigned long long types, void *set) {
  (void)types, (void)set;
  ON(gpu, 0.007);
  return SUCCESS;
}
struct event { struct gpu *gpu; unsigned long long type, data; unsigned instance, compute; };
int nvmlEventSetWait_v2(void *set, struct event *event, unsigned milliseconds) {
  (void)set;
  for (unsigned waited = 0;; waited += 50) {
    pthread_mutex_lock(&lock);
    read_control();
    int found = queued > 0;
    if (found) {
      *event = (struct event){&gpus[queue[0].gpu], 8, (unsigned long long)queue[0].xid, ~0u, ~0u};
      memmove(queue, queue + 1, sizeof queue - sizeof *queue);
      queued--;
    }
    pthread_mutex_unlock(&lock);
    if (found) return SUCCESS;
    if (waited >= milliseconds) return TIMEOUT;
    nanosleep(&(struct timespec){0, 50000000}, NULL);
  }
}
