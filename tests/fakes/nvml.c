/* A simulated libnvidia-ml.so.1: as much of NVML as the kit asks for. Settings come from the environment at each call:
 *
 *   FAKE_NVML_GPUS       number of GPUs; 0 or unset: the driver is not loaded
 *   FAKE_NVML_USED       a file whose line N is the used memory of GPU N in bytes; absent lines mean 0
 *   FAKE_NVML_PROCESSES  "GPU:PID:BYTES,…", the processes that compute
 *   FAKE_NVML_MIG        set: GPU 1 has two MIG instances of 10 GiB, with the UUIDs MIG-…1 and MIG-…2
 *   FAKE_NVML_BROKEN     a file; while it exists, memory cannot be read ("Unknown Error")
 *   FAKE_NVML_OLD        set: the newer memory call is not supported, as with an old driver
 *   FAKE_NVML_PCI        the PCI bus id of GPU 0, with a %d the pattern of all; unset: this driver does not tell it
 *   FAKE_NVML_THROTTLED  a file with NVML's bits of why the clocks are low, and a temperature; absent: clocks are not told
 *   FAKE_NVML_CLOCKS     "SM MEMORY" in MHz, the clocks of now; unset: not told
 *   FAKE_NVML_WATTS      the energy counter grows by so many W, in steps of 100 ms; unset: there is no counter
 *   FAKE_NVML_BUSY       per cent of the time in which each GPU computes; unset: not told
 *   FAKE_NVML_BUS        "BITS MHZ" of the memory; unset: not told
 *   FAKE_NVML_LINKS      a letter for each NVLink: u up, d down; unset: there is none
 *   FAKE_NVML_COMERS     a file; while it exists, its processes compute in place of those of FAKE_NVML_PROCESSES
 *   FAKE_NVML_LIMITS     "ENFORCED DEFAULT" limit of power in mW; unset: not told
 *   FAKE_NVML_ECC        a file with the number of uncorrected errors of memory; absent: no ECC
 *   FAKE_NVML_LOST       the number of a GPU that has fallen off the bus; unset: there is none
 *   FAKE_NVML_INIT       a return code for nvmlInit
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NOT_LOADED = 9, GPU_IS_LOST = 15, UNKNOWN = 999 };

#define TOTAL_BYTES (80ULL << 30)
#define RESERVED_BYTES (600ULL << 20)

typedef struct { int index; } device;
static device devices[64];
static device instances[] = {{1}, {1}};  /* of MIG: the index is that of the GPU */

static int is_instance(const device *handle) { return handle >= instances && handle < instances + 2; }

static const char *setting(const char *name) { const char *value = getenv(name); return value ? value : ""; }

static int count(void) { return atoi(setting("FAKE_NVML_GPUS")); }

static int is_lost(int index) { return *setting("FAKE_NVML_LOST") && atoi(setting("FAKE_NVML_LOST")) == index; }

static unsigned long long used_bytes(int index)
{
    unsigned long long value = 0;
    FILE *file = fopen(setting("FAKE_NVML_USED"), "r");
    if (!file) return 0;
    for (int line = 0; line <= index; line++)
        if (fscanf(file, "%llu", &value) != 1) { value = 0; break; }
    fclose(file);
    return value;
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    int wanted = atoi(setting("FAKE_NVML_INIT"));
    return wanted ? wanted : count() ? SUCCESS : NOT_LOADED;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) { (void)code; return "an error that nvidia-ml-py does not know"; }

int nvmlSystemGetDriverVersion(char *text, unsigned length) { snprintf(text, length, "580.65.06"); return SUCCESS; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *found) { *found = count(); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **handle)
{
    if (index >= (unsigned)count()) return INVALID_ARGUMENT;
    if (is_lost(index)) return GPU_IS_LOST;
    devices[index].index = index;
    *handle = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(device *handle, char *text, unsigned length)
{
    if (is_instance(handle)) snprintf(text, length, "MIG-00000000-0000-0000-0000-%012d", (int)(handle - instances) + 1);
    else snprintf(text, length, "GPU-00000000-0000-0000-0000-%012d", handle->index);
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device **handle)
{
    char text[96];
    for (int index = 0; index < count(); index++)
        if (is_lost(index)) return GPU_IS_LOST;  /* NVML says so "if any GPU has fallen off the bus" */
    for (int index = 0; index < count(); index++) {
        nvmlDeviceGetHandleByIndex_v2(index, handle);
        nvmlDeviceGetUUID(*handle, text, sizeof text);
        if (!strcmp(text, uuid)) return SUCCESS;
    }
    for (int which = 0; *setting("FAKE_NVML_MIG") && which < 2; which++) {
        *handle = &instances[which];
        nvmlDeviceGetUUID(*handle, text, sizeof text);
        if (!strcmp(text, uuid)) return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(device *handle, unsigned *index) { *index = handle->index; return is_instance(handle) ? INVALID_ARGUMENT : SUCCESS; }

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device *handle, device **gpu)
{
    return is_instance(handle) ? nvmlDeviceGetHandleByIndex_v2(handle->index, gpu) : INVALID_ARGUMENT;
}

int nvmlDeviceGetName(device *handle, char *text, unsigned length)
{
    snprintf(text, length, is_instance(handle) ? "Fake GPU MIG 1g.10gb" : "Fake GPU");
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(device *handle, int *major, int *minor)
{
    (void)handle;
    *major = 9;
    *minor = 0;
    return SUCCESS;
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci;

int nvmlDeviceGetPciInfo_v3(device *handle, pci *info)
{
    if (!*setting("FAKE_NVML_PCI")) return NOT_SUPPORTED;
    snprintf(info->bus_id, sizeof info->bus_id, setting("FAKE_NVML_PCI"), handle->index);
    return SUCCESS;
}

static int throttled(unsigned long long *reasons, unsigned *degrees)
{
    FILE *file = fopen(setting("FAKE_NVML_THROTTLED"), "r");
    if (!file) return NOT_SUPPORTED;
    int found = fscanf(file, "%llu %u", reasons, degrees);
    fclose(file);
    return found == 2 ? SUCCESS : UNKNOWN;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(device *handle, unsigned long long *reasons) { unsigned degrees; (void)handle; return throttled(reasons, &degrees); }
int nvmlDeviceGetTemperature(device *handle, int sensor, unsigned *degrees) { unsigned long long reasons; (void)handle; (void)sensor; return throttled(&reasons, degrees); }
int nvmlDeviceGetPowerUsage(device *handle, unsigned *milliwatts) { (void)handle; *milliwatts = 350500; return SUCCESS; }

int nvmlDeviceGetClockInfo(device *handle, int kind, unsigned *mhz)
{
    unsigned sm, memory;
    (void)handle;
    if (sscanf(setting("FAKE_NVML_CLOCKS"), "%u %u", &sm, &memory) != 2) return NOT_SUPPORTED;
    *mhz = kind == 1 ? sm : memory;
    return kind == 1 || kind == 2 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetTotalEnergyConsumption(device *handle, unsigned long long *millijoules)
{
    struct timespec now;
    (void)handle;
    if (!*setting("FAKE_NVML_WATTS")) return NOT_SUPPORTED;
    clock_gettime(CLOCK_REALTIME, &now);
    *millijoules = (now.tv_sec * 10ULL + now.tv_nsec / 100000000) * 100 * atoi(setting("FAKE_NVML_WATTS"));
    return SUCCESS;
}

typedef struct { unsigned gpu, memory; } utilization;

int nvmlDeviceGetUtilizationRates(device *handle, utilization *rates)
{
    (void)handle;
    if (!*setting("FAKE_NVML_BUSY")) return NOT_SUPPORTED;
    *rates = (utilization){atoi(setting("FAKE_NVML_BUSY")), 0};
    return SUCCESS;
}

static int limits(unsigned *enforced, unsigned *standard) { return sscanf(setting("FAKE_NVML_LIMITS"), "%u %u", enforced, standard) == 2 ? SUCCESS : NOT_SUPPORTED; }

int nvmlDeviceGetEnforcedPowerLimit(device *handle, unsigned *milliwatts) { unsigned other; (void)handle; return limits(milliwatts, &other); }
int nvmlDeviceGetPowerManagementDefaultLimit(device *handle, unsigned *milliwatts) { unsigned other; (void)handle; return limits(&other, milliwatts); }
int nvmlDeviceGetPersistenceMode(device *handle, unsigned *on) { (void)handle; *on = 1; return SUCCESS; }

int nvmlDeviceGetTotalEccErrors(device *handle, int kind, int counter, unsigned long long *errors)
{
    FILE *file = fopen(setting("FAKE_NVML_ECC"), "r");
    (void)handle;
    if (!file) return NOT_SUPPORTED;
    int found = kind == 1 && counter == 0 ? fscanf(file, "%llu", errors) : 0;
    fclose(file);
    return found == 1 ? SUCCESS : UNKNOWN;
}

static int bus(unsigned *bits, unsigned *mhz) { return sscanf(setting("FAKE_NVML_BUS"), "%u %u", bits, mhz) == 2 ? SUCCESS : NOT_SUPPORTED; }

int nvmlDeviceGetMemoryBusWidth(device *handle, unsigned *bits) { unsigned mhz; (void)handle; return bus(bits, &mhz); }
int nvmlDeviceGetMaxClockInfo(device *handle, int kind, unsigned *mhz) { unsigned bits; (void)handle; return kind == 2 ? bus(&bits, mhz) : NOT_SUPPORTED; }

int nvmlDeviceGetNvLinkState(device *handle, unsigned link, unsigned *on)
{
    const char *links = setting("FAKE_NVML_LINKS");
    (void)handle;
    if (link >= strlen(links)) return *links ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *on = links[link] == 'u';
    return SUCCESS;
}

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;

static int memory_failure(void) { return access(setting("FAKE_NVML_BROKEN"), F_OK) == 0 ? UNKNOWN : SUCCESS; }

int nvmlDeviceGetMemoryInfo(device *handle, memory_v1 *memory)
{
    memory->total = TOTAL_BYTES;
    memory->used = used_bytes(handle->index) + RESERVED_BYTES;
    memory->free = memory->total - memory->used;
    return memory_failure();
}

int nvmlDeviceGetMemoryInfo_v2(device *handle, memory_v2 *memory)
{
    if (*setting("FAKE_NVML_OLD")) return NOT_SUPPORTED;
    memory->total = is_instance(handle) ? 10ULL << 30 : TOTAL_BYTES;
    memory->reserved = RESERVED_BYTES;
    memory->used = used_bytes(handle->index);
    memory->free = memory->total - memory->reserved - memory->used;
    return memory_failure();
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;

int nvmlDeviceGetComputeRunningProcesses_v3(device *handle, unsigned *room, process *list)
{
    unsigned found = 0, capacity = *room, gpu, pid;
    unsigned long long bytes;
    char comers[256] = "";
    FILE *file = fopen(setting("FAKE_NVML_COMERS"), "r");
    if (file) {
        if (!fgets(comers, sizeof comers, file)) *comers = 0;
        fclose(file);
    }
    for (const char *at = file ? comers : setting("FAKE_NVML_PROCESSES"); sscanf(at, "%u:%u:%llu", &gpu, &pid, &bytes) == 3; at++) {
        if ((int)gpu == handle->index) {
            if (list && found < capacity) list[found] = (process){pid, bytes, 0xffffffff, 0xffffffff};
            found++;
        }
        at = strchr(at, ',');
        if (!at) break;
    }
    *room = found;
    return found > capacity ? INSUFFICIENT_SIZE : SUCCESS;
}
