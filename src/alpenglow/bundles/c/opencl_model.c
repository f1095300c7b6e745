/* @NAME@, made by Alpenglow @VERSION@ for @TARGET@: the host's side, and kernels in OpenCL C.
 *
 * It needs a loader of OpenCL to link with (-lOpenCL) and no header of it: what is called is
 * declared here.  C99.
 */
#include "@NAME@.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define CL_CALL __stdcall
#else
#define CL_CALL
#endif

typedef void *handle;

extern int32_t CL_CALL clGetPlatformIDs(uint32_t, handle *, uint32_t *);
extern int32_t CL_CALL clGetDeviceIDs(handle, uint64_t, uint32_t, handle *, uint32_t *);
extern int32_t CL_CALL clGetDeviceInfo(handle, uint32_t, size_t, void *, size_t *);
extern handle CL_CALL clCreateContext(const intptr_t *, uint32_t, const handle *, void *, void *,
                                      int32_t *);
extern int32_t CL_CALL clRetainContext(handle);
extern int32_t CL_CALL clReleaseContext(handle);
extern handle CL_CALL clCreateCommandQueue(handle, handle, uint64_t, int32_t *);
extern int32_t CL_CALL clRetainCommandQueue(handle);
extern int32_t CL_CALL clReleaseCommandQueue(handle);
extern handle CL_CALL clCreateBuffer(handle, uint64_t, size_t, void *, int32_t *);
extern int32_t CL_CALL clReleaseMemObject(handle);
extern handle CL_CALL clCreateProgramWithSource(handle, uint32_t, const char *const *,
                                                const size_t *, int32_t *);
extern int32_t CL_CALL clBuildProgram(handle, uint32_t, const handle *, const char *, void *,
                                      void *);
extern int32_t CL_CALL clGetProgramBuildInfo(handle, handle, uint32_t, size_t, void *, size_t *);
extern int32_t CL_CALL clReleaseProgram(handle);
extern handle CL_CALL clCreateKernel(handle, const char *, int32_t *);
extern int32_t CL_CALL clSetKernelArg(handle, uint32_t, size_t, const void *);
extern int32_t CL_CALL clReleaseKernel(handle);
extern int32_t CL_CALL clEnqueueNDRangeKernel(handle, handle, uint32_t, const size_t *,
                                              const size_t *, const size_t *, uint32_t,
                                              const handle *, handle *);
extern int32_t CL_CALL clEnqueueWriteBuffer(handle, handle, uint32_t, size_t, size_t, const void *,
                                            uint32_t, const handle *, handle *);
extern int32_t CL_CALL clEnqueueReadBuffer(handle, handle, uint32_t, size_t, size_t, void *,
                                           uint32_t, const handle *, handle *);
extern int32_t CL_CALL clFinish(handle);

enum { DEVICE_AVAILABLE = 0x1027, DEVICE_COMPILER = 0x1028, DEVICE_SINGLE_CONFIG = 0x101B };
enum { BUILD_LOG = 0x1183, CONTEXT_PLATFORM = 0x1084, EXACT_DIVISION = 1 << 7 };

/* Memory of the device: weights, inputs and outputs, what lives during a call. */
enum { CONSTANTS, MUTABLE, SCRATCH, REGIONS };
static const size_t region_nbytes[REGIONS] = {@REGIONS@};

struct source {
  const char *name, *standard;
  const char *const *lines;
  uint32_t count;
};

struct place {
  int region;
  int64_t offset;
};

/* A kernel, its places and then its numbers, and its grid.  Or a jump to the launch `number`: always,
 * or as the byte at its place is. */
enum { ALWAYS = -1, WHERE_FALSE = -2, WHERE_TRUE = -3 };
struct launch {
  int kernel, place, places, number, numbers;
  uint32_t axes;
  size_t threads[3], group[3];
};

struct copy {
  size_t offset, nbytes;
};

@TABLES@

enum { KERNELS = @KERNELS@, LAUNCHES = @LAUNCHES@ };

struct @NAME@_model {
  handle context, device, queue, memory[REGIONS];
  handle programs[KERNELS + 1], launches[LAUNCHES + 1];
  char *message;
  int complete;
};

/* Keeps what is to be told, in two parts, and returns the code. */
static int failed(struct @NAME@_model *m, int code, const char *first, const char *rest) {
  size_t length = strlen(first) + strlen(rest) + 1;
  char *text = malloc(length);
  free(m->message);
  m->message = text;
  if (text == NULL)
    return @UPPER@_NO_MEMORY;
  snprintf(text, length, "%s%s", first, rest);
  return code;
}

/* The same for a code of OpenCL; `what` was to be done. */
static int refused(struct @NAME@_model *m, int32_t error, const char *what, const char *name) {
  char first[64];
  snprintf(first, sizeof first, "OpenCL returned %d as it was to %s ", (int)error, what);
  return failed(m, @UPPER@_OPENCL, first, name);
}

static uint64_t told(handle device, uint32_t about) {
  uint64_t answer = 0;
  return clGetDeviceInfo(device, about, sizeof answer, &answer, NULL) ? 0 : answer;
}

/* Finds a device by its number: GPUs are first, then accelerators, then processors. */
static int found(unsigned number, handle *platform, handle *device) {
  static const uint64_t kinds[] = {4, 8, 2};
  handle platforms[16], devices[64];
  uint32_t platform_count = 0;
  if (clGetPlatformIDs(16, platforms, &platform_count))
    return 0;
  platform_count = platform_count < 16 ? platform_count : 16;
  for (int kind = 0; kind < 3; kind++)
    for (uint32_t p = 0; p < platform_count; p++) {
      uint32_t count = 0;
      if (clGetDeviceIDs(platforms[p], kinds[kind], 64, devices, &count))
        continue;
      for (uint32_t d = 0; d < count && d < 64; d++)
        if (told(devices[d], DEVICE_AVAILABLE) && told(devices[d], DEVICE_COMPILER) &&
            number-- == 0) {
          *platform = platforms[p];
          *device = devices[d];
          return 1;
        }
    }
  return 0;
}

static int not_built(struct @NAME@_model *m, int kernel) {
  size_t size = 0;
  char *log = NULL;
  if (!clGetProgramBuildInfo(m->programs[kernel], m->device, BUILD_LOG, 0, NULL, &size))
    log = calloc(size + 1, 1);
  if (log)
    clGetProgramBuildInfo(m->programs[kernel], m->device, BUILD_LOG, size, log, NULL);
  char first[256];
  snprintf(first, sizeof first, "the device refuses kernel %s: ", sources[kernel].name);
  int code = failed(m, @UPPER@_NOT_BUILT, first, log ? log : "it does not say why");
  free(log);
  return code;
}

/* Builds a program; a device that does not divide exactly may refuse to be asked to. */
static int build(struct @NAME@_model *m, int kernel) {
  const struct source *s = &sources[kernel];
  int32_t error = 0;
  char options[128];
  m->programs[kernel] =
      clCreateProgramWithSource(m->context, s->count, s->lines, NULL, &error);
  if (error)
    return refused(m, error, "read kernel", s->name);
  snprintf(options, sizeof options, "%s -cl-fp32-correctly-rounded-divide-sqrt", s->standard);
  if (!clBuildProgram(m->programs[kernel], 1, &m->device, options, NULL, NULL))
    return 0;
  if (!(told(m->device, DEVICE_SINGLE_CONFIG) & EXACT_DIVISION) &&
      !clBuildProgram(m->programs[kernel], 1, &m->device, s->standard, NULL, NULL))
    return 0;
  return not_built(m, kernel);
}

/* Makes a kernel with all its arguments: memory, then numbers, then offsets into memory. */
static int prepare(struct @NAME@_model *m, int number) {
  const struct launch *l = &launches[number];
  if (l->kernel < 0)
    return 0;
  const char *name = sources[l->kernel].name;
  int32_t error = 0;
  uint32_t argument = 0;
  handle kernel = clCreateKernel(m->programs[l->kernel], name, &error);
  m->launches[number] = kernel;
  for (int i = 0; !error && i < l->places; i++)
    error = clSetKernelArg(kernel, argument++, sizeof(handle),
                           &m->memory[places[l->place + i].region]);
  for (int i = 0; !error && i < l->numbers; i++)
    error = clSetKernelArg(kernel, argument++, sizeof(int64_t), &numbers[l->number + i]);
  for (int i = 0; !error && i < l->places; i++)
    error = clSetKernelArg(kernel, argument++, sizeof(int64_t), &places[l->place + i].offset);
  return error ? refused(m, error, "prepare kernel", name) : 0;
}

static int load(struct @NAME@_model *m, const uint8_t *constants) {
  int32_t error = 0;
  for (int i = 0; i < REGIONS; i++) {
    size_t nbytes = region_nbytes[i] ? region_nbytes[i] : 1;
    m->memory[i] = clCreateBuffer(m->context, 1, nbytes, NULL, &error);
    if (error)
      return refused(m, error, "allocate memory for", "@NAME@");
  }
  if (region_nbytes[CONSTANTS])
    error = clEnqueueWriteBuffer(m->queue, m->memory[CONSTANTS], 1, 0, region_nbytes[CONSTANTS],
                                 constants, 0, NULL, NULL);
  if (error)
    return refused(m, error, "copy the weights of", "@NAME@");
@CHECKS@  for (int i = 0; i < KERNELS; i++) {
    int code = build(m, i);
    if (code)
      return code;
  }
  for (int i = 0; i < LAUNCHES; i++) {
    int code = prepare(m, i);
    if (code)
      return code;
  }
  m->complete = 1;
  return 0;
}

/* Reads a byte of the device once all that runs there is done, and the word of what was wrong. */
static int32_t read_flag(struct @NAME@_model *m, const struct place *p, int64_t words, char *flag,
                         int64_t *wrong) {
  int32_t error = clEnqueueReadBuffer(m->queue, m->memory[p->region], 1, (size_t)p->offset, 1, flag,
                                      0, NULL, NULL);
  if (error || words < 0)
    return error;
  return clEnqueueReadBuffer(m->queue, m->memory[MUTABLE], 1, (size_t)words, sizeof *wrong, wrong, 0,
                             NULL, NULL);
}

/* Runs launches on arrays of the host.  Where `words` is none of -1, two numbers lie there in
 * mutable memory: whether an index was out of range, and which. */
static int run(struct @NAME@_model *m, int first, int count, const struct copy *inputs,
               const void *const *from, int input_count, const struct copy *outputs,
               void *const *to, int output_count, int64_t words) {
  int64_t wrong[2] = {0, 0};
  int32_t error = 0;
  const char *what = "copy inputs of", *name = "@NAME@";
  if (!m->complete)
    return @UPPER@_OPENCL;
  for (int i = 0; !error && i < input_count; i++)
    if (inputs[i].nbytes)
      error = clEnqueueWriteBuffer(m->queue, m->memory[MUTABLE], 0, inputs[i].offset,
                                   inputs[i].nbytes, from[i], 0, NULL, NULL);
  for (int i = first; !error && i < first + count; i++) {
    const struct launch *l = &launches[i];
    if (l->kernel < 0) { /* a jump; none leads back once something was wrong */
      char flag = l->kernel == WHERE_TRUE;
      what = "read how to go on in", name = "@NAME@";
      if (l->kernel != ALWAYS)
        error = read_flag(m, &places[l->place], words, &flag, wrong);
      int taken = l->kernel == ALWAYS || (flag != 0) == (l->kernel == WHERE_TRUE);
      if (taken && !(l->number <= i && wrong[0]))
        i = l->number - 1;
      continue;
    }
    what = "run kernel", name = sources[l->kernel].name;
    error = clEnqueueNDRangeKernel(m->queue, m->launches[i], l->axes, NULL, l->threads, l->group, 0,
                                   NULL, NULL);
  }
  if (!error)
    what = "copy outputs of", name = "@NAME@";
  if (!error && words >= 0)
    error = clEnqueueReadBuffer(m->queue, m->memory[MUTABLE], 0, (size_t)words, sizeof wrong, wrong,
                                0, NULL, NULL);
  for (int i = 0; !error && i < output_count; i++)
    if (outputs[i].nbytes)
      error = clEnqueueReadBuffer(m->queue, m->memory[MUTABLE], 0, outputs[i].offset,
                                  outputs[i].nbytes, to[i], 0, NULL, NULL);
  int32_t ended = clFinish(m->queue); /* arrays are the caller's again, whatever happened */
  if (error || ended)
    return refused(m, error ? error : ended, error ? what : "finish", name);
  if (wrong[0] == 0)
    return 0;
  static const int64_t nothing[2] = {0, 0};
  char number[32];
  snprintf(number, sizeof number, "%lld", (long long)wrong[1]);
  error = clEnqueueWriteBuffer(m->queue, m->memory[MUTABLE], 1, (size_t)words, sizeof nothing,
                               nothing, 0, NULL, NULL);
  return error ? refused(m, error, "forget what was wrong in", "@NAME@")
               : failed(m, @UPPER@_OUT_OF_RANGE, "an index is out of range: ", number);
}

int @NAME@_create_on(struct @NAME@_model **model, const uint8_t *constants, void *context,
                     void *device, void *queue) {
  struct @NAME@_model *m = *model = calloc(1, sizeof *m);
  if (m == NULL)
    return @UPPER@_NO_MEMORY;
  m->device = device;
  if (!clRetainContext(context))
    m->context = context;
  if (!clRetainCommandQueue(queue))
    m->queue = queue;
  if (!m->context || !m->queue)
    return failed(m, @UPPER@_OPENCL, "this is no context, or no queue", "");
  return load(m, constants);
}

int @NAME@_create(struct @NAME@_model **model, const uint8_t *constants, unsigned number) {
  struct @NAME@_model *m = *model = calloc(1, sizeof *m);
  handle platform = NULL;
  int32_t error = 0;
  if (m == NULL)
    return @UPPER@_NO_MEMORY;
  if (!found(number, &platform, &m->device))
    return failed(m, @UPPER@_NO_DEVICE, "there is no OpenCL device of this number", "");
  const intptr_t properties[] = {CONTEXT_PLATFORM, (intptr_t)platform, 0};
  m->context = clCreateContext(properties, 1, &m->device, NULL, NULL, &error);
  if (!error)
    m->queue = clCreateCommandQueue(m->context, m->device, 0, &error);
  return error ? refused(m, error, "open", "the device") : load(m, constants);
}

void @NAME@_destroy(struct @NAME@_model *m) {
  if (m == NULL)
    return;
  for (int i = 0; i < LAUNCHES; i++)
    if (m->launches[i])
      clReleaseKernel(m->launches[i]);
  for (int i = 0; i < KERNELS; i++)
    if (m->programs[i])
      clReleaseProgram(m->programs[i]);
  for (int i = 0; i < REGIONS; i++)
    if (m->memory[i])
      clReleaseMemObject(m->memory[i]);
  if (m->queue)
    clReleaseCommandQueue(m->queue);
  if (m->context)
    clReleaseContext(m->context);
  free(m->message);
  free(m);
}

const char *@NAME@_message(const struct @NAME@_model *m) {
  if (m == NULL)
    return "there is not enough memory";
  return m->message ? m->message : "";
}

@ENTRIES@
